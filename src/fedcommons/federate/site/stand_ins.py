"""What a site has computed of absent owners' examples that it holds, in files that survive it.

They lie in the folder of the site's chunks. Whatever clears these, a withdrawal or a commit by
which the site holds something else, clears them too.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.federate.protocol import durable

Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class StandIn:
    """What a site has computed of all that it holds of one absent owner.

    Attributes:
        anchors: of how many of the owner's examples which model is the anchor, as the server says.
        covered: those of them that `mean` is of.
        mean: R, the mean over these anchors of the gradients' sum: (P,); empty if there are none.
        now: R', the gradients' sum as it was computed last: (P,); empty if it never was.
        at: the question in which that was; 0 if it never was.
    """

    anchors: Mapping[str, float]
    covered: Mapping[str, float] = field(default_factory=dict)
    mean: Values = field(default_factory=lambda: np.empty(0))
    now: Values = field(default_factory=lambda: np.empty(0))
    at: int = 0


class StandIns:
    """These, a file for each owner, in the folder of the site's chunks: cleared with them."""

    def __init__(self, folder: Path, n_params: int, dtype: np.dtype[Any]) -> None:
        self.folder, self.n_params, self.dtype = folder, n_params, np.dtype(dtype)

    def of(self, owner: int, anchors: Mapping[str, float]) -> StandIn:
        """Nothing yet, if what is kept is of other anchors: the owner was there meanwhile."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            about, _, content = self._path(owner).read_bytes().partition(b"\n")
            notes = json.loads(about)
            mean, now = np.frombuffer(content, self.dtype).reshape(2, self.n_params)
            if notes["anchors"] == dict(anchors) and np.isfinite([mean, now]).all():
                return StandIn(anchors, notes["covered"], mean, now, int(notes["at"]))
        return StandIn(anchors)

    def keep(self, owner: int, found: StandIn) -> None:
        about = {"anchors": found.anchors, "covered": found.covered, "at": found.at}
        parts = np.stack([found.mean, found.now]).astype(self.dtype)
        content = json.dumps(about).encode() + b"\n" + parts.tobytes()
        durable.write_file(self._path(owner), content, "store.stand-in")

    def _path(self, owner: int) -> Path:
        return self.folder / f"owner{owner}.bin"
