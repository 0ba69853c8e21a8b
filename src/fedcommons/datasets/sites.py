"""The sites that data come from: their names, and which site each example is of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.errors import DataError


def numbered(
    where: str, train: npt.NDArray[np.generic], test: npt.NDArray[np.generic]
) -> tuple[tuple[str, ...], IntArray, IntArray]:
    """The names of the sites in sorted order, and the number of each example's: train, test.

    `where` is what errors call the column or array. There are at least two sites, and each has
    examples to train on.
    """
    train, test = (_values(where, array) for array in (train, test))
    names, codes = np.unique(np.concatenate([train, test]), return_inverse=True)
    codes = codes.astype(np.int64)
    if len(names) < 2:
        raise DataError(f"{where} must name at least two sites, got {[str(n) for n in names]}")
    counts = np.bincount(codes[: len(train)], minlength=len(names))
    for name, count in zip(names, counts, strict=True):
        if not count:
            raise DataError(
                f"{where} must name sites that have training examples, got none of "
                f"{str(name)!r}; leave its test examples out, or let some of them train"
            )
    return tuple(str(name) for name in names), codes[: len(train)], codes[len(train) :]


def _values(where: str, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    if array.ndim != 1:
        raise DataError(f"{where} must have one dimension, got shape {array.shape}")
    if array.dtype.kind not in "iuUb":
        raise DataError(f"{where} must be whole numbers or names, got dtype {array.dtype}")
    if array.dtype.kind == "U" and (array == "").any():
        raise DataError(
            f"{where} must name each example's site, got an empty name in example "
            f"{int(np.argmax(array == ''))}"
        )
    return array
