"""Binary cross-entropy: each example has any number of labels, each of them 0 or 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from fedcommons.checks import IntArray
from fedcommons.tasks.loss import Float32, Loss, Targets, described, refused


class Binary(Loss):
    """sum_l log(1 + exp(s_l)) - y_l s_l: one logistic regression for each label."""

    name = "binary"
    kind = "labels"

    def __init__(self, dataset: str, *splits: Targets) -> None:
        for y in splits:
            if y.ndim > 2:
                raise refused(dataset, self.name, "(examples,) or (examples, labels)", described(y))
            wrong = y[(y != 0) & (y != 1)]
            if wrong.size:
                raise refused(dataset, self.name, "0 or 1", f"{wrong.flat[0]:g}")
        super().__init__(dataset, *splits)

    def targets(self, y: Targets) -> Float32:
        return y.reshape(len(y), self.n_outputs).astype(np.float32)

    def residuals(self, scores: Any, y: Float32, weight: Float32) -> Float32:
        return np.asarray((expit(scores) - y) * weight[..., None], np.float32)

    def values(self, scores: npt.NDArray[Any], y: Targets) -> npt.NDArray[Any]:
        return np.asarray((np.logaddexp(0, scores) - y * scores).sum(axis=-1))

    def groups(self, y: Targets, bins: int) -> IntArray:  # noqa: ARG002
        """Every combination of labels that there is."""
        found = np.unique(y.reshape(len(y), -1), axis=0, return_inverse=True)[1]
        return found.reshape(-1).astype(np.int64)
