"""A method: what clients compute, which shares they send, and what the server infers.

Studies and federations have the same one, with the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedcommons import checks
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS
from fedcommons.optimizers import OPTIMIZERS


@dataclass(frozen=True, slots=True)
class Method:
    """How to train on a placement.

    Attributes:
        code: a name of `coding.CODES`.
        estimator: a name of `estimators.ESTIMATORS`.
        warm: whether memory starts from everybody's answer at the initial model.
        local_steps: steps that a client takes in a round.
        batch_size: examples of a client in a step; None for all of them.
        server_optimizer: a name of `optimizers.OPTIMIZERS`.
    """

    code: str = "equal-split"
    estimator: str = "coded_sum"
    warm: bool = False
    local_steps: int = 1
    batch_size: int | None = None
    server_optimizer: str = "sgd"

    def __post_init__(self) -> None:
        one_step = CODES[self.code].one_step
        remembers = ESTIMATORS[self.estimator].remembers
        OPTIMIZERS[self.server_optimizer]
        checks.boolean("warm", self.warm)
        checks.integer("local_steps", self.local_steps, low=1)
        if self.batch_size is not None:
            checks.integer("batch_size", self.batch_size, low=1)
        if self.warm and not remembers:
            raise ArgumentError(
                f"warm must go with an estimator that remembers, got {self.estimator}"
            )
        if one_step and self.local_steps > 1:
            raise ArgumentError(
                f"local_steps must be 1 for the code {self.code}: negative weights are unsafe with "
                f"several steps, got {self.local_steps}"
            )
