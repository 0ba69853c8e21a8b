"""Versions of what the server keeps on disk, and how an older one becomes the present one.

To change a format, append one function to its `upgrades`: what it is given is as the version before
left it, what it returns is as the present code reads it. The number follows from the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fedcommons.errors import FederationError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Format(Generic[T]):
    """A format with a number: `upgrades[v]` makes version v + 1 of version v.

    Upgrades of what is on disk may die at any point, and are then made again.
    """

    what: str
    upgrades: tuple[Callable[[T], T], ...]

    @property
    def version(self) -> int:
        """The present one, which is written."""
        return len(self.upgrades)

    def upgraded(self, content: T, found: int, where: Path) -> T:
        """The content in the present version; refused if it is from a later one."""
        if found > self.version:
            raise FederationError(
                f"{where}: its {self.what} format has version {found}, this fedcommons reads up to "
                f"version {self.version}: use the fedcommons that wrote it, or a newer one"
            )
        for upgrade in self.upgrades[found:]:
            content = upgrade(content)
        return content


@dataclass(frozen=True, slots=True)
class SavedTraining:
    """The content of a checkpoint file: notes in JSON, and arrays by name."""

    notes: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


def _with_a_number(folder: Path) -> Path:
    """State-dir 0 -> 1: it has a number; nothing else differs."""
    return folder


def _without_epochs(folder: Path) -> Path:
    """State-dir 1 -> 2: a training goes on across exchanges, so no epoch is in its folder's name.

    Of the same training in several epochs the last goes on; those before it are left as they are.
    """
    newest: dict[str, tuple[int, Path]] = {}
    for path in folder.glob("epoch*-*"):
        if found := re.fullmatch(r"epoch(\d+)-(.+)", path.name):
            number, rest = int(found[1]), found[2]
            newest[rest] = max(newest.get(rest, (0, path)), (number, path))
    for rest, (_, path) in newest.items():
        if not (folder / f"training-{rest}").exists():
            path.rename(folder / f"training-{rest}")
    return folder


def _with_moments(saved: SavedTraining) -> SavedTraining:
    """Checkpoint 0 -> 1: it has the server optimizer's moments; there were none before."""
    moments = np.zeros((0, len(saved.arrays["model"])))
    return SavedTraining(saved.notes, {**saved.arrays, "moments": moments})


STATE_DIR = Format("state-dir", upgrades=(_with_a_number, _without_epochs))
CHECKPOINT = Format("checkpoint", upgrades=(_with_moments,))
