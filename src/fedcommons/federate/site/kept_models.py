"""The models that a site was sent, by their digests: anchors of what is remembered of others.

A model is nobody's data, so commits and withdrawals leave these files where they are. They are of
one training; another one clears them.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.federate.protocol import durable
from fedcommons.federate.site.chunk_memory import MOST_BYTES, MOST_CHUNKS

FOLDER = "models"
DIGEST = re.compile(r"[0-9a-f]{64}")


class KeptModels:
    """As many models as there can be chunks, in a folder of the store."""

    def __init__(self, store: Path, training: str, n_params: int, dtype: np.dtype[Any]) -> None:
        self.n_params, self.dtype = n_params, np.dtype(dtype)
        about = f"{training} {n_params} {self.dtype.str}"
        parent = store / FOLDER
        self.folder = parent / hashlib.sha256(about.encode()).hexdigest()[:16]
        if parent.exists() and any(path != self.folder for path in parent.iterdir()):
            shutil.rmtree(parent)
        durable.make_folder(parent)
        durable.make_folder(self.folder)

    @property
    def most(self) -> int:
        return most_models(self.n_params, self.dtype)

    def keep(self, digest: str, model: npt.NDArray[Any], needed: Collection[str]) -> None:
        """Keep this one; beyond the limit the oldest goes, one that is not `needed` first."""
        if not (path := self._path(digest)).exists():
            content = np.ascontiguousarray(model, self.dtype).tobytes()
            durable.write_file(path, content, "store.model")
        there = [one for one in self.folder.glob("*.bin") if one != path]
        there.sort(key=lambda one: (one.stem in needed, one.stat().st_mtime_ns, one.name))
        for one in there[: max(0, 1 + len(there) - self.most)]:
            one.unlink(missing_ok=True)

    def has(self, digest: str) -> bool:
        return bool(DIGEST.fullmatch(digest)) and self._path(digest).exists()

    def find(self, digest: str) -> npt.NDArray[Any] | None:
        """(P,); None if it is not here, or damaged."""
        if DIGEST.fullmatch(digest):
            with contextlib.suppress(OSError):
                found = np.fromfile(self._path(digest), self.dtype)
                if len(found) == self.n_params and np.isfinite(found).all():
                    return found
        return None

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}.bin"


def most_models(n_params: int, dtype: np.dtype[Any]) -> int:
    """How many models of this size a site keeps."""
    return max(1, min(MOST_CHUNKS, MOST_BYTES // max(1, n_params * np.dtype(dtype).itemsize)))
