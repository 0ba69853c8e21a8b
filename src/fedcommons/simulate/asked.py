"""Whom the rounds of a study ask: drawn before it begins, or by norms, as its rounds come.

Curves of a run draw from the same numbers: at the same size they ask the same clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcommons import asking
from fedcommons.asking import Ask
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.estimators import Arrivals
from fedcommons.streams import stream


def units(n_clients: int, t: int, *, seed: int, run: int) -> FloatArray:
    """The uniform numbers by which a round chooses: (N,)."""
    return stream(seed, "asked", run, t).random(n_clients)


def drawn(ask: Ask, can: BoolArray, t: int, *, seed: int, run: int) -> BoolArray:
    """Whom a round asks, by a choice that goes by nothing that it has seen: (N,)."""
    return ask.chosen(ask.probs(can), units(len(can), t, seed=seed, run=run))


@dataclass(frozen=True, slots=True, eq=False)
class ByNorms:
    """Chooses in every round by what was seen before it.

    Attributes:
        there: (T, N) who answers if asked.
        straggler_prob: (N,) what the server takes for p.
        norms: (N,) how much each client's last answer changed; NaN before its first. It is filled
            as answers come.
    """

    ask: Ask
    there: BoolArray
    straggler_prob: FloatArray
    norms: FloatArray
    seed: int
    run: int

    def choose(self, t: int) -> tuple[Arrivals, FloatArray]:
        """Who is asked in a round and answers, and what the estimator takes for p: (N,) each."""
        N = len(self.norms)
        probs = self.ask.probs(np.ones(N, np.bool_), self.straggler_prob, self.norms)
        asked = self.ask.chosen(probs, units(N, t, seed=self.seed, run=self.run))
        p = asking.missing_prob(probs, self.straggler_prob)
        return Arrivals(asked & self.there[t], asked, np.zeros(N, np.bool_)), p
