"""How long rounds take at sites that hold so much, and who is on time.

Quantiles of each site's time for a round are computed once, for as many examples as it owns and for
more, and interpolated between. The terminal and the page both compute from these, with the same
steps; `interpolation_error` compares them with `theory.ticks`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedcommons import checks, delay_table
from fedcommons.checks import FloatArray
from fedcommons.delay_table import DelayTable
from fedcommons.delays import Delays, Recorded, Units
from fedcommons.errors import ArgumentError, DataError
from fedcommons.plan.sites import Sites
from fedcommons.policies import Policy
from fedcommons.theory import ticks
from fedcommons.theory.durations import Presence, quantiles

CHANCES = np.concatenate([[1e-6], np.arange(1, 37) / 40, 1 - 0.1 * 0.7 ** np.arange(1, 21)])
STEPS = 120  # of the integral over a round


@dataclass(frozen=True)
class Timing:
    """How long sites take for a round in which they work on all that they hold.

    Attributes:
        delays: work is counted in examples; a recording's is what the sites own.
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
        raise DataError(f"delays must have a line for each of the {len(own)} sites, got {N}")
    unused = Units(N, lambda block: np.random.default_rng(block))  # nothing is drawn
    law = table.law(per_example, unused)
    in_examples = replace(law, rate=law.rate / per_example)
    presence = Presence.of(table.away, table.away_seconds, N)
    return Timing(in_examples, own, most, presence, words)


def of_recording(
    took: tuple[FloatArray, ...], own: FloatArray, most: FloatArray, words: str
) -> Timing:
    """From recorded seconds of each site, in which it worked on what it owns."""
    N = len(took)
    never = Presence.of(0.0, 1.0, N)
    return Timing(Recorded(took, np.zeros(N, np.int64)), own, most, never, words)


def read(
    source: str,
    sites: Sites,
    *,
    copies: int,
    multiply_adds: float | None = None,
    seed: int = 0,
) -> Timing:
    """How long these sites take, by a table of delays, a recording (.parquet) or `published`.

    Sites are found by their names where all have one in the file, else by their order.

    Args:
        copies: the largest d that is looked at.
        multiply_adds: of an example; needed where rates are multiply-adds a second.
        seed: of the order in which fast and slow devices of the published table are given to sites.
    """
    N, names = sites.n_sites, sites.names
    counts = sites.counts.mean(axis=0)
    own = counts.sum(axis=1)
    offered = (sites.shareable * counts).sum(axis=1)
    extra = copies / (N - 1) * (offered.sum() - offered) if N > 1 else np.zeros(N)
    if source.lower().endswith(".parquet"):
        found = delay_table.read_recording(source)
        _refuse_others(source, names, tuple(found), N)
        names = names or tuple(found)
        took = tuple(found[name] for name in names)
        return of_recording(took, own, own + extra, f"recorded: {source}")
    if source == delay_table.PUBLISHED:
        table = delay_table.published(N)
        table = table.of(tuple(np.random.default_rng(seed).permutation(table.names).tolist()))
    else:
        table = delay_table.read(source)
    if table.named:
        _refuse_others(source, names, table.names, N)
        table = table.of(names or table.names)
    if multiply_adds is None and not table.of_examples:
        raise ArgumentError(
            "multiply-adds must be given where delays count them: 2 an example for each parameter "
            "of the model is usual"
        )
    per_example = 1.0 if table.of_examples else checks.positive("multiply_adds", multiply_adds)
    return of_table(table, own, own + extra, per_example=per_example, words=source)


def _refuse_others(
    source: str, names: tuple[str, ...], found: tuple[str, ...], n_sites: int
) -> None:
    """Refuse delays of other sites than these, whose names may not be known."""
    for name in names:
        if name not in found:
            raise DataError(f"delays {source} must have every site, got none for {name!r}")
    if not names and len(found) != n_sites:
        raise DataError(f"delays {source} must be of the {n_sites} sites, got {len(found)}")


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


__all__ = [
    "CHANCES",
    "STEPS",
    "Timing",
    "interpolation_error",
    "of_recording",
    "of_table",
    "on_time",
    "read",
    "round_seconds",
]


def __dir__() -> list[str]:
    return __all__
