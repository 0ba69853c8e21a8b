"""NumPy's .npz containers: reading what others may have damaged or made, writing any names."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import FedcommonsError
from fedcommons.unpacked import check_expanded

Arrays = dict[str, npt.NDArray[Any]]
ErrorClass = type[FedcommonsError]

HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz(
    path: str | os.PathLike[str],
    names: Iterable[str] | None,
    error: ErrorClass,
    *,
    optional: Iterable[str] = (),
) -> Arrays:
    """The arrays of these names, or all; whatever is wrong with the file is raised as `error`.

    Those in `optional` may be missing. The container's checksums detect damage. Nothing in it is
    ever executed (no pickle), and no more memory is taken than the file says and `unpacked` allows.
    """
    try:
        with Path(path).open("rb") as file:
            return unpack_npz(file, path, names, error, optional=optional)
    except FileNotFoundError:
        raise error(f"{path} does not exist") from None
    except OSError as cause:
        raise error(f"{path} cannot be read as .npz: {cause}") from None


def unpack_npz(
    file: IO[bytes],
    path: str | os.PathLike[str],
    names: Iterable[str] | None,
    error: ErrorClass,
    *,
    optional: Iterable[str] = (),
) -> Arrays:
    """The arrays of these names, or all, of an open container; `path` is what errors call it."""
    try:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
            raise error(f"{path} must be an .npz file, got a single array")
        with zipfile.ZipFile(file) as archive:
            members = {info.filename: info for info in archive.infolist()}
            present = [name.removesuffix(".npy") for name in members]
            wanted = present if names is None else list(names)
            missing = [name for name in wanted if name not in present]
            if missing:
                raise error(f"{path} must hold the arrays {wanted}, missing {missing}")
            wanted += [name for name in optional if name in present and name not in wanted]
            packed = file.seek(0, os.SEEK_END)
            infos = {name: members[f"{name}.npy"] for name in wanted}
            check_expanded(path, sum(info.file_size for info in infos.values()), packed, error)
            return {name: _array(archive, info, path, error) for name, info in infos.items()}
    except error:
        raise
    except Exception as cause:  # of what others wrote zipfile and NumPy raise anything
        raise error(f"{path} cannot be read as .npz: {cause}") from None


def read_npy(path: Path, error: ErrorClass) -> npt.NDArray[Any]:
    """The array of an .npy file; whatever is wrong with the file is raised as `error`."""
    try:
        with path.open("rb") as file:
            _check_header(file, path.stat().st_size, path, error)
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)
    except error:
        raise
    except Exception as cause:  # of what others wrote NumPy raises anything
        raise error(f"{path} cannot be read as .npy: {cause}") from None


def _array(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    path: str | os.PathLike[str],
    error: ErrorClass,
) -> npt.NDArray[Any]:
    with archive.open(info) as member:
        _check_header(member, info.file_size, path, error)
    with archive.open(info) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
        while member.read(1 << 16):  # to the end, where the checksum is compared
            pass
        return array


def _check_header(
    file: IO[bytes], size: int, path: str | os.PathLike[str], error: ErrorClass
) -> None:
    """Refuse an array that is not as long as its header says, before it gets its memory."""
    shape, _, dtype = read_header(file)
    n = math.prod(shape)
    fits = file.tell() + n * dtype.itemsize == size or dtype.hasobject  # refused later
    if min(shape, default=0) < 0 or not fits:
        raise error(f"{path} cannot be read as .npz: an array is not as long as its header says")
    if n > size:  # of items without a length
        raise error(f"{path} cannot be read as .npz: it has {n} items in {size} bytes")


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran's order, and type of an array in NumPy's format."""
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"arrays must be of the format 1.0 or 2.0, got {version}")
    return HEADERS[version](file)


def write_npz(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Arrays under any names: `np.savez` takes them as keywords, and `file` is one of its own."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
