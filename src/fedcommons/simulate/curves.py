"""A curve: one way to train, averaged over many runs and drawn as one line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from fedcommons import checks
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS

PARTITIONS = ("iid", "single-class", "dirichlet")


@dataclass(frozen=True, slots=True)
class Curve:
    """One setting of everything that may differ between the lines of a figure.

    Attributes:
        partition: how labels fall on clients: iid, single-class or dirichlet.
        alpha: the concentration of a Dirichlet partition, else 0.
        straggler_prob: p.
        proportion: c.
        copies: d.
        code: equal-split (the paper's), reliability-split or owner-corrected.
        estimator: coded_sum (the paper's), memory, responder_average or wait_for_all.
        warm: whether memory starts from everybody's answer at the initial model.
        learning_rate: eta in the first round.
        decay: its factor from one round to the next.
    """

    partition: str
    alpha: float = 0.0
    straggler_prob: float = 0.0
    proportion: float = 0.0
    copies: int = 0
    code: str = "equal-split"
    estimator: str = "coded_sum"
    warm: bool = False
    learning_rate: float = 0.1
    decay: float = 0.97

    def __post_init__(self) -> None:
        for name, options in (
            ("partition", PARTITIONS),
            ("code", CODES),
            ("estimator", tuple(ESTIMATORS)),
        ):
            if getattr(self, name) not in options:
                raise ArgumentError(
                    f"{name} must be one of {', '.join(options)}, got {getattr(self, name)!r}"
                )
        if self.partition == "dirichlet":
            checks.real("alpha", self.alpha, low=np.finfo(float).tiny)
        elif self.alpha != 0:
            raise ArgumentError(f"alpha must go with the dirichlet partition, got {self.alpha}")
        checks.straggler_prob(self.straggler_prob, 1)
        checks.real("proportion", self.proportion, low=0, high=1)
        checks.integer("copies", self.copies, low=0)
        checks.real("learning_rate", self.learning_rate, low=0)
        checks.real("decay", self.decay, low=0)
        if self.warm and not ESTIMATORS[self.estimator].remembers:
            raise ArgumentError(f"warm must go with the memory estimator, got {self.estimator}")

    @property
    def key(self) -> str:
        """What the curve is, in one line; equal curves have equal keys."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))

    def as_row(self) -> dict[str, Any]:
        """The columns that describe the curve in a table."""
        row = asdict(self)
        row["p"], row["c"], row["d"] = (
            row.pop("straggler_prob"),
            row.pop("proportion"),
            row.pop("copies"),
        )
        return row
