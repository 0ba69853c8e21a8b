"""Between Flower's ArrayRecord and a model as named NumPy arrays."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from fedcommons.federate.protocol.model_schema import NamedArrays, check_type

NPY = "numpy.ndarray"  # Flower's name for what an .npy file holds


def model_of(record: ArrayRecord) -> dict[str, npt.NDArray[Any]]:
    """A model that is to be trained; refused if it holds arrays that cannot be."""
    for name, array in record.items():
        check_type(name, array.dtype)
    return arrays_of(record)


def arrays_of(record: ArrayRecord) -> dict[str, npt.NDArray[Any]]:
    return {name: _values(array) for name, array in record.items()}


def record_of(arrays: NamedArrays) -> ArrayRecord:
    return ArrayRecord({name: _array(np.asarray(array)) for name, array in arrays.items()})


def _array(values: npt.NDArray[Any]) -> Array:
    """What Flower's own writer makes of an array, which copies a large one three times."""
    buffer = io.BytesIO()
    flat = np.ascontiguousarray(values).reshape(values.shape)
    np.lib.format.write_array_header_1_0(buffer, np.lib.format.header_data_from_array_1_0(flat))
    data = b"".join((buffer.getvalue(), flat.reshape(-1).view(np.uint8).data))
    return Array(str(values.dtype), tuple(values.shape), NPY, data)


def _values(array: Array) -> npt.NDArray[Any]:
    """The array's values, read-only. Flower's own reader parses the header anew for each array.

    The record has type and shape too; where the header agrees with them, the rest is the values.
    """
    dtype, data = np.dtype(array.dtype), array.data
    start = 10 + int.from_bytes(data[8:10], "little")
    plain = f"{{'descr': '{dtype.str}', 'fortran_order': False".encode()
    if data[:8] == b"\x93NUMPY\x01\x00" and data[10:start].startswith(plain):
        return np.frombuffer(data, dtype, offset=start).reshape(array.shape)
    return array.numpy()
