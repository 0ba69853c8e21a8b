"""How often each client is missing, estimated from past rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.errors import ArgumentError

OUTAGE_CHANCE = 0.001  # absences in a row that are less likely than this are an outage,
SHORTEST_OUTAGE = 3  # if they are as many: else a site that became unreliable would not be noticed
PRIOR_PROB, PRIOR_ROUNDS = 0.05, 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """An estimate of every client's straggler probability.

    The estimate for a round uses the rounds before it only (`observe` after the round returns the
    next one), so it does not depend on who answers in the round it is used in. It is the posterior
    mean under a Beta prior: `prior_prob` counts as much as `prior_rounds` observed rounds, and
    nothing exceeds `cap` < 1, beyond which a rare answer would be scaled up without bound. What an
    estimate p^ of p leaves in the mean of a client's answer is the factor (1-p)/(1-p^). The prior
    is what is known before round 1: everybody was just there. A factor below 1 makes the first
    steps shorter; one above 1, from a prior of 1/2, would double them for clients that never miss.

    A client that is away for so long that what was known of it before makes it unlikely
    (`OUTAGE_CHANCE`, under the posterior) has an outage: it counts as it did before, now and when
    it is back. Else its return would be scaled up to make up for all that it missed, at once. If
    absences are independent after all, leaving out their longest runs leaves p^ a little low: the
    factor tends to .96 at p = .9, to .99 up to p = .8.

    Attributes:
        missed, rounds: how often each client was missing, in how many rounds.
        run: how many rounds in a row, up to the last, it has been missing; not in the others yet.
    """

    missed: IntArray
    rounds: IntArray
    run: IntArray
    prior_prob: float = PRIOR_PROB
    prior_rounds: float = PRIOR_ROUNDS
    cap: float = 0.95

    def __post_init__(self) -> None:
        rounds = checks.indices("rounds", self.rounds)
        missed = checks.indices("missed", self.missed, length=len(rounds))
        run = checks.indices("run", self.run, length=len(rounds))
        if (missed > rounds).any():
            worst = int(np.argmax(missed - rounds))
            raise ArgumentError(
                f"missed must not exceed rounds ({rounds[worst]} for client {worst}), "
                f"got {missed[worst]}"
            )
        for name, array in (("missed", missed), ("rounds", rounds), ("run", run)):
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
        prior_prob: float = PRIOR_PROB,
        prior_rounds: float = PRIOR_ROUNDS,
        cap: float = 0.95,
    ) -> Reliability:
        """Nothing observed yet."""
        nothing = np.zeros(checks.n_clients(n_clients), np.int64)
        return cls(nothing, nothing, nothing, prior_prob, prior_rounds, cap)

    def of(self, clients: Sequence[int | None]) -> Reliability:
        """The same knowledge for these clients, in this order; None is one that is new."""
        known = np.array([i is not None for i in clients], np.bool_)
        at = np.array([0 if i is None else i for i in clients], np.int64)
        return replace(
            self,
            missed=np.where(known, self.missed[at], 0),
            rounds=np.where(known, self.rounds[at], 0),
            run=np.where(known, self.run[at], 0),
        )

    @property
    def straggler_prob(self) -> FloatArray:
        """The estimate of p_i for the next round: shape (N,)."""
        return self._estimate(np.where(self.away, 0, self.run))

    @property
    def away(self) -> npt.NDArray[np.bool_]:
        """The clients with an outage: candidates for leaving the federation."""
        return (self.run >= SHORTEST_OUTAGE) & (self._chance_of_run() < OUTAGE_CHANCE)

    def _chance_of_run(self) -> FloatArray:
        """How likely the present absences in a row were before them, (N,); as far as it matters.

        That everybody was there before round 1 counts as one round more: a client that is gone from
        the start has an outage after 8 rounds, not only when it would count 20 times.
        """
        missed = self.missed + self.prior_prob * self.prior_rounds
        rounds = self.rounds + self.prior_rounds + 1
        chance, k = np.ones(len(rounds)), 0
        while ((going := self.run > k) & (chance >= OUTAGE_CHANCE)).any():
            chance = np.where(going, chance * (missed + k) / (rounds + k), chance)
            k += 1
        return chance

    def _estimate(self, run: IntArray) -> FloatArray:
        """The estimate if so many absences follow those that are counted."""
        prior = self.prior_prob * self.prior_rounds
        estimate = (self.missed + run + prior) / (self.rounds + run + self.prior_rounds)
        return np.minimum(estimate, self.cap)

    def observe(self, answered: npt.ArrayLike, asked: npt.ArrayLike | None = None) -> Reliability:
        """The estimate after one more round, in which `answered`, shape (N,), is who answered.

        With `asked`, (N,), it is a round of those alone: who was not asked is neither there nor
        missing.
        """
        answered = checks.mask("answered", answered, len(self.rounds))
        if asked is not None:
            asked = checks.mask("asked", asked, len(self.rounds))
            if (unasked := answered & ~asked).any():
                raise ArgumentError(
                    "answered must be of clients that were asked, got client "
                    f"{int(np.argmax(unasked))}, which was not"
                )
        missed = ~answered if asked is None else asked & ~answered
        counted = np.where(answered & ~self.away, self.run, 0)  # a run that ended, and no outage
        return replace(
            self,
            missed=self.missed + counted,
            rounds=self.rounds + counted + answered,
            run=np.where(answered, 0, self.run + missed),
        )


def history(answered: BoolArray, asked: BoolArray) -> FloatArray:
    """The estimates before each of T rounds, (T, N), as `Reliability` makes them one by one.

    Args:
        answered, asked: (T, N), as in `Reliability.observe`.
    """
    start = Reliability.start(answered.shape[1])
    prior, more = start.prior_prob * start.prior_rounds, start.prior_rounds
    missed, rounds, run = (np.zeros(answered.shape[1]) for _ in range(3))
    chance = np.ones(answered.shape[1])  # of the present absences in a row
    found = np.empty(answered.shape)
    for t, (came, was_asked) in enumerate(zip(answered, asked, strict=True)):
        away = (run >= SHORTEST_OUTAGE) & (chance < OUTAGE_CHANCE)
        open_ones = np.where(away, 0, run)
        found[t] = (missed + open_ones + prior) / (rounds + open_ones + more)
        counted = np.where(came, open_ones, 0)
        more_likely = (missed + prior + run) / (rounds + more + 1 + run)
        chance = np.where(came, 1.0, np.where(was_asked, chance * more_likely, chance))
        missed, rounds = missed + counted, rounds + counted + came
        run = np.where(came, 0, run + (was_asked & ~came))
    return np.minimum(found, start.cap)


__all__ = [
    "OUTAGE_CHANCE",
    "PRIOR_PROB",
    "PRIOR_ROUNDS",
    "SHORTEST_OUTAGE",
    "Reliability",
    "history",
]


def __dir__() -> list[str]:
    return __all__
