"""A site's own examples: inputs that stay on the disk, labels, and what may be shared."""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import DataError
from fedcommons.federate.packing import DTYPES
from fedcommons.npz import read_npz

BLOCK_BYTES = 16 << 20
IN_MEMORY = 64 << 20  # a compressed array up to this size is simply read


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
    """Rows that lie one after another in a file. Read, not mapped: mapped pages count as memory."""

    def __init__(
        self, path: Path, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self.path, self.offset, self.dtype, self.shape = path, offset, dtype, shape
        self.row_bytes = dtype.itemsize * int(np.prod(shape[1:]))

    def block(self, start: int, stop: int) -> npt.NDArray[Any]:
        n = max(0, min(stop, self.shape[0]) - start)
        with self.path.open("rb") as file:
            file.seek(self.offset + start * self.row_bytes)
            data = file.read(n * self.row_bytes)
        if len(data) != n * self.row_bytes:
            raise DataError(f"{self.path} is shorter than its header says")
        return np.frombuffer(data, self.dtype).reshape(n, *self.shape[1:])

    def take(self, rows: IntArray) -> npt.NDArray[Any]:
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        flat = out.reshape(len(rows), -1).view(np.uint8)
        with self.path.open("rb") as file:
            for place, row in enumerate(rows.tolist()):
                data = os.pread(file.fileno(), self.row_bytes, self.offset + row * self.row_bytes)
                flat[place] = np.frombuffer(data, np.uint8)
        return out


@dataclass(frozen=True, slots=True)
class SiteData:
    """What a site has.

    Attributes:
        x: inputs, (examples, ...).
        y: (examples,) labels.
        shareable: (examples,) what may leave the site. Everything is private unless marked.
        stamp: changes whenever the source does; empty if only the content can tell.
    """

    x: Rows
    y: IntArray
    shareable: BoolArray
    stamp: str = ""

    @classmethod
    def from_arrays(
        cls, x: npt.ArrayLike, y: npt.ArrayLike, shareable: npt.ArrayLike | None = None
    ) -> SiteData:
        """Examples in memory; without `shareable` all are private."""
        return _checked(ArrayRows(np.asarray(x)), y, shareable, "", "data")

    @property
    def n_examples(self) -> int:
        return len(self.y)

    @property
    def row_bytes(self) -> int:
        """The bytes of one example on the wire: inputs, label and number."""
        return self.x.dtype.itemsize * int(np.prod(self.x.shape[1:])) + 16

    def blocks(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """The inputs in order, in parts of bounded size: (first row, rows)."""
        step = max(1, BLOCK_BYTES // self.row_bytes)
        for start in range(0, self.n_examples, step):
            yield start, self.x.block(start, min(start + step, self.n_examples))


def load_site_data(
    path: str | os.PathLike[str],
    *,
    spool: Path,
    label: str = "label",
    shareable: str = "shareable",
) -> SiteData:
    """Read a site's file.

    - `.npz`: the arrays x, y and, unless all is private, a boolean `shareable`.
    - `.parquet`: feature columns, the column `label` and, unless all is private, a boolean column
      `shareable`.

    Inputs are read where they lie if they can be; compressed ones are unpacked once into the folder
    `spool`, so that memory stays bounded whatever their size.
    """
    path = checks.path("data", path)
    if not path.exists():
        raise DataError(f"data {path} does not exist")
    stat = path.stat()
    stamp = f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ino}"
    spooled = spool / f"{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.rows"
    if path.suffix == ".npz":
        return _from_npz(path, spooled, stamp)
    if path.suffix == ".parquet":
        return _from_parquet(path, spooled, stamp, label, shareable)
    raise DataError(f"data must be .npz or .parquet, got {path}")


def _from_npz(path: Path, spooled: Path, stamp: str) -> SiteData:
    small = read_npz(path, ["y"], DataError)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "x.npy" not in names:
                raise DataError(f"{path} must hold the arrays ['x', 'y'], missing ['x']")
            rows = _npy_member(archive, path, spooled)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as .npz: {error}") from None
    marked = (
        read_npz(path, ["shareable"], DataError)["shareable"] if "shareable.npy" in names else None
    )
    return _checked(rows, small["y"], marked, stamp, str(path))


def _npy_member(archive: zipfile.ZipFile, path: Path, spooled: Path) -> Rows:
    """The array x of an .npz, in place if it is stored plain, else in memory or unpacked."""
    info = archive.getinfo("x.npy")
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else (np.lib.format.read_array_header_2_0)
        )
        shape, fortran, dtype = read(stream)
        head = stream.tell()
        if fortran or dtype.hasobject:
            raise DataError(f"{path}: x must be plain numbers in C order")
        if info.compress_type != zipfile.ZIP_STORED:
            if info.file_size <= IN_MEMORY:
                return ArrayRows(read_npz(path, ["x"], DataError)["x"])
            if not spooled.exists():
                _spool(spooled, iter(lambda: stream.read(1 << 20), b""))
            return FileRows(spooled, 0, dtype, shape)
    with path.open("rb") as file:
        file.seek(info.header_offset)
        local = file.read(30)
        name_length, extra_length = struct.unpack("<HH", local[26:30])
    return FileRows(path, info.header_offset + 30 + name_length + extra_length + head, dtype, shape)


def _spool(path: Path, parts: Iterator[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in path.parent.glob("*.rows"):
        old.unlink()
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _from_parquet(path: Path, spooled: Path, stamp: str, label: str, shareable: str) -> SiteData:
    import pyarrow  # slow to import, and only Parquet needs it
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if label not in names:
                raise DataError(f"{path} must have the label column {label!r}, got {names[:20]}")
            features = [name for name in names if name not in (label, shareable)]
            if not features:
                raise DataError(f"{path} must have feature columns, got {names[:20]}")
            y = file.read([label])[label].to_numpy()
            marked = file.read([shareable])[shareable].to_numpy() if shareable in names else None
            kinds = [file.schema_arrow.field(name).type.to_pandas_dtype() for name in features]
            dtype = np.result_type(*kinds)
            groups = (
                np.column_stack([batch[name].to_numpy(zero_copy_only=False) for name in features])
                .astype(dtype)
                .tobytes()
                for batch in file.iter_batches(batch_size=4096, columns=features)
            )
            if not spooled.exists():
                _spool(spooled, groups)
    except (OSError, TypeError, NotImplementedError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None
    rows = FileRows(spooled, 0, dtype, (len(y), len(features)))
    return _checked(rows, y, marked, stamp, str(path))


def _checked(
    x: Rows, y: npt.ArrayLike, shareable: npt.ArrayLike | None, stamp: str, source: str
) -> SiteData:
    y = np.asarray(y)
    if len(x.shape) < 2 or str(x.dtype) not in DTYPES:
        raise DataError(f"{source}: x must be numbers (examples, ...), got {x.dtype}, {x.shape}")
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or len(y) != x.shape[0]:
        raise DataError(
            f"{source}: y must be one integer label for each of the {x.shape[0]} examples, "
            f"got {y.dtype}, shape {y.shape}"
        )
    if y.size and y.min() < 0:
        raise DataError(f"{source}: y must be labels >= 0, got {y.min()}")
    mask = np.zeros(len(y), np.bool_) if shareable is None else np.asarray(shareable)
    if mask.dtype != np.bool_ or mask.shape != y.shape:
        raise DataError(
            f"{source}: shareable must be boolean, one for each example, "
            f"got {mask.dtype}, shape {mask.shape}"
        )
    return SiteData(x, y.astype(np.int64), mask, stamp)
