"""Metrics of numbers: predictions (B, n, O), truth (n, O); the mean over several outputs."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.metrics.metric import Array, Metric


def r2_of(predicted: Array, truth: Array) -> FloatArray:
    """1 - |y - s|^2 / |y - mean|^2, for y that are not all the same."""
    total = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    if not total.all():
        return np.full(len(predicted), np.nan)
    left = ((truth - predicted) ** 2).sum(axis=1)
    return np.asarray((1 - left / total).mean(axis=1))


def mean_absolute_error_of(predicted: Array, truth: Array) -> FloatArray:
    return np.asarray(np.abs(truth - predicted).mean(axis=(1, 2)))


def mean_squared_error_of(predicted: Array, truth: Array) -> FloatArray:
    return np.asarray(((truth - predicted) ** 2).mean(axis=(1, 2)))


r2 = Metric("r2", "R²", ("numbers",), True, r2_of, "all of one value", worst=-np.inf)
mae = Metric(
    "mae", "mean absolute error", ("numbers",), False, mean_absolute_error_of, worst=np.inf
)
mse = Metric("mse", "mean squared error", ("numbers",), False, mean_squared_error_of, worst=np.inf)
