"""Rows of numbers that can be read in parts, from memory or from a file."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.errors import DataError


class Rows(Protocol):
    """Examples that can be read in parts."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def block(self, start: int, stop: int) -> npt.NDArray[Any]: ...

    def take(self, rows: IntArray) -> npt.NDArray[Any]: ...


class ArrayRows:
    """Rows of an array in memory."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def block(self, start: int, stop: int) -> npt.NDArray[Any]:
        return self.array[start:stop]

    def take(self, rows: IntArray) -> npt.NDArray[Any]:
        return self.array[rows]


class FileRows:
    """Rows that follow one another in a file.

    They are read and not mapped, because mapped pages count as memory. If the file is replaced or
    written while it is in use, the next read raises an error.
    """

    def __init__(
        self, path: Path, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self.path, self.offset, self.dtype, self.shape = path, offset, dtype, shape
        self.row_bytes = dtype.itemsize * math.prod(shape[1:])
        self._version = version_of(path.stat())
        if path.stat().st_size < offset + shape[0] * self.row_bytes:
            raise DataError(f"{path} is shorter than its header says")

    def block(self, start: int, stop: int) -> npt.NDArray[Any]:
        out = np.empty((max(0, min(stop, self.shape[0]) - start), *self.shape[1:]), self.dtype)
        with self._reading() as file:
            self._fill(file, out, start)
        return out

    def take(self, rows: IntArray) -> npt.NDArray[Any]:
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        with self._reading() as file:
            for place, row in enumerate(rows.tolist()):
                self._fill(file, out[place : place + 1], row)
        return out

    @contextlib.contextmanager
    def _reading(self) -> Iterator[int]:
        try:
            file = os.open(self.path, os.O_RDONLY)
            try:
                yield file
                unchanged = version_of(os.fstat(file)) == self._version
            finally:
                os.close(file)
        except OSError as error:
            raise DataError(f"{self.path} cannot be read: {error}") from None
        if not unchanged:
            raise DataError(f"{self.path} must not change while it is in use")

    def _fill(self, file: int, out: npt.NDArray[Any], row: int) -> None:
        """Fill an array with consecutive rows, beginning with `row`."""
        left = out.reshape(-1).view(np.uint8).data
        at = self.offset + row * self.row_bytes
        while left:
            n = os.preadv(file, [left], at)
            if n == 0:
                raise DataError(f"{self.path} is shorter than its header says")
            left, at = left[n:], at + n


def version_of(stat: os.stat_result) -> tuple[int, ...]:
    """Differs whenever the content may differ: nobody can set back the time of the last change."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
