"""What is learnt: losses, each with what it needs of the data; softmax regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcommons.namespace import lazily

if TYPE_CHECKING:
    from fedcommons.tasks import softmax
    from fedcommons.tasks.loss import Loss
    from fedcommons.tasks.losses import LOSSES, fitted

__all__ = ["LOSSES", "Loss", "fitted", "softmax"]

# A site of a federation needs softmax alone, and is a new process for every message.
__getattr__ = lazily(
    __name__, {"LOSSES": "losses", "Loss": "loss", "fitted": "losses", "softmax": ""}
)


def __dir__() -> list[str]:
    return __all__
