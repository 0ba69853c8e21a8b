"""Parquet files as tables."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons.datasets.table import Column, Table
from fedcommons.errors import DataError
from fedcommons.parquet import index_columns, read_parquet


def read_table(path: Path, *, leave_out: Collection[str] = ()) -> Table:
    """The table of a Parquet file, without the index that pandas writes.

    Columns must hold numbers or text, but those in `leave_out` may hold anything.
    """
    found = read_parquet(path, DataError)
    index = index_columns(found.schema)
    names = [name for name in found.column_names if name not in index]
    if len(set(names)) < len(names):
        raise DataError(f"{path} must have each column once, got {names[:20]}")
    columns = {
        name: np.zeros(len(found), np.int64)
        if name in leave_out
        else _column(path, name, found[name])
        for name in names
    }
    return Table(path, columns, np.arange(1, len(found) + 1), "row")


def _column(path: Path, name: str, values: Any) -> Column:
    import pyarrow  # slow to import, and only Parquet needs it

    kind = values.type
    if pyarrow.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
        kind = values.type
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        return np.array([value or None for value in values.to_pylist()], object)
    is_bool = pyarrow.types.is_boolean(kind)
    if not (is_bool or pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)):
        raise DataError(f"{path}: column {name!r} must hold numbers or text, got {kind}")
    if values.null_count and not pyarrow.types.is_floating(kind):
        values = values.cast(pyarrow.float64(), safe=False)
    column: Column = values.to_numpy()
    return column
