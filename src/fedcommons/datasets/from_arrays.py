"""Datasets as NumPy's .npz files: reading them, and writing one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import IntArray
from fedcommons.datasets import class_names, sites, splits
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
    about = _about(path, found)
    if arrays["y_train"].dtype.kind == "U":
        arrays["y_train"], arrays["y_test"] = _named(
            path, arrays["y_train"], arrays["y_test"], about
        )
    return Dataset(name, **arrays, **there, **about)


def _named(
    path: Path, train: npt.NDArray[Any], test: npt.NDArray[Any], about: dict[str, Any]
) -> tuple[IntArray, IntArray]:
    """Labels that are words as numbers; what they mean is kept."""
    for part in (train, test):
        if part.ndim != 1 or part.dtype.kind != "U":
            raise DataError(
                f"{path}: labels must be names of classes in all of y, (examples,), or nowhere, "
                f"got dtype {part.dtype} of shape {part.shape}"
            )

    def refused(row: int, value: str) -> DataError:
        return DataError(
            f"{path}: test examples must have labels that training examples have, too, got "
            f"{value!r} in example {row} of the test split"
        )

    values, y_train, y_test = class_names.numbered(train, test, refused)
    of_label = {"label": {"column": "y", "values": values}}
    about["encodings"] = {**about.get("encodings", {}), **of_label}
    return y_train, y_test


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
    _refuse_gaps(path, x=x, y=y)  # by their numbers in the file, not in a split
    site: IntArray = np.zeros(n, np.int64)
    there: dict[str, Any] = {}
    if "site" in found:
        there["sites"], site, _ = sites.numbered(f"{path}: site", found["site"], found["site"][:0])
        if len(site) != n:
            raise DataError(f"{path}: site must have an entry for each of {n}, got {len(site)}")
    test = np.zeros(n, np.bool_)
    if reading.test_part is not None:
        strata = np.zeros(n, np.int64)
        if y.ndim == 1 and y.dtype.kind in "iubU":
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
    about, (y_train, y_test) = _about(path, found), (y[~test], y[test])
    if y.dtype.kind == "U":
        y_train, y_test = _named(path, y_train, y_test, about)
    return Dataset(name, x[~test], y_train, x[test], y_test, **there, **about)


def _refuse_gaps(path: Path, **arrays: npt.NDArray[Any]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
            raise DataError(
                f"{path}: {name} must be finite, got a missing value in example {finite.argmin()}"
            )


def stacked(values: Sequence[Any], where: str) -> npt.NDArray[Any]:
    """Arrays of one shape as one: images, vectors or numbers, in the dataset's order."""
    arrays = [np.asarray(value) for value in values]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise DataError(f"{where} must be of one shape, got {sorted(shapes)[:3]}")
    try:
        return np.stack(arrays) if arrays else np.empty(0)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} must be of one kind: {error}") from None


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
