"""The losses by name, and fitting one to a dataset."""

from __future__ import annotations

import numpy as np

from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError, DataError
from fedcommons.tasks.binary import Binary
from fedcommons.tasks.cox import Cox
from fedcommons.tasks.cross_entropy import CrossEntropy
from fedcommons.tasks.discrete_time import DiscreteTime
from fedcommons.tasks.loss import Loss, described
from fedcommons.tasks.regression import Huber, Squared

LOSSES: dict[str, type[Loss]] = {
    of.name: of for of in (CrossEntropy, Binary, Squared, Huber, Cox, DiscreteTime)
}


def loss_class(name: object) -> type[Loss]:
    """The loss of this name, before it is fitted to data."""
    if not isinstance(name, str) or name not in LOSSES:
        raise ArgumentError(f"loss must be one of {', '.join(LOSSES)}, got {name!r}")
    return LOSSES[name]


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
    loss_class(name)
    if name == CrossEntropy.name:
        if not dataset.has_labels:
            raise DataError(
                f"dataset {dataset.name}: y must be integer labels for loss {name}, got "
                f"{described(dataset.y_train)}; a loss that fits must be named: "
                f"{', '.join(other for other in LOSSES if other != name)}"
            )
        return CrossEntropy(dataset.n_classes)
    splits = (dataset.y_train, dataset.y_test)
    if name == Huber.name:
        return Huber(dataset.name, *splits, delta=huber_delta)
    if name == DiscreteTime.name:
        return DiscreteTime(dataset.name, *splits, intervals=time_intervals)
    made: dict[str, type[Binary | Squared | Cox]] = {of.name: of for of in (Binary, Squared, Cox)}
    return made[name](dataset.name, *splits)


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
