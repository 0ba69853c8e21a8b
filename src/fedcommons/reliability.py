"""How often each client is missing, estimated from past rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """An estimate of every client's straggler probability.

    The estimate for a round uses the rounds before it only (`observe` after the round returns the
    next one), so it does not depend on who answers in the round it is used in. It is the posterior
    mean under a Beta prior: `prior_prob` counts as much as `prior_rounds` observed rounds, and
    nothing exceeds `cap` < 1, beyond which a rare answer would be scaled up without bound. What an
    estimate p^ of p leaves in the mean of a client's answer is the factor (1-p)/(1-p^).
    """

    missed: IntArray
    rounds: IntArray
    prior_prob: float = 0.5
    prior_rounds: float = 2.0
    cap: float = 0.95

    def __post_init__(self) -> None:
        rounds = checks.indices("rounds", self.rounds)
        missed = checks.indices("missed", self.missed, length=len(rounds))
        if (missed > rounds).any():
            worst = int(np.argmax(missed - rounds))
            raise ArgumentError(
                f"missed must not exceed rounds ({rounds[worst]} for client {worst}), "
                f"got {missed[worst]}"
            )
        for name, array in (("missed", missed), ("rounds", rounds)):
            frozen = array.copy()
            frozen.flags.writeable = False
            object.__setattr__(self, name, frozen)
        checks.positive("prior_rounds", self.prior_rounds)
        for name, value in (("prior_prob", self.prior_prob), ("cap", self.cap)):
            if not 0 <= checks.real(name, value, low=0, high=1) < 1:
                raise ArgumentError(f"{name} must be in [0, 1), got {value}")

    @classmethod
    def start(
        cls,
        n_clients: int,
        *,
        prior_prob: float = 0.5,
        prior_rounds: float = 2.0,
        cap: float = 0.95,
    ) -> Reliability:
        """Nothing observed yet."""
        nothing = np.zeros(checks.n_clients(n_clients), np.int64)
        return cls(nothing, nothing, prior_prob, prior_rounds, cap)

    @property
    def straggler_prob(self) -> FloatArray:
        """The estimate of p_i for the next round: shape (N,)."""
        prior = self.prior_prob * self.prior_rounds
        return np.minimum((self.missed + prior) / (self.rounds + self.prior_rounds), self.cap)

    @property
    def at_cap(self) -> npt.NDArray[np.bool_]:
        """The clients whose estimate the cap holds down: candidates for leaving the federation."""
        return self.straggler_prob >= self.cap

    def observe(self, answered: npt.ArrayLike) -> Reliability:
        """The estimate after one more round, in which `answered`, shape (N,), is who answered."""
        answered = checks.mask("answered", answered, len(self.rounds))
        return replace(self, missed=self.missed + ~answered, rounds=self.rounds + 1)
