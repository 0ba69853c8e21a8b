"""The losses by name, somebody else's among them, and fitting one to a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError
from fedcommons.registry import Registry
from fedcommons.tasks.binary import Binary
from fedcommons.tasks.cox import Cox
from fedcommons.tasks.cross_entropy import CrossEntropy
from fedcommons.tasks.discrete_time import DiscreteTime
from fedcommons.tasks.loss import KINDS, Loss
from fedcommons.tasks.regression import Huber, Squared
from fedcommons.tasks.trial import tried

OF_THE_PACKAGE = (CrossEntropy, Binary, Squared, Huber, Cox, DiscreteTime)


class Losses(Registry[type[Loss]]):
    """Losses are classes: each is fitted to the data of a study."""

    def _checked(self, part: Any, name: str) -> Any:
        if not isinstance(part, type) or not issubclass(part, Loss):
            raise ArgumentError(
                f"loss {name} must be a class that derives from fedcommons.tasks.Loss, got {part!r}"
            )
        missing = sorted(getattr(part, "__abstractmethods__", ()))
        missing += [given for given in ("name", "kind") if not hasattr(part, given)]
        if missing:
            raise ArgumentError(f"loss {name} must define {', '.join(missing)}")
        if part.kind not in KINDS:
            raise ArgumentError(
                f"loss {name}: kind must be one of {', '.join(KINDS)}, got {part.kind!r}"
            )
        return part


LOSSES = Losses("loss", type, OF_THE_PACKAGE)


def loss_class(name: object) -> type[Loss]:
    """The loss of this name or import path, before it is fitted to data."""
    return LOSSES.named("loss", name)


def has_numbers(name: str) -> bool:
    """Whether the loss of this name takes numbers rather than classes."""
    return loss_class(name).kind != "classes"


def fitted(
    name: str, dataset: Dataset, *, huber_delta: float = 1.0, time_intervals: int = 10
) -> Loss:
    """The loss of this name for a dataset; what does not fit it is refused.

    Args:
        huber_delta: from which distance on Huber's loss is no longer quadratic.
        time_intervals: how many intervals discrete time has.
    """
    made = loss_class(name)

    def fit() -> Loss:
        return made.fitted_to(dataset, huber_delta=huber_delta, time_intervals=time_intervals)

    return fit() if made in OF_THE_PACKAGE else tried(name, fit, dataset)


def far_from_standard(loss: Loss, dataset: Dataset) -> str:
    """What to know of targets for which steps of a usual size are too large or too small."""
    if loss.kind != "numbers":
        return ""
    y = loss.truth(dataset.y_train)
    mean, spread = np.abs(y.mean(axis=0)).max(), y.std(axis=0).max()
    if mean <= 10 * max(spread, 1e-12) and 0.05 <= spread <= 20 and mean <= 20:
        return ""
    return (
        f"dataset {dataset.name}: targets have mean {mean:.3g} and standard deviation "
        f"{spread:.3g}; learning rates are easier to choose for a mean near 0 and a deviation near "
        "1: scale them first"
    )
