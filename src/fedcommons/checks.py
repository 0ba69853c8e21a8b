"""Checks of arguments at the public boundary.

Each function takes an argument with the name its caller knows it by, and returns it in the one form
that the kernels expect, or raises `ArgumentError` with the name, the rule and the value.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import ArgumentError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def integer(name: str, value: object, *, low: int, high: int | None = None) -> int:
    """An integer in [low, high] (high inclusive; none means no upper end)."""
    rule = f"{name} must be an integer " + (
        f">= {low}" if high is None else f"in {{{low}, ..., {high}}}"
    )
    if isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{rule}, got {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(f"{rule}, got {value!r}") from None
    if number < low or (high is not None and number > high):
        raise ArgumentError(f"{rule}, got {number}")
    return number


def n_clients(value: object) -> int:
    return integer("n_clients", value, low=1)


def copies(value: object, n_clients: int) -> int:
    """The replication factor d: an integer in {0, ..., N-1}."""
    return integer("copies", value, low=0, high=n_clients - 1)


def real(name: str, value: object, *, low: float, high: float = np.inf) -> float:
    """A finite number in [low, high]."""
    end = "]" if np.isfinite(high) else ")"
    number = _real_array(name, value)
    if number.ndim != 0:
        raise ArgumentError(f"{name} must be one number, got shape {number.shape}")
    if not (low <= number <= high) or not np.isfinite(number):
        raise ArgumentError(f"{name} must be in [{low:g}, {high:g}{end}, got {number.item():g}")
    return float(number)


def rng(value: object) -> np.random.Generator:
    if not isinstance(value, np.random.Generator):
        raise ArgumentError(
            f"rng must be a numpy.random.Generator, got {type(value).__name__}; "
            "make one with numpy.random.default_rng(seed)"
        )
    return value


def labels(value: object, n_classes: int | None = None) -> tuple[IntArray, int]:
    """Labels as (M,) integers in {0, ..., L-1}, and L (by default the largest label plus 1)."""
    array = indices("labels", value, below=None if n_classes is None else n_classes)
    if n_classes is None:
        return array, int(array.max()) + 1 if array.size else 1
    return array, integer("n_classes", n_classes, low=1)


def owner(value: object, n_clients: int, length: int | None = None) -> IntArray:
    """The owner of each example: (M,) integers in {0, ..., N-1}."""
    return indices("owner", value, below=n_clients, length=length)


def indices(
    name: str, value: object, *, below: int | None = None, length: int | None = None
) -> IntArray:
    """A 1-d array of integers in {0, ..., below-1}."""
    array = np.asarray(value)
    if array.ndim != 1:
        raise ArgumentError(f"{name} must have one dimension, got shape {array.shape}")
    if array.size == 0:
        array = array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise ArgumentError(f"{name} must be integers, got dtype {array.dtype}")
    same_length(name, array, length)
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < 0:
            raise ArgumentError(f"{name} must be >= 0, got {low}")
        if below is not None and high >= below:
            raise ArgumentError(f"{name} must be in {{0, ..., {below - 1}}}, got {high}")
    return array.astype(np.int64, copy=False)


def counts(counts: object, shareable_counts: object) -> tuple[IntArray, IntArray]:
    """Label counts (N, L), and how many of them are shareable, of the same shape."""
    arrays = []
    for name, value in (("counts", counts), ("shareable_counts", shareable_counts)):
        array = np.asarray(value)
        if array.ndim != 2 or 0 in array.shape:
            raise ArgumentError(f"{name} must have shape (clients, classes), got {array.shape}")
        arrays.append(indices(name, array.ravel()).reshape(array.shape))
    total, shareable = arrays
    if total.shape != shareable.shape:
        raise ArgumentError(
            f"shareable_counts must have the shape {total.shape}, got {shareable.shape}"
        )
    if (shareable > total).any():
        client, label = np.argwhere(shareable > total)[0]
        raise ArgumentError(
            f"shareable_counts must not exceed counts ({total[client, label]} of label {label} at "
            f"client {client}), got {shareable[client, label]}"
        )
    return total, shareable


def mask(name: str, value: object, length: int) -> BoolArray:
    """A boolean mask over examples; integers are refused, since they could mean indices."""
    array = np.asarray(value)
    if array.dtype != np.bool_:
        raise ArgumentError(f"{name} must be a boolean mask, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ArgumentError(f"{name} must have one dimension, got shape {array.shape}")
    same_length(name, array, length)
    return array


def same_length(name: str, array: npt.NDArray[Any], length: int | None) -> None:
    if length is not None and len(array) != length:
        raise ArgumentError(f"{name} must have {length} entries, got {len(array)}")


def straggler_prob(value: object, n_clients: int) -> FloatArray:
    """p as (N,): one number for all clients or one for each, every one in [0, 1)."""
    array = per_entry("straggler_prob", value, n_clients, "client")
    bad = ~((array >= 0) & (array < 1))
    if bad.any():
        raise ArgumentError(f"straggler_prob must be in [0, 1), got {array[bad][0]:g}")
    return array


def proportions(name: str, value: object, length: int, each: str) -> FloatArray:
    """Proportions in [0, 1], as (length,): one number for all or one for each."""
    array = per_entry(name, value, length, each)
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        raise ArgumentError(f"{name} must be in [0, 1], got {array[bad][0]:g}")
    return array


def per_entry(name: str, value: object, length: int, each: str) -> FloatArray:
    """One number for all of `length` entries, or one for each."""
    array = _real_array(name, value)
    if array.shape not in ((), (length,)):
        raise ArgumentError(
            f"{name} must be one number or one per {each} ({length}), got shape {array.shape}"
        )
    return np.broadcast_to(array, (length,))


def finite(name: str, value: object, *, ndim: int | None = None) -> FloatArray:
    """Finite real numbers as float64."""
    array = _real_array(name, value)
    if ndim is not None and array.ndim != ndim:
        raise ArgumentError(f"{name} must have {ndim} dimensions, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ArgumentError(f"{name} must be finite, got {array[~np.isfinite(array)][0]:g}")
    return array


def _real_array(name: str, value: object) -> FloatArray:
    array = np.asarray(value)
    if array.dtype == np.bool_ or not (
        np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)
    ):
        raise ArgumentError(f"{name} must be a real number or numbers, got {value!r}")
    return array.astype(np.float64, copy=False)
