"""How good predictions are: one file for each kind of task."""

from __future__ import annotations

from collections.abc import Sequence

from fedcommons.errors import ArgumentError
from fedcommons.metrics.classification import accuracy, auc, balanced_accuracy, f1, log_loss
from fedcommons.metrics.metric import Metric
from fedcommons.metrics.regression import mae, mse, r2
from fedcommons.metrics.survival import c_index
from fedcommons.registry import Registry

METRICS = Registry(
    "metric", Metric, (accuracy, balanced_accuracy, auc, f1, log_loss, r2, mae, mse, c_index)
)
USUAL = {  # of each kind of task; the first is its main one
    "classes": ("accuracy",),
    "labels": ("auc", "accuracy", "log_loss"),
    "numbers": ("r2", "mae", "mse"),
    "times": ("c_index",),
}


def chosen(names: Sequence[str], kind: str) -> tuple[Metric, ...]:
    """The metrics of these names or import paths for a kind of task.

    Without names they are the usual ones.
    """
    found = []
    for name in names or USUAL[kind]:
        metric = METRICS.named("each of metrics", name)
        if kind not in metric.kinds:
            fitting = ", ".join(one.name for one in METRICS.values() if kind in one.kinds)
            raise ArgumentError(
                f"metrics must go with the loss, which is for {kind}: {fitting}; got {name!r}"
            )
        if metric.name in METRICS and METRICS[metric.name] is not metric:
            raise ArgumentError(
                f"metric {name} must have a name that is not taken, got {metric.name!r}"
            )
        found.append(metric)
    if len({metric.name for metric in found}) < len(found):
        raise ArgumentError(f"metrics must be named once each, got {', '.join(names)}")
    return tuple(found)


__all__ = ["METRICS", "USUAL", "Metric", "chosen"]


def __dir__() -> list[str]:
    return __all__
