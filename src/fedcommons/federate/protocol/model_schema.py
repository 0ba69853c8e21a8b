"""A model as named arrays, and its trained arrays as one vector: estimators know vectors only."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.refusals import AnswerRefused

NamedArrays = Mapping[str, npt.NDArray[Any]]

# As torch's normalisation layers name them.
RUNNING_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True, slots=True)
class ModelSchema:
    """The names, shapes and types of a model's arrays, in order.

    Floating-point arrays are trained; integers and booleans (counters, masks) stay as they are, and
    so do running statistics: each site has its own.
    """

    arrays: tuple[tuple[str, tuple[int, ...], str], ...]

    @classmethod
    def of(cls, model: NamedArrays) -> ModelSchema:
        for name, array in model.items():
            check_type(name, str(array.dtype))
        return cls(tuple((name, tuple(a.shape), str(a.dtype)) for name, a in model.items()))

    def first_difference(self, other: ModelSchema) -> str:
        """The first array that differs from the other schema, in words."""
        pairs = itertools.zip_longest(self.arrays, other.arrays)
        mine, theirs = next(pair for pair in pairs if pair[0] != pair[1])
        return f"{_in_words(mine)} instead of {_in_words(theirs)}"

    @property
    def running_statistics(self) -> list[str]:
        """Arrays that torch computes from batches: they are no gradients' to change."""
        return [name for name, _, _ in self.arrays if is_running_statistic(name)]

    @property
    def untrained(self) -> list[str]:
        """Arrays that stay as they are."""
        return [name for name, _, dtype in self.arrays if not is_trained(name, dtype)]

    @property
    def n_params(self) -> int:
        """P, the number of trained parameters."""
        return sum(
            math.prod(shape) for name, shape, dtype in self.arrays if is_trained(name, dtype)
        )

    @property
    def precision(self) -> np.dtype[Any]:
        """The type in which no trained array loses anything: float32, or what is wider."""
        trained = [dtype for name, _, dtype in self.arrays if is_trained(name, dtype)]
        return np.result_type(np.float32, *trained)

    def vector(self, model: NamedArrays, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """The trained arrays one after another, in one type; refused if they do not fit."""
        found = np.empty(self.n_params, dtype)
        at = 0
        for part in self.trained(model):
            found[at : at + part.size] = part.ravel()
            at += part.size
        return found

    def trained(self, model: NamedArrays) -> list[npt.NDArray[Any]]:
        """The trained arrays, as they are; refused if they do not fit."""
        parts = []
        if tuple(model) != tuple(name for name, _, _ in self.arrays):
            raise AnswerRefused("the arrays have other names than the model's")
        for name, shape, dtype in self.arrays:
            if not is_trained(name, dtype):
                continue
            array = model[name]
            if array.shape != shape or array.dtype.kind != "f":
                raise AnswerRefused("the arrays have other shapes or types than the model's")
            parts.append(array)
        return parts

    def model(
        self, vector: npt.NDArray[np.floating[Any]], untrained: NamedArrays
    ) -> dict[str, npt.NDArray[Any]]:
        """The model with these trained values; the other arrays are taken from `untrained`."""
        found, at = {}, 0
        for name, shape, dtype in self.arrays:
            if not is_trained(name, dtype):
                found[name] = untrained[name]
                continue
            size = int(np.prod(shape))
            found[name] = vector[at : at + size].astype(dtype).reshape(shape)
            at += size
        return found


def digest_of(arrays: NamedArrays) -> bytes:
    """A digest of named arrays: whoever hands them on can be found to have changed them."""
    found = hashlib.sha256()
    for name, array in arrays.items():
        found.update(repr((name, str(array.dtype), array.shape)).encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()


def check_type(name: str, dtype: str) -> None:
    """Refuse an array that is neither trained nor passed through."""
    if _kind(dtype) not in ("f", "i", "u", "b"):
        raise FederationError(
            "the arrays must be floating-point, which are trained, or integers or booleans, "
            f"which are not, got {name} of type {dtype}"
        )


def _in_words(array: tuple[str, tuple[int, ...], str] | None) -> str:
    return "nothing" if array is None else f"{array[0]} ({array[2]}, shape {array[1]})"


def is_trained(name: str, dtype: str) -> bool:
    """Whether an array of this name and type is trained by gradients."""
    return _kind(dtype) == "f" and not is_running_statistic(name)


def is_running_statistic(name: str) -> bool:
    """Whether an array of this name is computed from batches."""
    return name.split(".")[-1] in RUNNING_STATISTICS


def _kind(dtype: str) -> str:
    """NumPy's letter for a type; empty if NumPy has no such type."""
    try:
        return np.dtype(dtype).kind
    except TypeError:
        return ""
