"""Which columns of a site's table are labels, which marks, and which features."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import DataError

ALIKE = 0.8  # names this similar may be misspellings of each other: sharable, but not stable


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table by what they are for.

    Attributes:
        labels: one, or several that make up a label together.
        shareable: what may be shared; None if there is no such column, and all is private.
        ground: on what ground rows may be shared; None if there is no such column.
        features: the others, in order.
    """

    labels: list[str]
    shareable: str | None
    ground: str | None
    features: list[str]

    @classmethod
    def of(
        cls,
        path: Path,
        names: Sequence[str],
        *,
        label: str | Sequence[str],
        shareable: str,
        ground: str,
        index: Collection[str] = (),
        booleans: Collection[str] = (),
    ) -> TableColumns:
        """Sort columns by name; those that are most likely no features are refused.

        Args:
            path: of the file, for errors.
            names: of all columns, in order.
            label: of one column, or of several: in a list, or in a text with commas between.
            shareable: of the column of marks, which may be missing.
            ground: of the column of grounds, likewise.
            index: columns that number the rows.
            booleans: columns of booleans.
        """
        labels = _label_columns(label, names)
        missing = [name for name in labels if name not in names]
        if missing or len(set(names)) != len(names):
            wanted = "column" if len(labels) == 1 else "columns"
            said = ", ".join(map(repr, labels))
            raise DataError(
                f"{path} must have the label {wanted} {said} and each column once, "
                f"got {list(names)[:20]}"
            )
        features = [name for name in names if name not in (*labels, shareable, ground)]
        for name in features:
            if name in index:
                raise DataError(
                    f"{path}: column {name!r} is the index of a pandas table, no feature: write "
                    "the file with index=False"
                )
            mark = [shareable.casefold()]
            if name in booleans and difflib.get_close_matches(name.casefold(), mark, cutoff=ALIKE):
                raise DataError(
                    f"{path}: column {name!r} must be called {shareable!r} if it says what may be "
                    "shared; otherwise give it a less similar name"
                )
        if not features:
            raise DataError(f"{path} must have feature columns, got {list(names)[:20]}")
        marks, grounds = (name if name in names else None for name in (shareable, ground))
        return cls(labels, marks, grounds, features)


def _label_columns(label: str | Sequence[str], names: Sequence[str]) -> list[str]:
    """A column of exactly this name, or several with commas between, or a list of them."""
    if not isinstance(label, str):
        return list(label)
    if label in names or "," not in label:
        return [label]
    return [part.strip() for part in label.split(",")]


def together(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The labels of one column, (examples,), or of several, (examples, columns)."""
    return columns[0] if len(columns) == 1 else np.column_stack(columns)
