"""Datasets as NumPy's .npz files: reading them, and writing one."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import checks
from fedcommons.checks import IntArray
from fedcommons.datasets import sites, splits
from fedcommons.datasets.dataset import Dataset
from fedcommons.datasets.reading import Reading
from fedcommons.errors import ArgumentError, DataError
from fedcommons.npz import Arrays, read_npz, write_npz

SPLIT = ("x_train", "y_train", "x_test", "y_test")
SITES = ("site_train", "site_test")
WHOLE = ("x", "y")
OF_DATASET = ("columns", "encodings")  # as `save` writes them


def load(name: str, path: Path, reading: Reading, *, seed: int) -> Dataset:
    """The arrays of a split, or arrays in one piece that are split here."""
    everything = (*SPLIT, *SITES, "strata_train", *WHOLE, "site", "strata", *OF_DATASET)
    found = read_npz(path, (), DataError, optional=everything)
    if "x" in found and "y" in found and not set(SPLIT) & set(found):
        return _in_one_piece(name, path, found, reading, seed)
    if reading.test_part is not None:
        raise ArgumentError(
            f"test_part must go with data in one piece, the arrays x and y, got {path}"
        )
    missing = [array for array in SPLIT if array not in found]
    if missing:
        raise DataError(f"{path} must hold the arrays {list(SPLIT)}, missing {missing}")
    there: dict[str, Any] = {n: found[n] for n in ("strata_train",) if n in found}
    if "site_test" in found and "site_train" not in found:
        raise DataError(f"{path} must hold site_train beside site_test, got the latter alone")
    if "site_train" in found:
        of_test = found.get("site_test", found["site_train"][:0])
        numbered = sites.numbered(f"{path}: site_train", found["site_train"], of_test)
        there |= dict(zip(("sites", *SITES), numbered, strict=True))
        if "site_test" not in found:
            del there["site_test"]
    arrays: dict[str, Any] = {array: found[array] for array in SPLIT}
    return Dataset(name, **arrays, **there, **_about(path, found))


def _about(path: Path, found: Arrays) -> dict[str, Any]:
    """The names of inputs and the encodings, if the file has them."""
    about: dict[str, Any] = {}
    if "columns" in found:
        about["columns"] = tuple(str(name) for name in found["columns"].ravel())
    if "encodings" in found:
        try:
            about["encodings"] = dict(json.loads(str(found["encodings"])))
        except (ValueError, TypeError, RecursionError):
            raise DataError(f"{path}: encodings must be a JSON object") from None
    return about


def _in_one_piece(name: str, path: Path, found: Arrays, reading: Reading, seed: int) -> Dataset:
    x, y = found["x"], found["y"]
    n = len(y) if y.ndim else 0
    if x.ndim < 1 or len(x) != n or not n:
        raise DataError(f"{path}: x and y must have the same length, at least one, got {x.shape} "
                        f"and {y.shape}")  # fmt: skip
    site: IntArray = np.zeros(n, np.int64)
    there: dict[str, Any] = {}
    if "site" in found:
        there["sites"], site, _ = sites.numbered(f"{path}: site", found["site"], found["site"][:0])
        if len(site) != n:
            raise DataError(f"{path}: site must have an entry for each of {n}, got {len(site)}")
    test = np.zeros(n, np.bool_)
    if reading.test_part is not None:
        strata = np.zeros(n, np.int64)
        if y.ndim == 1 and y.dtype.kind in "iub":
            strata = np.unique(y, return_inverse=True)[1].astype(np.int64)
        test = splits.drawn(reading.test_part, site, strata, seed=seed)
        if not test.any():
            raise DataError(f"test_part must leave test examples, got {reading.test_part:g} of {n}")
    if there:
        there |= {"site_train": site[~test], "site_test": site[test]}
    if "strata" in found:
        groups = found["strata"]
        if groups.shape != (n,):
            raise DataError(
                f"{path}: strata must have an entry for each of {n} examples, got shape "
                f"{groups.shape}"
            )
        there["strata_train"] = groups[~test]
    return Dataset(name, x[~test], y[~test], x[test], y[test], **there, **_about(path, found))


def save(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a dataset as .npz, with all that is known of it: studies read it from there."""
    path = checks.path("path", path)
    if path.suffix != ".npz":
        raise ArgumentError(f"path must end in .npz, got {path}")
    arrays = {
        one.name: np.asarray(value)
        for one in fields(dataset)
        if one.name.endswith(("_train", "_test"))
        and (value := getattr(dataset, one.name)) is not None
    }
    for split in (name for name in SITES if name in arrays):
        arrays[split] = np.array(dataset.sites)[arrays[split]]
    if dataset.columns:
        arrays["columns"] = np.array(dataset.columns)
    if dataset.encodings:
        arrays["encodings"] = np.array(json.dumps(dataset.encodings))
    try:
        with path.open("wb") as file:
            write_npz(file, arrays)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error}") from None
