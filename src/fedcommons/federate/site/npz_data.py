"""A site's data in an .npz file: the arrays x, y, `shareable` and `ground`."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

from fedcommons.errors import DataError
from fedcommons.federate.protocol.packing import DTYPES
from fedcommons.federate.site import spool
from fedcommons.federate.site.file_rows import ArrayRows, FileRows, Rows
from fedcommons.federate.site.own_data import SiteData
from fedcommons.npz import read_header, read_npz
from fedcommons.unpacked import check_expanded

IN_MEMORY = 64 << 20  # a compressed array up to this size is simply read


def read_npz_data(
    path: Path, unpacked: Path, stamp: str, *, classes: Sequence[str] | None
) -> SiteData:
    small = read_npz(path, ["y"], DataError)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "x.npy" not in names:
                raise DataError(f"{path} must hold the arrays ['x', 'y'], missing ['x']")
            rows = _inputs(archive, path, unpacked)
    except DataError:
        raise
    except Exception as error:  # of what others wrote zipfile and NumPy raise anything
        raise DataError(f"{path} cannot be read as .npz: {error}") from None
    small |= read_npz(path, [], DataError, optional=["shareable", "ground"])
    return SiteData.checked(
        rows,
        small["y"],
        small.get("shareable"),
        stamp=stamp,
        source=str(path),
        classes=classes,
        ground=small.get("ground"),
    )


def _inputs(archive: zipfile.ZipFile, path: Path, unpacked: Path) -> Rows:
    """The array x: read in place if it is not compressed, else kept in memory or unpacked."""
    info = archive.getinfo("x.npy")
    with archive.open(info) as stream:
        shape, fortran, dtype = read_header(stream)
        head = stream.tell()
        if fortran or str(dtype) not in DTYPES:
            order = "Fortran" if fortran else "C"
            raise DataError(f"{path}: x must be numbers in C order, got {dtype}, {order} order")
        if min(shape, default=0) < 0 or info.file_size != head + dtype.itemsize * math.prod(shape):
            raise DataError(f"{path}: x must be as long as its header says, got shape {shape}")
        if info.compress_type != zipfile.ZIP_STORED:
            check_expanded(path, info.file_size, path.stat().st_size, DataError)
            if info.file_size <= IN_MEMORY:
                return ArrayRows(read_npz(path, ["x"], DataError)["x"])
            file_path = spool.unpack(unpacked, iter(lambda: stream.read(1 << 20), b""))
            return FileRows(file_path, 0, dtype, shape)
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_length, extra_length = struct.unpack("<26xHH", file.read(30))
    return FileRows(path, info.header_offset + 30 + name_length + extra_length + head, dtype, shape)
