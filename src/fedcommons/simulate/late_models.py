"""The models that late answers were computed at, where an estimator goes back to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray

if TYPE_CHECKING:
    from fedcommons.simulate.curve_runs import CurveRun

Float32 = npt.NDArray[np.float32]


class LateModels:
    """Of curve runs side by side, x_i of every client whose answer is not here yet."""

    def __init__(self) -> None:
        self.models: dict[tuple[int, int], Float32] = {}

    def back(
        self, t: int, group: Sequence[CurveRun], params: Float32, server_rate: FloatArray
    ) -> Float32 | None:
        """rate sum_i back_i (x - x_i) over the late answers of a tick: (E, P); None without any."""
        if not any(run.back is not None for run in group):
            return None
        found = np.zeros_like(params)
        for a, run in enumerate(group):
            if run.back is None:
                continue
            for b in np.flatnonzero(run.arrives[t]).tolist():
                by = np.float32(server_rate[a] * run.back[t, b])
                found[a] += by * (params[a] - self.models.pop((a, b)))
            for b in np.flatnonzero(run.kept[t]).tolist():
                self.models[a, b] = params[a].copy()
        return found
