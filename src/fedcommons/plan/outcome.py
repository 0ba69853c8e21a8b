"""What one way to share brings: each site with a part of its own, d copies and a deadline.

The page computes the same in the browser (figures/decision.js); a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.errors import ArgumentError
from fedcommons.plan.course import Course
from fedcommons.plan.options import Prices, distance_after
from fedcommons.plan.sites import Sites
from fedcommons.plan.timing import Timing, on_time, round_seconds
from fedcommons.stragglers import odds
from fedcommons.theory import expected_variance
from fedcommons.theory.expected_variance import Geometry
from fedcommons.theory.own_part import gain_when_absent

NEVER = 1 - 1e-9  # a site that misses more rounds than this is never heard


@dataclass(frozen=True)
class Question:
    """Who would share, and what is known of them: all that a decision rests on.

    Attributes:
        sites: who takes part; `straggler_prob` is how often each is missing whatever the deadline.
        geometry: how alike gradients are.
        prices: of moving a record, and computing on one.
        course: how many rounds it takes.
        timing: how long sites take; None if that is not known.
        code: how holders share an example.
    """

    sites: Sites
    geometry: Geometry
    prices: Prices
    course: Course
    timing: Timing | None = None
    code: str = "equal-split"

    @cached_property
    def gradient(self) -> float:
        """E|g|^2 of the full gradient in the first round."""
        return expected_variance.gradient_norm2(self.sites.counts[0].sum(axis=0), self.geometry)

    @cached_property
    def alone(self) -> float:
        """E|g^ - g|^2 without sharing, with nobody late."""
        nothing = np.zeros(self.sites.n_sites)
        return float(risk(self.sites.straggler_prob) @ shared(self, nothing, 0).answers)

    @cached_property
    def own(self) -> FloatArray:
        """(N,) how many examples each owns."""
        return np.asarray(self.sites.counts.mean(axis=0).sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """What sites share, and what follows from that alone.

    Attributes:
        copies: d.
        offered: (draws, N, L) examples that they share.
        sent, received: (N,) records.
        answers: (N,) E|f_i|^2 of each site's answer in the first round.
        heterogeneity: |Y - Theta*|^2 after sharing (Theorem 1), the mean over classes.
    """

    copies: int
    offered: FloatArray
    sent: FloatArray
    received: FloatArray
    answers: FloatArray
    heterogeneity: float


def shared(question: Question, parts: npt.ArrayLike, copies: int) -> Shared:
    """Each site shares this part of what it may, one number or (N,), with d others."""
    sites, d = question.sites, checks.copies(copies, question.sites.n_sites)
    N, counts = sites.n_sites, sites.counts
    part = checks.proportions("parts", parts, N, "site")
    offered = part[:, None] * sites.shareable * counts
    each = offered.mean(axis=0).sum(axis=1)
    answers = [
        expected_variance.answers_norm2(
            count, offer, d, question.geometry, code=question.code,
            straggler_prob=sites.straggler_prob,
        )
        for count, offer in zip(counts, offered, strict=True)
    ]  # fmt: skip
    received = d / (N - 1) * (each.sum() - each) if d else np.zeros(N)
    return Shared(
        d, offered, d * each, received, np.mean(answers, axis=0), distance_after(sites, offered, d)
    )


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What it brings.

    Attributes:
        copies: d.
        deadline: seconds that a round waits at most; None without times.
        heterogeneity: |Y - Theta*|^2 after sharing (Theorem 1), the mean over classes.
        variance: of the first round's estimate, relative to no sharing with nobody late.
        noise: the same over the squared gradient.
        rounds: until the target.
        seconds: of a round, on average; None without times.
        hours: until the target.
        moved: records copied.
        extra_compute: held copies over owned examples.
        cost: of both, at the prices.
        straggler_prob: (N,) how often each site's answer is missing, lateness included.
        sent, received: (N,) records.
        extra_load: (N,) received copies over owned examples.
        extra_seconds: (N,) how much longer each takes for its answer, on average; None without
            times.
        gain: (N,) how much of the error of its own part of the gradient goes away when it is
            absent.
    """

    copies: int
    deadline: float | None
    heterogeneity: float
    variance: float
    noise: float
    rounds: float
    seconds: float | None
    hours: float | None
    moved: float
    extra_compute: float
    cost: float
    straggler_prob: FloatArray
    sent: FloatArray
    received: FloatArray
    extra_load: FloatArray
    extra_seconds: FloatArray | None
    gain: FloatArray


def outcome(question: Question, share: Shared, deadline: float | None = None) -> Outcome:
    """What it brings; `deadline` is needed where times are known."""
    sites, timing, d = question.sites, question.timing, share.copies
    if (timing is None) != (deadline is None):
        raise ArgumentError("deadline must be given exactly where delays are")
    p, seconds, extra = sites.straggler_prob, None, None
    load = question.own + share.received
    if timing is not None and deadline is not None:
        p, seconds = late_and_seconds(timing, load, p, deadline)
        extra = timing.mean(load) - timing.mean(question.own)
    r = risk(p)
    heard = np.isfinite(r).all()
    variance = float(r @ share.answers) if heard else np.inf
    noise = variance / question.gradient if question.gradient else 0.0
    rounds = question.course.at(noise) if heard else np.inf
    gains = [
        gain_when_absent(counts, offer, d, question.geometry, straggler_prob=np.minimum(p, NEVER))
        for counts, offer in zip(sites.counts, share.offered, strict=True)
    ]
    moved, prices = float(share.sent.sum()), question.prices
    return Outcome(
        copies=d,
        deadline=deadline,
        heterogeneity=share.heterogeneity,
        variance=variance / question.alone if question.alone else 1.0,
        noise=noise,
        rounds=rounds,
        seconds=seconds,
        hours=None if seconds is None else rounds * seconds / 3600,
        moved=moved,
        extra_compute=moved / sites.n_examples,
        cost=moved * (prices.record + prices.compute * prices.rounds),
        straggler_prob=p,
        sent=share.sent,
        received=share.received,
        extra_load=share.received / np.maximum(question.own, 1),
        extra_seconds=extra,
        gain=np.mean(gains, axis=0),
    )


def if_it_kept(
    question: Question, parts: npt.ArrayLike, copies: int, deadline: float | None = None
) -> FloatArray:
    """What each site, if it alone shared nothing, would make of the whole: (N,).

    The hours until the target, over those with its copies; without times the noise.
    """
    N = question.sites.n_sites
    part = np.array(checks.proportions("parts", parts, N, "site"))

    def measure(one: FloatArray) -> float:
        found = outcome(question, shared(question, one, copies), deadline)
        return found.noise if found.hours is None else found.hours

    whole, ratios = measure(part), np.ones(N)
    for i in np.flatnonzero(part).tolist():
        rest = part.copy()
        rest[i] = 0.0
        kept = measure(rest)
        ratios[i] = kept / whole if whole and np.isfinite(whole) else np.nan
    return ratios


def late_and_seconds(
    timing: Timing, load: FloatArray, missing: FloatArray, deadline: float
) -> tuple[FloatArray, float]:
    """How often each site's answer is missing, (N,), and a round's mean seconds."""
    T = checks.positive("deadline", deadline)
    jobs, away = timing.job_quantiles(load), timing.presence.away
    in_time = on_time(jobs, np.array([T]))[0]
    p = 1 - (1 - missing) * (1 - away) * in_time
    return p, round_seconds(jobs, 1 - missing, away, T)


def risk(p: FloatArray) -> FloatArray:
    """r_i = p_i / (1 - p_i), infinite for a site that is never heard."""
    never = p > NEVER
    return np.where(never, np.inf, odds(np.where(never, 0.0, p), len(p)))


__all__ = [
    "NEVER",
    "Outcome",
    "Question",
    "Shared",
    "if_it_kept",
    "late_and_seconds",
    "outcome",
    "shared",
]


def __dir__() -> list[str]:
    return __all__
