"""Metrics of models on the test set: pooled, and at each site that the examples come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError, StudyError
from fedcommons.metrics import METRICS, Metric
from fedcommons.tasks import Loss


class Measures:
    """What is measured of models, at which rounds.

    Attributes:
        metrics: K of them.
        sites: names of S sites; empty if they are not known.
        rounds: after which rounds, in ascending order.
    """

    def __init__(
        self, dataset: Dataset, loss: Loss, metrics: Sequence[Metric], rounds: Sequence[int]
    ) -> None:
        self.loss, self.metrics, self.rounds = loss, tuple(metrics), tuple(rounds)
        self.sites = dataset.sites if dataset.site_test is not None else ()
        self.truth = loss.truth(dataset.y_test)
        site = dataset.site_test
        self.members = [np.flatnonzero(site == s) for s in range(len(self.sites))]

    @property
    def counts(self) -> bool:
        """Whether the main metric is counted at every look, as accuracy of classes is."""
        return self.loss.kind == "classes" and self.metrics[0] is METRICS["accuracy"]

    def nothing(self, n_curves: int) -> tuple[FloatArray, FloatArray]:
        """Arrays for the values of these curves: (C, rounds, K) and (C, rounds, S, K)."""
        R, S, K = len(self.rounds), len(self.sites), len(self.metrics)
        return np.full((n_curves, R, K), np.nan), np.full((n_curves, R, S, K), np.nan)

    def of(self, scores: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Of models' scores (B, n, outputs): pooled (B, K), and at each site (B, S, K)."""
        found = self.loss.predictions(scores)
        pooled = [_values(metric, found, self.truth) for metric in self.metrics]
        at_sites = np.empty((len(scores), len(self.sites), len(self.metrics)))
        for s, members in enumerate(self.members):
            for k, metric in enumerate(self.metrics):
                at_sites[:, s, k] = _values(metric, found[:, members], self.truth[members])
        return np.stack(pooled, axis=1), at_sites


def _values(metric: Metric, predictions: npt.NDArray[Any], truth: npt.NDArray[Any]) -> FloatArray:
    try:
        return metric.values(predictions, truth)
    except ArgumentError as error:  # of somebody else's metric
        raise StudyError(str(error)) from error
