"""A site's data in a CSV file: feature, label, mark and ground columns.

The file is read as a whole; every value that cannot be is named with its line and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray
from fedcommons.datasets.csv_file import NUMBER, read_table
from fedcommons.datasets.reading import SEPARATORS
from fedcommons.datasets.table import Table, is_text
from fedcommons.errors import ArgumentError, DataError
from fedcommons.federate.site.file_rows import ArrayRows
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.table_columns import TableColumns, together

MARKS = {"true": True, "false": False, "1": True, "0": False}


def read_csv_data(
    path: Path,
    stamp: str,
    *,
    label: str | Sequence[str],
    shareable: str,
    ground: str,
    classes: Sequence[str] | None,
    separator: str,
    decimal: str,
) -> SiteData:
    for name, value, known in (
        ("separator", separator, tuple(SEPARATORS)),
        ("decimal", decimal, (".", ",")),
    ):
        if value not in known:
            raise ArgumentError(
                f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}"
            )
    labels = [label] if isinstance(label, str) else label
    as_words = {shareable, ground, *(labels if classes is not None else ())}
    table = read_table(path, separator=separator, decimal=decimal, text=as_words)
    names = list(table.columns)
    columns = TableColumns.of(
        path,
        names,
        label=label,
        shareable=shareable,
        ground=ground,
        booleans=[name for name in names if _holds_marks(table.columns[name])],
    )
    advice = "; words among the inputs must be made numbers before, in one way at all sites"
    features = [_numbers(table, name, advice).astype(np.float64) for name in columns.features]
    y = together([_labels(table, name, classes) for name in columns.labels])
    marked = None if columns.shareable is None else _marks(table, columns.shareable)
    return SiteData.checked(
        ArrayRows(np.column_stack(features)),
        y,
        marked,
        stamp=stamp,
        source=str(path),
        features=columns.features,
        classes=classes,
        ground=None if columns.ground is None else table.columns[columns.ground],
    )


def _labels(table: Table, name: str, classes: Sequence[str] | None) -> npt.NDArray[Any]:
    """Integers if all are written as such, else floating-point numbers; or names of classes."""
    if classes is None:
        return _numbers(
            table,
            name,
            "; labels that are words need the list of classes that all "
            "sites have, as attach(app, classes=[...])",
        )
    _check_all_there(table, name)
    return table.columns[name]


def _numbers(table: Table, name: str, advice: str) -> npt.NDArray[Any]:
    """A column of numbers, none of which is missing."""
    column = table.columns[name]
    _check_all_there(table, name)
    if is_text(column):
        row = next((k for k, value in enumerate(column) if not NUMBER.fullmatch(value)), 0)
        raise DataError(
            f"{table.where(row)}, column {name!r}: must be a number, got {column[row]!r}{advice}"
        )
    return column


def _marks(table: Table, name: str) -> BoolArray:
    _check_all_there(table, name)
    found = []
    for row, value in enumerate(table.columns[name].tolist()):
        if str(value).casefold() not in MARKS:
            raise DataError(
                f"{table.where(row)}, column {name!r}: must be true or false, or 1 or 0, "
                f"got {value!r}"
            )
        found.append(MARKS[str(value).casefold()])
    return np.array(found, np.bool_)


def _check_all_there(table: Table, name: str) -> None:
    missing = np.flatnonzero(table.missing(name))
    if len(missing):
        raise DataError(f"{table.where(missing[0])}, column {name!r}: must not be missing")


def _holds_marks(column: npt.NDArray[Any]) -> bool:
    return all(str(value).casefold() in MARKS for value in column.tolist())
