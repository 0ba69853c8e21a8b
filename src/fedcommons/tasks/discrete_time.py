"""Survival in discrete time: a hazard for each interval, each its own logistic regression.

It is a sum over examples, so coded estimates of its gradient are unbiased: for federated survival
the loss to begin with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.tasks.loss import Float32, Targets
from fedcommons.tasks.survival import Survival

if TYPE_CHECKING:
    from fedcommons.datasets import Dataset


class DiscreteTime(Survival):
    """-sum_k log(1 - h_k) over the intervals survived, - log h_K for an event in interval K.

    h_k = sigmoid(s_k). Interval k is (cut_{k-1}, cut_k], the last one is open; the cuts are
    quantiles of the training data's event times. Who is censored in an interval counts for those
    before it alone.
    """

    name = "discrete-time"

    def __init__(self, dataset: str, *splits: Targets, intervals: int = 10) -> None:
        super().__init__(dataset, *splits)
        intervals = checks.integer("time_intervals", intervals, low=1)
        train = splits[0]
        times = train[train[:, 1] == 1, 0]
        inner = np.quantile(times, np.arange(1, intervals) / intervals)
        self.cuts: FloatArray = np.unique(inner)  # fewer where times are equal
        self.n_outputs = len(self.cuts) + 1

    @classmethod
    def fitted_to(cls, dataset: Dataset, *, time_intervals: int, **_constants: Any) -> Self:
        return cls(dataset.name, dataset.y_train, dataset.y_test, intervals=time_intervals)

    def targets(self, y: Targets) -> Float32:
        """The interval and the event."""
        interval = np.searchsorted(self.cuts, y[:, 0], side="left")
        return np.stack([interval, y[:, 1]], axis=1).astype(np.float32)

    def _at_risk(self, y: Targets) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which intervals were survived, and in which the event was: (..., outputs)."""
        k = np.arange(self.n_outputs)
        interval, event = y[..., 0, None], y[..., 1, None] == 1
        return k < interval, (k == interval) & event

    def residuals(self, scores: Any, y: Float32, weight: Float32) -> Float32:
        survived, happened = self._at_risk(y)
        found = expit(scores) * (survived | happened) - happened
        return np.asarray(found * weight[..., None], np.float32)

    def values(self, scores: npt.NDArray[Any], y: Targets) -> npt.NDArray[Any]:
        survived, happened = self._at_risk(y)
        each = np.logaddexp(0, scores) * (survived | happened) - scores * happened
        return np.asarray(each.sum(axis=-1))

    def predictions(self, scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The risk: minus the expected number of intervals survived, (B, n)."""
        log_survival = -np.cumsum(np.logaddexp(0, scores.astype(np.float64)), axis=-1)
        return np.asarray(-np.exp(log_survival).sum(axis=-1))
