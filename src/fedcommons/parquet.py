"""Parquet files: reading what others may have damaged or made, and which columns are an index."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedcommons.errors import FedcommonsError
from fedcommons.unpacked import check_expanded

PANDAS_INDEX = re.compile(r"__index_level_[0-9]+__")


@contextlib.contextmanager
def opened(path: Path, error: type[FedcommonsError], **options: Any) -> Iterator[Any]:
    """An open Parquet file; whatever goes wrong while it is used is raised as `error`.

    A value may take a few bits in the file, so what it expands to is checked before it is read.
    """
    import pyarrow.parquet  # slow to import, and only Parquet needs it

    try:
        with pyarrow.parquet.ParquetFile(path, **options) as file:
            check_expanded(path, _expanded(file), path.stat().st_size, error)
            yield file
    except FedcommonsError:
        raise
    except Exception as cause:  # of what others wrote Arrow raises anything
        raise error(f"{path} cannot be read as Parquet: {cause}") from None


def read_parquet(path: Path, error: type[FedcommonsError]) -> Any:
    """The table in a file; whatever is wrong with the file is raised as `error`."""
    with opened(path, error) as file:
        table = file.read()
        table.validate(full=True)
        return table


def _expanded(file: Any) -> int:
    """How many bytes the values take at least: 8 a number, the file's own word for other pages."""
    metadata = file.metadata
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    pages = sum(group.total_byte_size for group in groups)
    values = sum(group.num_rows for group in groups) * metadata.num_columns * 8
    if any(group.num_rows < 0 for group in groups) or metadata.num_rows < 0:
        raise ValueError("it says that it has fewer than no rows")
    return int(max(pages, values, metadata.num_rows))


def index_columns(schema: Any) -> list[str]:
    """The columns that pandas wrote as the index of its rows."""
    try:
        written = list(json.loads((schema.metadata or {})[b"pandas"])["index_columns"])
    except (KeyError, TypeError, ValueError, RecursionError):  # not by pandas
        written = []
    return [name for name in schema.names if PANDAS_INDEX.fullmatch(name) or name in written]
