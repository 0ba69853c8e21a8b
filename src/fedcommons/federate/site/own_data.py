"""A site's own examples: inputs that stay on the disk, labels, and what may be shared."""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import math
import os
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import DataError
from fedcommons.federate.protocol.example_schema import digest_of_columns, layout_of
from fedcommons.federate.protocol.packing import DTYPES
from fedcommons.federate.site.file_rows import ArrayRows, FileRows, Rows, version_of
from fedcommons.federate.site.fingerprints import FINGERPRINT, fingerprints_of
from fedcommons.npz import read_npz
from fedcommons.parquet import index_columns

BLOCK_BYTES = 16 << 20
IN_MEMORY = 64 << 20  # a compressed array up to this size is simply read
COLUMNS_AT_ONCE = 16  # of Parquet: one page of each is in memory, about a megabyte
SPOOL = "spool"  # the folder of a store into which inputs are unpacked
SPOOLED = ".rows"  # how such files end
ALIKE = 0.8  # names of which one may be a misspelling of the other: sharable, not stable


@dataclass(frozen=True, slots=True)
class SiteData:
    """What a site has.

    Attributes:
        x: inputs, (examples, ...).
        y: (examples,) labels.
        shareable: (examples,) what may leave the site. Everything is private unless marked.
        stamp: changes whenever the source does; empty if only the content can tell.
        source: what messages call it.
        layout: the type and shape of one example; empty where there is none to tell.
        columns: the digest of the features' names; empty where they have none.
        n_classes: labels are below it, others' too; None where nobody says.
    """

    x: Rows
    y: IntArray
    shareable: BoolArray
    stamp: str = ""
    source: str = "data"
    layout: str = ""
    columns: str = ""
    n_classes: int | None = None

    @classmethod
    def from_arrays(
        cls, x: npt.ArrayLike, y: npt.ArrayLike, shareable: npt.ArrayLike | None = None
    ) -> SiteData:
        """Examples in memory; without `shareable` all are private."""
        return _checked(ArrayRows(np.asarray(x)), y, shareable, "", "data")

    @classmethod
    def none(cls) -> SiteData:
        """No examples, of no layout."""
        return cls(ArrayRows(np.empty((0, 1))), np.empty(0, np.int64), np.empty(0, np.bool_))

    def check_labels(self) -> None:
        """Labels are classes, where it is known how many there are."""
        if self.n_classes is not None and self.y.size and self.y.max() >= self.n_classes:
            row = int(self.y.argmax())
            raise DataError(
                f"{self.source}: y must be labels from 0 to {self.n_classes - 1}, got "
                f"{self.y[row]} in example {row}"
            )

    @property
    def n_examples(self) -> int:
        return len(self.y)

    @property
    def row_bytes(self) -> int:
        """The bytes of one example on the wire: inputs, label and number."""
        return self.x.dtype.itemsize * math.prod(self.x.shape[1:]) + 16

    def check_unpacked(self) -> None:
        """If inputs were unpacked, the copy must be as it was written; else it is made anew."""
        if isinstance(self.x, FileRows) and self.x.path.suffix == SPOOLED:
            try:
                with self.x.path.open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise DataError(f"{self.x.path} cannot be read: {error.strerror}") from None
            if not self.x.path.stem.endswith(found):
                self.x.path.unlink(missing_ok=True)
                raise DataError(
                    f"{self.source}: the copy that its inputs were unpacked into was damaged; it "
                    "is made anew with the next message"
                )

    def fingerprints(self, key: bytes) -> npt.NDArray[np.uint8]:
        """A fingerprint of every example, (examples, 16) bytes; what is not finite is an error."""
        out = np.empty((self.n_examples, FINGERPRINT), np.uint8)
        step = max(1, BLOCK_BYTES // self.row_bytes)
        for start in range(0, self.n_examples, step):
            block = self.x.block(start, min(start + step, self.n_examples))
            if block.dtype.kind == "f" and not np.isfinite(block).all():
                flat = block.reshape(len(block), -1)
                row, column = np.argwhere(~np.isfinite(flat))[0]
                raise DataError(
                    f"{self.source}: x must be finite, got {flat[row, column]} in example "
                    f"{start + row}"
                )
            out[start : start + step] = fingerprints_of(block, self.y[start : start + step], key)
        return out


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
      `shareable`. Features go by their position: all sites have the same, in the same order.

    Inputs are read where they lie if they can be; others are unpacked once into the folder
    `spool`, so that memory stays bounded whatever their size.
    """
    path = checks.path("data", path)
    try:
        version = version_of(path.stat())
    except OSError as error:
        raise DataError(f"data {path} cannot be read: {error.strerror}") from None
    stamp = repr((str(path.resolve()), version, label, shareable))
    spooled = spool / hashlib.sha256(stamp.encode()).hexdigest()[:32]
    if path.suffix == ".npz":
        return _from_npz(path, spooled, stamp)
    if path.suffix == ".parquet":
        return _from_parquet(path, spooled, stamp, label, shareable)
    raise DataError(f"data must be .npz or .parquet, got {path}")


def data_behind(stamp: str, *, spool: Path) -> SiteData | None:
    """What the file that a stamp names holds today; None if there is no file."""
    if not stamp:
        return None
    path, _, label, shareable = ast.literal_eval(stamp)
    if not Path(path).exists():
        return None
    return load_site_data(path, spool=spool, label=label, shareable=shareable)


def _from_npz(path: Path, spooled: Path, stamp: str) -> SiteData:
    small = read_npz(path, ["y"], DataError)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "x.npy" not in names:
                raise DataError(f"{path} must hold the arrays ['x', 'y'], missing ['x']")
            rows = _npy_member(archive, path, spooled)
    except (
        OSError,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        SyntaxError,
        struct.error,
        tokenize.TokenError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DataError(f"{path} cannot be read as .npz: {error}") from None
    if "shareable.npy" in names:
        small |= read_npz(path, ["shareable"], DataError)
    return _checked(rows, small["y"], small.get("shareable"), stamp, str(path))


def _npy_member(archive: zipfile.ZipFile, path: Path, spooled: Path) -> Rows:
    """The array x of an .npz, in place if it is stored plain, else in memory or unpacked."""
    info = archive.getinfo("x.npy")
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise DataError(f"{path}: x must be an array of format 1.0 or 2.0, got {version}")
        shape, fortran, dtype = read(stream)
        head = stream.tell()
        if fortran or str(dtype) not in DTYPES:
            order = "Fortran" if fortran else "C"
            raise DataError(f"{path}: x must be numbers in C order, got {dtype}, {order} order")
        if min(shape, default=0) < 0 or info.file_size != head + dtype.itemsize * math.prod(shape):
            raise DataError(f"{path}: x must be as long as its header says, got shape {shape}")
        if info.compress_type != zipfile.ZIP_STORED:
            if info.file_size <= IN_MEMORY:
                return ArrayRows(read_npz(path, ["x"], DataError)["x"])
            unpacked = _spool(spooled, iter(lambda: stream.read(1 << 20), b""))
            return FileRows(unpacked, 0, dtype, shape)
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_length, extra_length = struct.unpack("<26xHH", file.read(30))
    return FileRows(path, info.header_offset + 30 + name_length + extra_length + head, dtype, shape)


def _spool(name: Path, parts: Iterable[bytes]) -> Path:
    """The file NAME-DIGEST.rows, which only this user may read; unpacked unless it is there.

    It is there whole or not at all, and its name tells what must be in it (`check_unpacked`).
    """
    for path in name.parent.glob(f"{name.name}-*{SPOOLED}"):
        return path
    name.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in [*name.parent.glob(f"*{SPOOLED}"), *name.parent.glob("*.part")]:
        old.unlink(missing_ok=True)
    descriptor, part_name = tempfile.mkstemp(suffix=".part", dir=name.parent)
    whole = hashlib.sha256()
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                whole.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return Path(part_name).replace(name.with_name(f"{name.name}-{whole.hexdigest()}{SPOOLED}"))
    finally:
        Path(part_name).unlink(missing_ok=True)


def _from_parquet(path: Path, spooled: Path, stamp: str, label: str, shareable: str) -> SiteData:
    import pyarrow  # slow to import, and only Parquet needs it
    import pyarrow.parquet

    try:
        # Else whole row groups are read ahead, and a file may have a single one.
        bounded: Any = dict(pre_buffer=False, buffer_size=1 << 16)
        with pyarrow.parquet.ParquetFile(path, **bounded) as file:
            names = file.schema_arrow.names
            if label not in names or len(set(names)) != len(names):
                raise DataError(
                    f"{path} must have the label column {label!r} and each column once, "
                    f"got {names[:20]}"
                )
            features = _features(path, file.schema_arrow, label, shareable)
            dtype = _dtype_of(path, file.schema_arrow, features)
            y = _column(path, file, label)
            marked = _column(path, file, shareable) if shareable in names else None
            unpacked = _spool(spooled, _rows_of(path, file, features, dtype, spooled.parent))
            rows = FileRows(unpacked, 0, dtype, (len(y), len(features)))
    except (OSError, ValueError, KeyError, NotImplementedError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None
    return _checked(rows, y, marked, stamp, str(path), digest_of_columns(features))


def _features(path: Path, schema: Any, label: str, shareable: str) -> list[str]:
    """The feature columns, in order. What is most likely none of them is refused."""
    features = [name for name in schema.names if name not in (label, shareable)]
    index = index_columns(schema)
    for name in features:
        if name in index:
            raise DataError(
                f"{path}: column {name!r} is the index of a pandas table, no feature: write the "
                "file with index=False"
            )
        is_boolean = str(schema.field(name).type) == "bool"
        mark = [shareable.casefold()]
        if is_boolean and difflib.get_close_matches(name.casefold(), mark, cutoff=ALIKE):
            raise DataError(
                f"{path}: column {name!r} must be called {shareable!r} if it says what may be "
                "shared, and otherwise not be so like it"
            )
    return features


def _dtype_of(path: Path, schema: Any, features: list[str]) -> np.dtype[Any]:
    """The type that holds all feature columns."""
    if not features:
        raise DataError(f"{path} must have feature columns, got {schema.names[:20]}")
    dtypes = []
    for name in features:
        kind = schema.field(name).type
        dtypes.append(np.dtype(kind.to_pandas_dtype()))
        if str(dtypes[-1]) not in DTYPES:
            raise DataError(f"{path}: column {name!r} must be numbers, got {kind}")
    return np.result_type(*dtypes)


def _column(path: Path, file: Any, name: str) -> npt.NDArray[Any]:
    column = file.read([name])[name]
    if column.null_count:
        raise DataError(f"{path}: column {name!r} must have no missing values")
    return np.asarray(column.to_numpy())


def _rows_of(
    path: Path, file: Any, features: list[str], dtype: np.dtype[Any], spool: Path
) -> Iterator[bytes]:
    """The rows in parts, from a few columns at a time: a page of each of many is too much."""
    with contextlib.ExitStack() as stack:
        parts = []
        for first in range(0, len(features), COLUMNS_AT_ONCE):
            names = features[first : first + COLUMNS_AT_ONCE]
            part = stack.enter_context(tempfile.TemporaryFile(dir=spool))
            for batch in file.iter_batches(batch_size=4096, columns=names):
                part.write(_matrix(path, batch, dtype).tobytes())
            part.seek(0)
            parts.append((part, len(names)))
        left, step = file.metadata.num_rows, max(1, BLOCK_BYTES // (32 * len(features)))
        while left > 0:
            n = min(step, left)
            left -= n
            blocks = [
                np.fromfile(part, dtype, n * width).reshape(n, width) for part, width in parts
            ]
            yield np.concatenate(blocks, axis=1).tobytes()


def _matrix(path: Path, batch: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """(rows, features) of a batch; what is missing is an error, never a number."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count:
            raise DataError(f"{path}: column {name!r} must have no missing values")
    columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
    return np.column_stack(columns).astype(dtype)


def _checked(
    x: Rows,
    y: npt.ArrayLike,
    shareable: npt.ArrayLike | None,
    stamp: str,
    source: str,
    columns: str = "",
) -> SiteData:
    y = np.asarray(y)
    if len(x.shape) < 2 or 0 in x.shape[1:] or str(x.dtype) not in DTYPES:
        raise DataError(f"{source}: x must be numbers (examples, ...), got {x.dtype}, {x.shape}")
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or len(y) != x.shape[0]:
        raise DataError(
            f"{source}: y must be one integer label for each of the {x.shape[0]} examples, "
            f"got {y.dtype}, shape {y.shape}"
        )
    if y.size and (y.min() < 0 or y.max() > checks.LARGEST):
        wrong = y.min() if y.min() < 0 else y.max()
        raise DataError(f"{source}: y must be labels from 0 to {checks.LARGEST}, got {wrong}")
    mask = np.zeros(len(y), np.bool_) if shareable is None else np.array(shareable)
    if mask.dtype != np.bool_ or mask.shape != y.shape:
        raise DataError(
            f"{source}: shareable must be boolean, one for each example, "
            f"got {mask.dtype}, shape {mask.shape}"
        )
    layout = layout_of(x.dtype, x.shape[1:])
    return SiteData(x, y.astype(np.int64), mask, stamp, source, layout, columns)
