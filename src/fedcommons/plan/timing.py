"""How long rounds take at sites that hold so much, and who is on time.

Quantiles of each site's time for a round are computed once, for as many examples as it owns and for
more, and interpolated between. The terminal and the page both compute from these, with the same
steps; `interpolation_error` compares them with `theory.ticks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.delay_table import DelayTable
from fedcommons.delays import Delays, Recorded, Units
from fedcommons.errors import ArgumentError
from fedcommons.policies import Policy
from fedcommons.theory import ticks
from fedcommons.theory.durations import Presence, quantiles

CHANCES = np.concatenate([[1e-6], np.arange(1, 37) / 40, 1 - 0.1 * 0.7 ** np.arange(1, 21)])
STEPS = 120  # of the integral over a round


@dataclass(frozen=True)
class Timing:
    """How long sites take for a round in which they work on all that they hold.

    Attributes:
        delays: of one example a unit of work; a recording's are of as many as the sites own.
        own: (N,) examples that each owns.
        most: (N,) that each may hold with copies, at most.
        presence: when sites are away.
        words: where this is from.
    """

    delays: Delays
    own: FloatArray
    most: FloatArray
    presence: Presence
    words: str

    def at(self, load: FloatArray) -> Delays:
        """The delays for so many examples; recorded times grow with them in proportion."""
        if not isinstance(self.delays, Recorded):
            return self.delays
        grown = load / np.maximum(self.own, 1)
        took = tuple(s * g for s, g in zip(self.delays.took, grown.tolist(), strict=True))
        return Recorded(took, self.delays.first)

    @cached_property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """The seconds that each site takes with the chances `CHANCES`: (U, N) for own and most."""
        first, last = (
            quantiles(self.at(load), load, CHANCES, presence=self.presence)
            for load in (self.own, self.most)
        )
        return first, last

    def job_quantiles(self, load: FloatArray) -> FloatArray:
        """The same for as many examples as `load`, (N,): (U, N)."""
        first, last = self.ends
        return first + (last - first) * self.filled(load)

    def filled(self, load: FloatArray) -> FloatArray:
        """How far each load is from `own` to `most`: (N,)."""
        room = self.most - self.own
        return np.where(room > 0, (load - self.own) / np.where(room > 0, room, 1), 0.0)

    def mean(self, load: FloatArray) -> FloatArray:
        """The mean seconds of each site's answer: (N,)."""
        return self.at(load).mean(load) / (1 - self.presence.away)


def of_table(
    table: DelayTable, own: FloatArray, most: FloatArray, *, per_example: float, words: str
) -> Timing:
    """From a table of delays, with so many multiply-adds an example."""
    N = len(table)
    if len(own) != N:
        raise ArgumentError(f"delays must have a line for each of {len(own)} sites, got {N}")
    unused = Units(N, lambda block: np.random.default_rng(block))  # nothing is drawn
    law = table.law(per_example, unused)
    presence = Presence.of(table.away, table.away_seconds, N)
    return Timing(law, own * per_example, most * per_example, presence, words)


def on_time(jobs: FloatArray, seconds: FloatArray) -> FloatArray:
    """How likely each site answers within so long, by its quantiles (U, N): (T, N)."""
    found = np.empty((len(seconds), jobs.shape[1]))
    for i, column in enumerate(jobs.T):
        found[:, i] = np.interp(seconds, column, CHANCES, left=0.0)
    return found


def round_seconds(jobs: FloatArray, there: FloatArray, away: FloatArray, deadline: float) -> float:
    """The mean seconds of a round.

    int_0^T (1 - prod_i c_i(t)) dt with c_i = a_i + (1 - a_i) s_i F_i.

    Args:
        jobs: (U, N) quantiles.
        there: (N,) s_i, how likely a site that is asked answers at all.
        away: (N,) a_i, how often it is known to be away, and is not asked.
        deadline: T.
    """
    asked = away < 1
    begin = min(float(np.where(asked & (away == 0), jobs[0], 0.0).max()), deadline)
    times = begin + (deadline - begin) * np.arange(STEPS + 1) / STEPS
    closed = (away + (1 - away) * there * on_time(jobs, times)).prod(axis=1)
    return float(
        deadline - (deadline - begin) / STEPS * (closed.sum() - (closed[0] + closed[-1]) / 2)
    )


def interpolation_error(timing: Timing, deadlines: FloatArray) -> float:
    """The largest relative error of a round's seconds, against the laws themselves.

    At loads halfway between those that are known, where interpolation is worst.
    """
    load = (timing.own + timing.most) / 2
    jobs, N = timing.job_quantiles(load), len(load)
    worst = 0.0
    for T in deadlines.tolist():
        policy = Policy("deadline", deadline=checks.positive("deadline", T))
        exact = ticks.forecast(timing.at(load), policy, load, presence=timing.presence).seconds
        found = round_seconds(jobs, np.ones(N), timing.presence.away, T)
        worst = max(worst, abs(found - exact) / exact)
    return worst
