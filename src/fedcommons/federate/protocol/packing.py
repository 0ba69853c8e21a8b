"""Examples as bytes, as they go into an envelope: no pickle, every length checked."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.federate.protocol.refusals import EnvelopeRefused

MAGIC = b"FCP1"
HEAD = struct.Struct("<4sI8sB")
DTYPES = {str(np.dtype(kind)): np.dtype(kind).newbyteorder("<") for kind in "?bBhHiIqQefd"}


@dataclass(frozen=True, slots=True)
class SharedExamples:
    """Some of a site's shareable examples: their share numbers, labels and inputs."""

    numbers: IntArray
    y: IntArray
    x: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.numbers)

    def select(self, rows: npt.NDArray[Any]) -> SharedExamples:
        return SharedExamples(self.numbers[rows], self.y[rows], self.x[rows])

    def pack(self) -> bytes:
        """A header (count, dtype, shape of an example), then share numbers, labels and inputs."""
        shape = self.x.shape[1:]
        dtype = DTYPES[str(self.x.dtype)]
        return b"".join(
            (
                HEAD.pack(MAGIC, len(self), str(self.x.dtype).encode(), len(shape)),
                struct.pack(f"<{len(shape)}I", *shape),
                self.numbers.astype("<i8").tobytes(),
                self.y.astype("<i8").tobytes(),
                np.ascontiguousarray(self.x, dtype).tobytes(),
            )
        )


def unpack(data: bytes) -> SharedExamples:
    """Read what `pack` wrote; refuse bytes whose length does not fit their header."""
    if len(data) < HEAD.size:
        raise EnvelopeRefused("a packed chunk must have a header")
    magic, n, name, n_dims = HEAD.unpack_from(data)
    dtype = DTYPES.get(name.rstrip(b"\0").decode("ascii", "replace"))
    at = HEAD.size + 4 * n_dims
    if magic != MAGIC or dtype is None or n_dims > 8 or len(data) < at:
        raise EnvelopeRefused("a packed chunk must have a valid header")
    shape = struct.unpack_from(f"<{n_dims}I", data, HEAD.size)
    size = n * math.prod(shape)  # Python's integers do not overflow
    if 0 in shape or len(data) != at + 16 * n + size * dtype.itemsize:
        raise EnvelopeRefused("a packed chunk must be as long as its header says")
    if dtype.kind == "b" and (np.frombuffer(data, np.uint8, size, at + 16 * n) > 1).any():
        raise EnvelopeRefused("a packed boolean must be 0 or 1")
    try:
        x = np.frombuffer(data, dtype, size, at + 16 * n).reshape(n, *shape)
    except ValueError:  # without examples the length does not limit the shape
        raise EnvelopeRefused("a packed chunk must have a shape that an array can have") from None
    return SharedExamples(
        np.frombuffer(data, "<i8", n, at).astype(np.int64),
        np.frombuffer(data, "<i8", n, at + 8 * n).astype(np.int64),
        x,
    )
