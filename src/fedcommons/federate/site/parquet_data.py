"""A site's data in a Parquet file: feature, label, mark and ground columns."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import DataError
from fedcommons.federate.protocol.packing import DTYPES
from fedcommons.federate.site import spool
from fedcommons.federate.site.file_rows import FileRows
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.table_columns import TableColumns, together
from fedcommons.parquet import index_columns, opened

BLOCK_BYTES = 16 << 20  # of rows that are put together at a time
TEXT = ("string", "large_string", "string_view")
COLUMNS_AT_ONCE = 16  # one page of each is in memory, about a megabyte


def read_parquet_data(
    path: Path,
    unpacked: Path,
    stamp: str,
    *,
    label: str | Sequence[str],
    shareable: str,
    ground: str,
    classes: Sequence[str] | None,
) -> SiteData:
    # Otherwise whole row groups are read ahead, and a file may be a single one.
    bounded: Any = dict(pre_buffer=False, buffer_size=1 << 16)
    with opened(path, DataError, **bounded) as file:
        schema = file.schema_arrow
        columns = TableColumns.of(
            path,
            schema.names,
            label=label,
            shareable=shareable,
            ground=ground,
            index=index_columns(schema),
            booleans=[field.name for field in schema if field.type == "bool"],
        )
        features = columns.features
        dtype = _dtype_of(path, schema, features)
        y = together([_column(path, file, name) for name in columns.labels])
        marked = None if columns.shareable is None else _column(path, file, columns.shareable)
        grounds = None if columns.ground is None else _grounds(path, file, columns.ground)
        parts = _rows_of(path, file, features, dtype, unpacked.parent)
        rows = FileRows(spool.unpack(unpacked, parts), 0, dtype, (len(y), len(features)))
    return SiteData.checked(
        rows,
        y,
        marked,
        stamp=stamp,
        source=str(path),
        features=features,
        classes=classes,
        ground=grounds,
    )


def _dtype_of(path: Path, schema: Any, features: list[str]) -> np.dtype[Any]:
    """The type that holds all feature columns."""
    dtypes = []
    for name in features:
        kind = schema.field(name).type
        dtypes.append(np.dtype(kind.to_pandas_dtype()))
        if str(dtypes[-1]) not in DTYPES:
            raise DataError(f"{path}: column {name!r} must be numbers, got {kind}")
    return np.result_type(*dtypes)


def _column(path: Path, file: Any, name: str) -> npt.NDArray[Any]:
    column = file.read([name])[name]
    if column.null_count:
        raise DataError(f"{path}: column {name!r} must have no missing values")
    return np.asarray(column.to_numpy())


def _grounds(path: Path, file: Any, name: str) -> Iterator[str | None]:
    """A column of text, in which values may be missing."""
    column = file.read([name])[name]
    if str(column.type) not in TEXT and column.null_count < len(column):
        raise DataError(f"{path}: column {name!r} must be text, got {column.type}")
    return (value for chunk in column.chunks for value in chunk.to_pylist())


def _rows_of(
    path: Path, file: Any, features: list[str], dtype: np.dtype[Any], folder: Path
) -> Iterator[bytes]:
    """The rows in parts. Columns are read a few at a time, since each needs a page in memory."""
    with contextlib.ExitStack() as stack:
        parts = []
        for first in range(0, len(features), COLUMNS_AT_ONCE):
            names = features[first : first + COLUMNS_AT_ONCE]
            part = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            for batch in file.iter_batches(batch_size=4096, columns=names):
                part.write(_matrix(path, batch, dtype).tobytes())
            part.seek(0)
            parts.append((part, len(names)))
        left, step = file.metadata.num_rows, max(1, BLOCK_BYTES // (32 * len(features)))
        while left > 0:
            n = min(step, left)
            left -= n
            blocks = [
                np.fromfile(part, dtype, n * width).reshape(n, width) for part, width in parts
            ]
            yield np.concatenate(blocks, axis=1).tobytes()


def _matrix(path: Path, batch: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """(rows, features) of a batch; a missing value is an error, never a number."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count:
            raise DataError(f"{path}: column {name!r} must have no missing values")
    columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
    return np.column_stack(columns).astype(dtype)
