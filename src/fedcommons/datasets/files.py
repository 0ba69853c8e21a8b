"""A user's own data: a table (CSV, Parquet), .npz, or a folder of IDX files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.datasets import from_arrays, scaling, tables
from fedcommons.datasets.dataset import Dataset
from fedcommons.datasets.reading import Reading, from_rules, refuse_rules_of_tables
from fedcommons.errors import ArgumentError, DataError
from fedcommons.unpacked import read_bytes

IDX_PREFIXES = {
    "x_train": ("train-images",),
    "y_train": ("train-labels",),
    "x_test": ("t10k-images", "test-images"),
    "y_test": ("t10k-labels", "test-labels"),
}
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def load(
    path: str | os.PathLike[str],
    reading: Reading | None = None,
    *,
    name: str | None = None,
    test: str | os.PathLike[str] | None = None,
    seed: int = 0,
    numbers: bool = False,
    **rules: Any,
) -> Dataset:
    """Read a dataset; what it is follows from the path.

    - `data.npz`: the arrays x_train, y_train, x_test and y_test, with site_train and site_test if
      sites are known and strata_train if there are strata; or x and y, with site and strata, all in
      one piece: `test_part` draws a split.
    - a folder of IDX files as MNIST has them (train-images..., train-labels..., t10k-images...,
      t10k-labels...), plain or .gz.
    - `patients.csv` or `patients.parquet`: a column of labels, columns of inputs in the file's
      order, without the index that pandas writes. A split comes from `test`, which names a second
      such file, from `split_column` or from `test_part`; without any the test split is empty. A
      folder with train.csv and test.csv, or train.parquet and test.parquet, serves as well.

    Args:
        reading: how it is to be read; or give the `Reading`'s attributes by name: `label`,
            `site_column`, `strata_column`, `split_column`, `test_part`, `categories`, `leave_out`,
            `missing`, `scale`, `separator`, `decimal`.
        name: how to call it; by default the path's last part.
        test: the file with the test split of a table.
        seed: what `test_part` draws from.
        numbers: whether the labels of a table are numbers rather than classes.
    """
    path = checks.path("path", path)
    if reading is None:
        reading = from_rules(rules)
    elif rules:
        raise ArgumentError(f"reading must not be given beside {', '.join(rules)}")
    if not path.exists():
        raise DataError(f"dataset {path} does not exist")
    name = name or path.name
    for suffix in tables.SUFFIXES if path.is_dir() else ():
        if (path / f"train{suffix}").exists():
            beside = path / f"test{suffix}"
            path, test = path / f"train{suffix}", test or (beside if beside.exists() else None)
            break
    if path.suffix in tables.SUFFIXES:
        second = Path(test) if test else None
        found = tables.load(name, path, second, reading, seed=seed, numbers=numbers)
    else:
        refuse_rules_of_tables(reading, path)
        if test is not None:
            raise DataError(f"test goes with a table, .csv or .parquet, got {path}")
        found = _arrays(name, path, reading, seed)
    return scaling.standardised(found) if reading.scale == "standard" else found


def _arrays(name: str, path: Path, reading: Reading, seed: int) -> Dataset:
    if path.suffix == ".npz":
        return from_arrays.load(name, path, reading, seed=seed)
    if reading.test_part is not None:
        raise ArgumentError(
            f"test_part must go with data in one piece, a table or an .npz file, got {path}"
        )
    if path.is_dir():
        return _from_idx_folder(name, path)
    raise DataError(f"dataset must be .npz, .csv, .parquet or a folder of IDX files, got {path}")


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
