"""What makes one training another."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcommons import checks, estimators
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError
from fedcommons.stragglers import StragglerModel


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train.

    Attributes:
        estimator: a name of `estimators.ESTIMATORS`, but for the one that waits for everybody;
            `warm` starts memory from everybody's answer at the initial model.
        code: one of `coding.CODES`.
        straggler_prob: p, or p_i by site in the order of names; None estimates it from past rounds.
        learning_rate, decay: the step on the mean gradient, and its factor from round to round.
            Where sites answer with trained models, it scales how far the model follows them.
        local_steps, batch_size: what a site does in a round; 0 is a full batch.
        stragglers: rehearse absences: sites that this model has missing are not asked.
        seed: of the rehearsed absences.
    """

    estimator: str = "coded_sum"
    warm: bool = False
    code: str = "equal-split"
    straggler_prob: float | tuple[float, ...] | None = None
    learning_rate: float = 1.0
    decay: float = 1.0
    local_steps: int = 1
    batch_size: int = 0
    stragglers: StragglerModel | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        known = [e.name for e in estimators.ESTIMATORS.values() if not e.needs_everybody]
        if self.estimator not in known:
            names = ", ".join(known)
            raise ArgumentError(f"estimator must be one of {names}, got {self.estimator!r}")
        _ = CODES[self.code]
        known_as = {  # in one form each: the name of a training goes by them
            "warm": checks.boolean("warm", self.warm),
            "learning_rate": checks.positive("learning_rate", self.learning_rate),
            "decay": checks.positive("decay", self.decay),
            "local_steps": checks.integer("local_steps", self.local_steps, low=1),
            "batch_size": checks.integer("batch_size", self.batch_size, low=0),
            "seed": checks.integer("seed", self.seed, low=0),
        }
        for name, value in known_as.items():
            object.__setattr__(self, name, value)
        if self.warm and not estimators.ESTIMATORS[self.estimator].remembers:
            raise ArgumentError(f"warm needs an estimator that remembers, got {self.estimator}")
        if self.straggler_prob is not None:
            p = checks.straggler_prob(self.straggler_prob, np.size(self.straggler_prob))
            one = np.ndim(self.straggler_prob) == 0
            object.__setattr__(self, "straggler_prob", float(p[0]) if one else tuple(p.tolist()))
        if self.code == "owner-corrected" and (self.local_steps > 1 or self.batch_size):
            raise ArgumentError(
                "code owner-corrected has negative weights, safe with full gradients and one local "
                f"step only, got local_steps {self.local_steps}, batch_size {self.batch_size}"
            )

    def name(self, epoch: int, config: Mapping[str, Any]) -> str:
        """A folder's name: readable, and another one for other settings or another `config`.

        `config` is what the server tells the sites' training functions.
        """
        with np.printoptions(threshold=sys.maxsize):  # a recorded trace is spelt out
            everything = repr((self, sorted(config.items())))
        digest = hashlib.sha256(everything.encode()).hexdigest()[:8]
        warm = "-warm" if self.warm else ""
        return f"epoch{epoch}-{self.code}-{self.estimator.replace('_', '-')}{warm}-{digest}"
