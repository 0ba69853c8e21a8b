"""Answers on the server's disk: an estimate needs all of them, memory has room for a few.

An answer is a row of P numbers, kept in the precision in which it came. Rows go to the end of the
newest file until that has `FILE_BYTES`: an answer of a large model has a file of its own, and a
thousand small ones share one. Files have ascending numbers. What a durable checkpoint names is
never changed, so that whatever is written later may be lost, or swept away, at any moment.

A file that the next checkpoint does not name any more gets a new number and is written over: the
system finds the room for new files at a tenth of the speed at which it fills old ones.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable

FILE_BYTES = 16 << 20
CACHED_BYTES = 1 << 20  # as much of an answer as a processor's cache holds while it is worked on
Values = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Row:
    """Where an answer lies: the number of its file, its place in there, its bytes' checksum."""

    file: int
    place: int
    checksum: int


class AnswerFiles:
    """The answers of one training. Only the rows that its newest checkpoint names are durable."""

    def __init__(self, folder: Path, n_params: int, dtype: npt.DTypeLike) -> None:
        self.folder, self.n_params, self.dtype = folder, n_params, np.dtype(dtype)
        self.row_bytes = n_params * self.dtype.itemsize
        self._newest = max(map(_number, self._paths()), default=0)
        self._n_rows = 0  # in the newest file, if it was begun by this process
        self._fresh: set[int] = set()  # files that are not known to be on the disk yet
        self._spare: list[Path] = []  # files that nothing names, to be written over

    def path(self, file: int) -> Path:
        return self.folder / f"{file:06d}.{self.dtype.name}"

    def _paths(self) -> list[Path]:
        return list(self.folder.glob("[0-9]*.float*"))

    # Writing

    def put(self, parts: Iterable[npt.NDArray[Any]]) -> Row:
        """Keep an answer: its parts one after another, P numbers in all."""
        row = self._next()
        checksum, at = 0, row.place * self.row_bytes
        with durable.naming(self.path(row.file), "written"), self._open(row.file) as file:
            file.seek(at)
            for part in parts:
                content = np.ascontiguousarray(part, self.dtype).data.cast("B")
                for start in range(0, len(content), CACHED_BYTES):
                    some = content[start : start + CACHED_BYTES]
                    checksum = zlib.crc32(some, checksum)
                    file.write(some)
        return Row(row.file, row.place, checksum)

    def _open(self, file: int) -> Any:
        descriptor = os.open(self.path(file), os.O_RDWR | os.O_CREAT, 0o600)
        return os.fdopen(descriptor, "r+b", buffering=0)

    def _next(self) -> Row:
        """The row after the last one; a file that a checkpoint may name is never gone on with."""
        durable.make_folder(self.folder)
        if self._newest not in self._fresh or self._n_rows * self.row_bytes >= FILE_BYTES:
            self._newest, self._n_rows = self._newest + 1, 0
            self._fresh.add(self._newest)
            if self._spare:
                path = self.path(self._newest)
                with durable.naming(path, "written"):
                    self._spare.pop().rename(path)
        self._n_rows += 1
        return Row(self._newest, self._n_rows - 1, 0)

    def change(self, row: Row, start: int, values: Values) -> Row:
        """Write over a part of a row that is not durable yet: parts in their order, until all is.

        The checksum of the row that is returned is that of all up to here.
        """
        content = np.ascontiguousarray(values, self.dtype)
        with durable.naming(self.path(row.file), "written"), self._open(row.file) as file:
            file.seek(row.place * self.row_bytes + start * self.dtype.itemsize)
            file.write(content.data)
        return replace(row, checksum=zlib.crc32(content.data, row.checksum if start else 0))

    # Reading

    def read(self, row: Row, start: int, stop: int, into: Values | None = None) -> Values:
        """The numbers [start, stop) of a row, in the beginning of an array if one is given."""
        path = self.path(row.file)
        at = row.place * self.row_bytes + start * self.dtype.itemsize
        found: Values = np.empty(stop - start, self.dtype) if into is None else into[: stop - start]
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(at)
                n_bytes = file.readinto(found.data.cast("B"))
        except OSError as error:
            raise FederationError(
                f"{path} is damaged: {error.strerror or error}; it holds an answer that the "
                "checkpoint beside it names"
            ) from None
        if n_bytes != found.nbytes:
            raise FederationError(
                f"{path} is damaged: it must hold {row.place + 1} rows of {self.row_bytes} bytes "
                f"or more, got {path.stat().st_size} bytes"
            )
        return found

    def steps(self) -> Iterator[tuple[int, int]]:
        """Where a row is taken apart: (start, stop) of what fits into a processor's cache."""
        step = max(CACHED_BYTES // self.dtype.itemsize, 1)
        for start in range(0, self.n_params, step):
            yield start, min(start + step, self.n_params)

    def _parts(self, row: Row) -> Iterator[Values]:
        """All of a row; each part is there until the next one is."""
        buffer: Values = np.empty(max(CACHED_BYTES // self.dtype.itemsize, 1), self.dtype)
        for start, stop in self.steps():
            yield self.read(row, start, stop, buffer)

    def scaled(self, row: Row, factor: float) -> Row:
        """An answer that is not durable yet, times a number."""
        for start, stop in self.steps():
            part = self.read(row, start, stop)
            row = self.change(row, start, np.asarray(part * factor, self.dtype))
        return row

    def largest(self, row: Row) -> float:
        """The largest of its numbers, whatever their signs."""
        return max((float(np.abs(part).max()) for part in self._parts(row)), default=0.0)

    def check(self, row: Row) -> None:
        """Raise if a row is not what was written."""
        checksum = 0
        for part in self._parts(row):
            checksum = zlib.crc32(part.data, checksum)
        if checksum != row.checksum:
            raise FederationError(
                f"{self.path(row.file)} is damaged: row {row.place} is not what was written"
            )

    # Keeping and clearing

    def settle(self, rows: Sequence[Row], vacate: Set[int] = frozenset()) -> list[Row]:
        """These rows on the disk, where some may have moved: where they are, in the same order.

        A file of which less than half is in use gives up what it holds, so that the files together
        stay below twice what is in use; and so do those to `vacate`, since they hold what is to go.
        """
        used = Counter(row.file for row in rows)
        left = {
            file
            for file, n in used.items()
            if file in vacate
            or (file not in self._fresh and 2 * n * self.row_bytes < self._size(file))
        }
        settled = [self.put(self._parts(row)) if row.file in left else row for row in rows]
        fresh = sorted(self._fresh & {row.file for row in settled})
        if self._newest in fresh:  # it may have been longer before it was written over
            with durable.naming(self.path(self._newest), "written"):
                os.truncate(self.path(self._newest), self._n_rows * self.row_bytes)
        if fresh:
            with durable.point("server.answers"):
                for file in fresh:
                    durable.sync_file(self.path(file))
                durable.sync_folder(self.folder)
        self._fresh.clear()
        return settled

    def _size(self, file: int) -> int:
        path = self.path(file)
        with durable.naming(path, "read"):
            return path.stat().st_size

    def sweep(self, rows: Iterable[Row], *, reuse: bool = False) -> None:
        """Let go of the files that hold none of these rows, those of a durable checkpoint.

        They are removed, or kept to `reuse` them. Where a process dies in between, what it leaves
        behind is removed the next time.
        """
        used = {row.file for row in rows}
        unused = [path for path in self._paths() if _number(path) not in used]
        self._spare = unused if reuse else []
        if not reuse:
            _remove(unused)
        self._fresh &= used

    def withdraw(self, rows: Iterable[Row]) -> None:
        """Remove what was put since the last checkpoint, but for the files of these rows."""
        gone = self._fresh - {row.file for row in rows}
        _remove(map(self.path, gone))
        self._fresh -= gone


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with durable.naming(path, "removed"):
            path.unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name.split(".")[0])
