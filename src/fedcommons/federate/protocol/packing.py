"""Examples as bytes, as they go into an envelope: no pickle, every length checked."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.federate.protocol.example_schema import is_class_number
from fedcommons.federate.protocol.refusals import EnvelopeRefused

HEAD = struct.Struct("<4sI")
ARRAY = struct.Struct("<8sB")  # type and number of dimensions; the dimensions follow
CLASS_NUMBERS, ANY_LABELS = b"FCP1", b"FCP2"  # what labels are: the second describes them
MOST_DIMENSIONS = 8
DTYPES = {str(np.dtype(kind)): np.dtype(kind).newbyteorder("<") for kind in "?bBhHiIqQefd"}


@dataclass(frozen=True, slots=True)
class SharedExamples:
    """Some of a site's shareable examples: their share numbers, labels and inputs."""

    numbers: IntArray
    y: npt.NDArray[Any]
    x: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.numbers)

    def select(self, rows: npt.NDArray[Any]) -> SharedExamples:
        return SharedExamples(self.numbers[rows], self.y[rows], self.x[rows])

    def pack(self) -> bytes:
        """A header (count, type and shape of inputs), then share numbers, labels and inputs.

        Labels that are no class numbers have their type and shape in the header, too.
        """
        plain = is_class_number(self.y.dtype, self.y.shape[1:])
        return b"".join(
            (
                HEAD.pack(CLASS_NUMBERS if plain else ANY_LABELS, len(self)),
                _described(self.x),
                b"" if plain else _described(self.y),
                self.numbers.astype("<i8").tobytes(),
                _values(self.y),
                _values(self.x),
            )
        )


def unpack(data: bytes) -> SharedExamples:
    """Read what `pack` wrote; refuse bytes whose length does not fit their header."""
    if len(data) < HEAD.size:
        raise EnvelopeRefused("a packed chunk must have a header")
    magic, n = HEAD.unpack_from(data)
    if magic not in (CLASS_NUMBERS, ANY_LABELS):
        raise EnvelopeRefused("a packed chunk must have a valid header")
    x_dtype, x_shape, at = _description(data, HEAD.size)
    y_dtype: np.dtype[Any] = DTYPES["int64"]
    y_shape: tuple[int, ...] = ()
    if magic == ANY_LABELS:
        y_dtype, y_shape, at = _description(data, at)
        if is_class_number(y_dtype, y_shape):  # each content has one form
            raise EnvelopeRefused("a packed chunk must have a valid header")
    y_at = at + 8 * n
    x_at = y_at + n * y_dtype.itemsize * math.prod(y_shape)  # Python's integers do not overflow
    if len(data) != x_at + n * x_dtype.itemsize * math.prod(x_shape):
        raise EnvelopeRefused("a packed chunk must be as long as its header says")
    return SharedExamples(
        np.frombuffer(data, "<i8", n, at).astype(np.int64),
        _array(data, y_dtype, (n, *y_shape), y_at).astype(y_dtype.newbyteorder("=")),
        _array(data, x_dtype, (n, *x_shape), x_at),
    )


def _described(array: npt.NDArray[Any]) -> bytes:
    """The type and shape of one example's part."""
    shape = array.shape[1:]
    return ARRAY.pack(str(array.dtype).encode(), len(shape)) + struct.pack(
        f"<{len(shape)}I", *shape
    )


def _values(array: npt.NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array, DTYPES[str(array.dtype)]).tobytes()


def _description(data: bytes, at: int) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """A type and a shape that `_described` wrote, and where they end."""
    if len(data) < at + ARRAY.size:
        raise EnvelopeRefused("a packed chunk must have a header")
    name, n_dims = ARRAY.unpack_from(data, at)
    dtype = DTYPES.get(name.rstrip(b"\0").decode("ascii", "replace"))
    at += ARRAY.size
    if dtype is None or n_dims > MOST_DIMENSIONS or len(data) < at + 4 * n_dims:
        raise EnvelopeRefused("a packed chunk must have a valid header")
    shape = struct.unpack_from(f"<{n_dims}I", data, at)
    if 0 in shape:
        raise EnvelopeRefused("a packed chunk must be as long as its header says")
    return dtype, shape, at + 4 * n_dims


def _array(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], at: int) -> npt.NDArray[Any]:
    size = math.prod(shape)
    if dtype.kind == "b" and (np.frombuffer(data, np.uint8, size, at) > 1).any():
        raise EnvelopeRefused("a packed boolean must be 0 or 1")
    try:
        return np.frombuffer(data, dtype, size, at).reshape(shape)
    except ValueError:  # without examples the length does not limit the shape
        raise EnvelopeRefused("a packed chunk must have a shape that an array can have") from None
