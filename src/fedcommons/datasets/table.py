"""A table of columns, numbers or text, with the place of each row in its file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import DataError

Column = npt.NDArray[Any]  # numbers, NaN where missing; or str objects, None where missing
SHOWN = 20  # columns that a message names at most


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The rows of a file.

    Attributes:
        path: of the file.
        columns: by name, in the file's order.
        places: (rows,) the number of each row's line, or of the row itself.
        place: what such a number is called: "line" or "row".
    """

    path: Path
    columns: dict[str, Column]
    places: IntArray
    place: str

    def __len__(self) -> int:
        return len(self.places)

    def at(self, rows: IntArray | BoolArray) -> Table:
        """The table with these rows alone."""
        some = {name: column[rows] for name, column in self.columns.items()}
        return Table(self.path, some, self.places[rows], self.place)

    def missing(self, name: str) -> BoolArray:
        """Where a column has no value: (rows,)."""
        column = self.columns[name]
        if is_text(column):
            return np.array([value is None for value in column], np.bool_)
        return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), np.bool_)

    def check_has(self, names: Iterable[str], role: str) -> None:
        """Refuse a column that the file does not have."""
        for name in names:
            if name not in self.columns:
                raise DataError(
                    f"{self.path} must have the {role} {name!r}, got {list(self.columns)[:SHOWN]}"
                )

    def where(self, row: int) -> str:
        """A row's place, for a message."""
        return f"{self.path}, {self.place} {self.places[row]}"


def is_text(column: Column) -> bool:
    return column.dtype.kind == "O"


def as_text(column: Column) -> Column:
    """A column's values as they are written, None where missing: whole numbers without a point."""
    if is_text(column):
        return column
    return np.array([None if value != value else f"{value:.15g}" for value in column], object)
