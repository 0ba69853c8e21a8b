"""Checks of arguments at the public boundary.

Each function takes an argument with the name its caller knows it by, and returns it in the one form
that the kernels expect, or raises `ArgumentError` with the name, the rule and the value.
"""

from __future__ import annotations

import operator
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import ArgumentError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

MOST_CLIENTS = 2**31 - 1  # a placement stores clients as int32
LARGEST = np.iinfo(np.int64).max


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
    number = integer("n_clients", value, low=1)
    if number > MOST_CLIENTS:
        raise ArgumentError(f"n_clients must be <= {MOST_CLIENTS}, got {number}")
    return number


def path(name: str, value: object) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ArgumentError(f"{name} must be a path, got {value!r}")
    return Path(os.fsdecode(os.fspath(value)))


def copies(value: object, n_clients: int) -> int:
    """The replication factor d: an integer in {0, ..., N-1}."""
    return integer("copies", value, low=0, high=n_clients - 1)


def real(name: str, value: object, *, low: float, high: float = np.inf) -> float:
    """A finite number in [low, high]."""
    end = "]" if np.isfinite(high) else ")"
    number = _one_number(name, value)
    if not (low <= number <= high) or not np.isfinite(number):
        raise ArgumentError(f"{name} must be in [{low:g}, {high:g}{end}, got {number:g}")
    return number


def boolean(name: str, value: object) -> bool:
    """True or False: numbers and words are refused, since "false" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def positive(name: str, value: object) -> float:
    """A finite number > 0."""
    number = _one_number(name, value)
    if not (number > 0 and np.isfinite(number)):
        raise ArgumentError(f"{name} must be > 0 and finite, got {number:g}")
    return number


def rng(value: object) -> np.random.Generator:
    if not isinstance(value, np.random.Generator):
        raise ArgumentError(
            f"rng must be a numpy.random.Generator, got {type(value).__name__}; "
            "make one with numpy.random.default_rng(seed)"
        )
    return value


def labels(value: object, n_classes: int | None = None) -> tuple[IntArray, int]:
    """Labels as (M,) integers in {0, ..., L-1}, and L (by default the largest label plus 1)."""
    if n_classes is not None:
        n_classes = integer("n_classes", n_classes, low=1)
        return indices("labels", value, below=n_classes), n_classes
    array = indices("labels", value)
    return array, int(array.max()) + 1 if array.size else 1


def owner(value: object, n_clients: int, length: int | None = None) -> IntArray:
    """The owner of each example: (M,) integers in {0, ..., N-1}."""
    return indices("owner", value, below=n_clients, length=length)


def indices(
    name: str, value: object, *, below: int | None = None, length: int | None = None
) -> IntArray:
    """A 1-d array of integers in {0, ..., below-1}."""
    array = _array(name, value)
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
        if high > LARGEST:
            raise ArgumentError(f"{name} must be <= {LARGEST}, got {high}")
    return array.astype(np.int64, copy=False)


def counts(counts: object, shareable_counts: object) -> tuple[IntArray, IntArray]:
    """Label counts (N, L), and how many of them are shareable, of the same shape."""
    arrays = []
    for name, value in (("counts", counts), ("shareable_counts", shareable_counts)):
        array = _array(name, value)
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
    array = _array(name, value)
    if array.size == 0:
        array = array.astype(np.bool_)
    if array.dtype != np.bool_:
        raise ArgumentError(f"{name} must be a boolean mask, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ArgumentError(f"{name} must have one dimension, got shape {array.shape}")
    same_length(name, array, length)
    return array


def same_length(name: str, array: npt.NDArray[Any], length: int | None) -> None:
    if length is not None and len(array) != length:
        raise ArgumentError(f"{name} must have {length} entries, got {len(array)}")


def products(value: object, n_examples: int | None = None) -> FloatArray:
    """The scalar products <g_j, g_k> of all pairs of examples, (M, M)."""
    array = finite("products", value, ndim=2)
    size = len(array) if n_examples is None else n_examples
    if array.shape != (size, size):
        raise ArgumentError(f"products must have shape {(size, size)}, got {array.shape}")
    return array


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


def finite(
    name: str,
    value: object,
    *,
    ndim: int | None = None,
    shape: tuple[int, ...] | None = None,
) -> FloatArray:
    """Finite real numbers as float64."""
    array = _real_array(name, value)
    if ndim is not None and array.ndim != ndim:
        raise ArgumentError(f"{name} must have {ndim} dimensions, got shape {array.shape}")
    if shape is not None and array.shape != shape:
        raise ArgumentError(f"{name} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ArgumentError(f"{name} must be finite, got {array[~np.isfinite(array)][0]:g}")
    return array


def _one_number(name: str, value: object) -> float:
    number = _real_array(name, value)
    if number.ndim != 0:
        raise ArgumentError(f"{name} must be one number, got shape {number.shape}")
    return float(number)


def _array(name: str, value: object) -> npt.NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of different lengths, for instance
        raise ArgumentError(f"{name} must be an array: {error}") from None


def _real_array(name: str, value: object) -> FloatArray:
    array = _array(name, value)
    if array.dtype == np.bool_ or not (
        np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)
    ):
        raise ArgumentError(f"{name} must be a real number or numbers, got {value!r}")
    return array.astype(np.float64, copy=False)
