"""A user's own data: .npz, a folder of IDX files, or Parquet."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.datasets.dataset import Dataset
from fedcommons.errors import DataError
from fedcommons.npz import read_npz
from fedcommons.parquet import index_columns, read_parquet
from fedcommons.unpacked import read_bytes

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL_ARRAYS = ("strata_train",)
IDX_PREFIXES = {
    "x_train": ("train-images",),
    "y_train": ("train-labels",),
    "x_test": ("t10k-images", "test-images"),
    "y_test": ("t10k-labels", "test-labels"),
}
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def load(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    label: str = "label",
    test: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Read a dataset; what it is follows from the path.

    - `data.npz`: the arrays x_train, y_train, x_test and y_test; strata_train if there are strata.
    - a folder of IDX files as MNIST has them (train-images..., train-labels..., t10k-images...,
      t10k-labels...), plain or .gz.
    - `train.parquet`: the column `label` and numeric feature columns, in the file's order, without
      the index that pandas writes. `test` names a second such file; without it the test split is
      empty. A folder with train.parquet and test.parquet serves as well.

    Args:
        name: how to call it; by default the path's last part.
        label: the label column of a Parquet file.
        test: the Parquet file with the test split.
    """
    path = checks.path("path", path)
    if not path.exists():
        raise DataError(f"dataset {path} does not exist")
    name = name or path.name
    if path.is_dir() and (path / "train.parquet").exists():
        second = path / "test.parquet"
        path, test = path / "train.parquet", test or (second if second.exists() else None)
    if path.suffix == ".parquet":
        return _from_parquet(name, path, label, Path(test) if test else None)
    if test is not None:
        raise DataError(f"test goes with a Parquet file, got {path}")
    if path.is_dir():
        return _from_idx_folder(name, path)
    if path.suffix == ".npz":
        arrays: dict[str, Any] = read_npz(path, ARRAYS, DataError, optional=OPTIONAL_ARRAYS)
        return Dataset(name, **arrays)
    raise DataError(f"dataset must be .npz, .parquet or a folder of IDX files, got {path}")


def digest(path: Path) -> str:
    """The SHA-256 of a data file, or of the files of a folder in the order of their names."""
    if not path.exists():
        raise DataError(f"dataset {path} does not exist")
    found = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as content:
                found.update(hashlib.file_digest(content, "sha256").digest())
    return found.hexdigest()


def _from_idx_folder(name: str, folder: Path) -> Dataset:
    arrays: dict[str, Any] = {}
    for array, prefixes in IDX_PREFIXES.items():
        found = sorted(file for file in folder.iterdir() if file.name.startswith(prefixes))
        if not found:
            raise DataError(f"{folder} must hold a file {prefixes[0]}-idx...(.gz), got none")
        arrays[array] = read_idx(found[0])
    return Dataset(name, **arrays)


def read_idx(path: Path) -> npt.NDArray[Any]:
    """One IDX file, plain or gzip-compressed."""
    content = read_bytes(path, DataError)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise DataError(f"{path} must be an IDX file, got the first bytes {content[:4].hex()!r}")
    dtype, n_dims = np.dtype(IDX_TYPES[content[2]]), content[3]
    start = 4 + 4 * n_dims
    if len(content) < start:
        raise DataError(f"{path} must have {n_dims} dimensions in its header, got a cut-off file")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], ">u4"))
    expected = start + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if len(content) != expected:
        raise DataError(f"{path} must have {expected} bytes for shape {shape}, got {len(content)}")
    data = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return data.astype(dtype.newbyteorder("="))


def _from_parquet(name: str, path: Path, label: str, test: Path | None) -> Dataset:
    x_train, y_train, columns = _parquet_split(path, label, None)
    if test is None:
        return Dataset(name, x_train, y_train, x_train[:0], y_train[:0])
    if not test.exists():
        raise DataError(f"dataset {test} does not exist")
    x_test, y_test, _ = _parquet_split(test, label, columns)
    return Dataset(name, x_train, y_train, x_test, y_test)


def _parquet_split(
    path: Path, label: str, columns: list[str] | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], list[str]]:
    """Features, labels and the feature columns' names; `columns` are those expected."""
    import pyarrow  # slow to import, and only Parquet needs it

    table = read_parquet(path, DataError)
    names = table.column_names
    if label not in names:
        raise DataError(f"{path} must have the label column {label!r}, got {names[:20]}")
    left_out = {label, *index_columns(table.schema)}
    own = [column for column in names if column not in left_out]
    features = own if columns is None else columns
    unknown = [column for column in own if column not in features]
    if unknown:
        raise DataError(f"{path} must have the training file's columns alone, got also {unknown}")
    absent = [column for column in features if column not in names]
    if absent or not features:
        raise DataError(f"{path} must have feature columns {absent or '(any)'}, got {names[:20]}")
    for column in [label, *features]:
        kind = table.schema.field(column).type
        number = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)
        if not (number or pyarrow.types.is_boolean(kind)):
            raise DataError(f"{path}: column {column!r} must hold numbers, got {kind}")
        if table[column].null_count:
            raise DataError(
                f"{path}: column {column!r} must have no missing values, "
                f"got {table[column].null_count}"
            )
    x = np.column_stack([table[column].to_numpy() for column in features])
    return x, table[label].to_numpy(), features
