"""What is learnt: losses, each with what it needs of the data; softmax regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcommons.namespace import lazily

if TYPE_CHECKING:
    from fedcommons.tasks import softmax
    from fedcommons.tasks.binary import Binary
    from fedcommons.tasks.cox import Cox
    from fedcommons.tasks.cross_entropy import CrossEntropy
    from fedcommons.tasks.discrete_time import DiscreteTime
    from fedcommons.tasks.loss import Loss
    from fedcommons.tasks.losses import LOSSES, fitted
    from fedcommons.tasks.regression import Huber, Squared
    from fedcommons.tasks.survival import Survival

__all__ = [
    "LOSSES",
    "Binary",
    "Cox",
    "CrossEntropy",
    "DiscreteTime",
    "Huber",
    "Loss",
    "Squared",
    "Survival",
    "fitted",
    "softmax",
]

# A site of a federation needs softmax alone, and is a new process for every message.
__getattr__ = lazily(
    __name__,
    {
        "LOSSES": "losses",
        "Binary": "binary",
        "Cox": "cox",
        "CrossEntropy": "cross_entropy",
        "DiscreteTime": "discrete_time",
        "Huber": "regression",
        "Loss": "loss",
        "Squared": "regression",
        "Survival": "survival",
        "fitted": "losses",
        "softmax": "",
    },
)


def __dir__() -> list[str]:
    return __all__
