"""The file of a placement: its arrays in NumPy's .npz container, with a format and a version."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons.errors import PlacementFileError
from fedcommons.npz import read_npz

FORMAT = "fedcommons.placement"
VERSION = 1
ARRAYS = ("owner", "indptr", "recipients", "n_clients")


def write(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a placement's arrays, whole or not at all."""
    part = path.with_name(path.name + ".part")
    content: dict[str, Any] = {name: np.asarray(arrays[name]) for name in ARRAYS}
    try:
        with part.open("wb") as file:
            np.savez(file, format=np.array(FORMAT), version=np.array(VERSION), **content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise PlacementFileError(f"{path} cannot be written: {error}") from None
    finally:
        part.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """A placement's arrays."""
    file = read_npz(path, ("format", "version"), PlacementFileError)
    if str(file["format"]) != FORMAT:
        raise PlacementFileError(f"{path} must be a placement, got {str(file['format'])[:50]!r}")
    if str(file["version"]) != str(VERSION):
        raise PlacementFileError(
            f"{path} must have placement version {VERSION}, got {file['version']}"
        )
    return read_npz(path, ARRAYS, PlacementFileError)


__all__ = ["ARRAYS", "FORMAT", "VERSION", "read", "write"]


def __dir__() -> list[str]:
    return __all__
