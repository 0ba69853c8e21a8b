"""How good predictions are: one file for each kind of task."""

from __future__ import annotations

from collections.abc import Sequence

from fedcommons.errors import ArgumentError
from fedcommons.metrics.classification import accuracy, auc, balanced_accuracy, f1, log_loss
from fedcommons.metrics.metric import Metric
from fedcommons.metrics.regression import mae, mse, r2
from fedcommons.metrics.survival import c_index

METRICS = {
    one.name: one for one in (accuracy, balanced_accuracy, auc, f1, log_loss, r2, mae, mse, c_index)
}
USUAL = {  # of each kind of task; the first is its main one
    "classes": ("accuracy",),
    "labels": ("auc", "accuracy", "log_loss"),
    "numbers": ("r2", "mae", "mse"),
    "times": ("c_index",),
}


def chosen(names: Sequence[str], kind: str) -> tuple[Metric, ...]:
    """The metrics of these names for a kind of task, the usual ones if there are none."""
    found = []
    for name in names or USUAL[kind]:
        if name not in METRICS:
            raise ArgumentError(f"metrics must be among {', '.join(METRICS)}, got {name!r}")
        if kind not in METRICS[name].kinds:
            fitting = ", ".join(one.name for one in METRICS.values() if kind in one.kinds)
            raise ArgumentError(
                f"metrics must go with the loss, which is for {kind}: {fitting}; got {name!r}"
            )
        found.append(METRICS[name])
    if len(set(found)) < len(found):
        raise ArgumentError(f"metrics must be named once each, got {', '.join(names)}")
    return tuple(found)


__all__ = ["METRICS", "USUAL", "Metric", "chosen"]


def __dir__() -> list[str]:
    return __all__
