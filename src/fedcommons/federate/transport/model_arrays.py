"""A model's arrays as one vector: estimators know vectors only."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from fedcommons.checks import FloatArray
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.refusals import AnswerRefused

RUNNING_STATISTICS = ("running_mean", "running_var")  # as torch's normalisation layers name them


@dataclass(frozen=True, slots=True)
class Layout:
    """The names, shapes and types of a model's arrays.

    Floating ones are trained; integers and booleans (counters, masks) stay as they are.
    """

    arrays: tuple[tuple[str, tuple[int, ...], str], ...]

    @classmethod
    def of(cls, record: ArrayRecord) -> Layout:
        for name, array in record.items():
            if _kind(array.dtype) not in ("f", "i", "u", "b"):
                raise FederationError(
                    f"the arrays must be floating, which are trained, or integers or booleans, "
                    f"which are not, got {name} of type {array.dtype}"
                )
        return cls(tuple((name, tuple(a.shape), str(a.dtype)) for name, a in record.items()))

    def beside(self, other: Layout) -> str:
        """In words, the first array that the other layout has otherwise."""
        pairs = itertools.zip_longest(self.arrays, other.arrays)
        mine, theirs = next(pair for pair in pairs if pair[0] != pair[1])
        return f"{_in_words(mine)} instead of {_in_words(theirs)}"

    @property
    def statistics(self) -> list[str]:
        """Arrays that a torch module keeps of its batches: not trained, though floating."""
        return [name for name, _, _ in self.arrays if name.split(".")[-1] in RUNNING_STATISTICS]

    def vector(self, record: ArrayRecord) -> FloatArray:
        """The trained arrays one after another, in float64; refused if they do not fit."""
        parts = [np.zeros(0)]
        if tuple(record.keys()) != tuple(name for name, _, _ in self.arrays):
            raise AnswerRefused("the arrays have other names than the model's")
        for name, shape, dtype in self.arrays:
            if not _is_trained(dtype):
                continue
            array = numpy_of(record[name])
            if array.shape != shape or array.dtype.kind != "f":
                raise AnswerRefused("the arrays have other shapes or types than the model's")
            parts.append(array.ravel().astype(np.float64))
        return np.concatenate(parts)

    def record(self, vector: FloatArray, others: ArrayRecord) -> ArrayRecord:
        """The arrays of a vector; what is not trained is taken from `others`."""
        found, at = {}, 0
        for name, shape, dtype in self.arrays:
            if not _is_trained(dtype):
                found[name] = others[name]
                continue
            size = int(np.prod(shape))
            found[name] = Array(vector[at : at + size].astype(dtype).reshape(shape))
            at += size
        return ArrayRecord(found)


def numpy_of(array: Array) -> npt.NDArray[Any]:
    """The array's values, read-only. Flower's own reader parses the header anew for each array.

    The record has type and shape too; where the header agrees with them, the rest is the values.
    """
    dtype, data = np.dtype(array.dtype), array.data
    start = 10 + int.from_bytes(data[8:10], "little")
    plain = f"{{'descr': '{dtype.str}', 'fortran_order': False".encode()
    if data[:8] == b"\x93NUMPY\x01\x00" and data[10:start].startswith(plain):
        return np.frombuffer(data, dtype, offset=start).reshape(array.shape)
    return array.numpy()


def _in_words(array: tuple[str, tuple[int, ...], str] | None) -> str:
    return "nothing" if array is None else f"{array[0]} ({array[2]}, shape {array[1]})"


def _is_trained(dtype: str) -> bool:
    return _kind(dtype) == "f"


def _kind(dtype: str) -> str:
    """NumPy's letter for a type; empty if NumPy has no such type."""
    try:
        return np.dtype(dtype).kind
    except TypeError:
        return ""
