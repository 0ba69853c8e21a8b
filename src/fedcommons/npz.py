"""NumPy's .npz containers: reading what others may have damaged or made, writing any names."""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import FedcommonsError


def read_npz(
    path: str | os.PathLike[str], names: Iterable[str], error: type[FedcommonsError]
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these names; whatever is wrong with the file is raised as `error`.

    The container's checksums detect damage. Nothing in it is ever executed (no pickle).
    """
    names = list(names)
    try:
        with Path(path).open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise error(f"{path} must be an .npz file, got a single array")
            missing = [name for name in names if name not in content]
            if missing:
                raise error(f"{path} must hold the arrays {names}, missing {missing}")
            return {name: content[name] for name in names}
    except FileNotFoundError:
        raise error(f"{path} does not exist") from None
    except (
        OSError,
        EOFError,
        ValueError,
        AttributeError,
        NotImplementedError,
        MemoryError,
        KeyError,
        RuntimeError,
        SyntaxError,
        tokenize.TokenError,
        zipfile.BadZipFile,
        zlib.error,
    ) as cause:
        raise error(f"{path} cannot be read as .npz: {cause}") from None


def write_npz(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Arrays under any names: `np.savez` takes them as keywords, and `file` is one of its own."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
