"""Losses for numbers: the squared error, and Huber's, which far-off targets pull less at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import IntArray
from fedcommons.tasks.loss import Float32, Loss, Targets, described, quantile_bins, refused

if TYPE_CHECKING:
    from fedcommons.datasets import Dataset


class Squared(Loss):
    """sum_o (s_o - y_o)^2 / 2."""

    name = "squared"
    kind = "numbers"

    def __init__(self, dataset: str, *splits: Targets) -> None:
        for y in splits:
            if y.ndim > 2 or not np.issubdtype(y.dtype, np.floating):
                raise refused(
                    dataset,
                    self.name,
                    "floating-point numbers, (examples,) or (examples, outputs), as integers are "
                    "labels of classes,",
                    described(y),
                )
        super().__init__(dataset, *splits)

    def targets(self, y: Targets) -> Float32:
        return y.reshape(len(y), self.n_outputs).astype(np.float32)

    def truth(self, y: Targets) -> Targets:
        return y.reshape(len(y), self.n_outputs).astype(np.float64)

    def residuals(self, scores: Any, y: Float32, weight: Float32) -> Float32:
        return np.asarray((scores - y) * weight[..., None], np.float32)

    def values(self, scores: npt.NDArray[Any], y: Targets) -> npt.NDArray[Any]:
        return np.asarray(((scores - y) ** 2).sum(axis=-1) / 2)

    def groups(self, y: Targets, bins: int) -> IntArray:
        """Quantiles of the target; of the first of several."""
        return quantile_bins(y.reshape(len(y), -1)[:, 0], bins)


class Huber(Squared):
    """The squared error up to delta; past that it grows like delta times the distance."""

    name = "huber"

    def __init__(self, dataset: str, *splits: Targets, delta: float = 1.0) -> None:
        super().__init__(dataset, *splits)
        self.delta = np.float32(checks.positive("huber_delta", delta))

    @classmethod
    def fitted_to(cls, dataset: Dataset, *, huber_delta: float, **_constants: Any) -> Self:
        return cls(dataset.name, dataset.y_train, dataset.y_test, delta=huber_delta)

    def residuals(self, scores: Any, y: Float32, weight: Float32) -> Float32:
        away = np.clip(scores - y, -self.delta, self.delta)
        return np.asarray(away * weight[..., None], np.float32)

    def values(self, scores: npt.NDArray[Any], y: Targets) -> npt.NDArray[Any]:
        away = np.abs(scores - y)
        near = np.minimum(away, self.delta)
        return np.asarray((near * (away - near / 2)).sum(axis=-1))
