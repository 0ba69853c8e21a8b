"""Which deadline to take: by the hours to the target."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.errors import ArgumentError
from fedcommons.plan.outcome import Outcome, Question, Shared, outcome
from fedcommons.plan.timing import on_time

TRIED = 24  # deadlines, from the shortest that lets everybody answer to the longest answers
FINER = 8  # between the one that is taken of these and the next
SLACK = 1.05  # of the fewest hours


def tried(question: Question, load: FloatArray, n: int = TRIED) -> FloatArray:
    """Deadlines between the first that all sites keep now and then and one that all keep: (n,)."""
    timing = question.timing
    if timing is None:
        raise ArgumentError("delays must be given for a deadline, got none")
    jobs = timing.job_quantiles(load)
    low = float(jobs[1].max())  # in one of 40 rounds
    return np.geomspace(low, max(float(jobs[-1].max()), 1.05 * low), n)


def at_many(question: Question, share: Shared, n: int = TRIED) -> list[Outcome]:
    """The outcomes at n deadlines, from the shortest that makes sense to the longest."""
    grid = tried(question, question.own + share.received, n)
    return [outcome(question, share, T) for T in grid.tolist()]


def best(question: Question, share: Shared) -> Outcome:
    """The outcome with the longest deadline of those that take the fewest hours, within `SLACK`.

    A deadline that is too short costs more than one that is too long: a round ends when everybody
    has answered, and noise costs more than a course says that was not measured.
    """
    grid = tried(question, question.own + share.received)
    found = [outcome(question, share, T) for T in grid.tolist()]
    most = SLACK * min(_hours(one) for one in found)
    k = max(k for k, one in enumerate(found) if _hours(one) <= most)
    if k + 1 == len(grid):
        return found[k]
    finer = np.linspace(grid[k], grid[k + 1], FINER + 2)[1:-1].tolist()
    between = [outcome(question, share, T) for T in finer]
    return [found[k], *(one for one in between if _hours(one) <= most)][-1]


def at(question: Question, share: Shared, deadline: float | None) -> Outcome:
    """The outcome at this deadline; at the best without one, and without any where none is known.

    A deadline that some site cannot keep even without copies is refused, with its name.
    """
    if question.timing is None:
        if deadline is not None:
            raise ArgumentError("deadline must be given with delays, got no delays")
        return outcome(question, share)
    if deadline is None:
        return best(question, share)
    jobs = question.timing.job_quantiles(question.own)
    never = np.flatnonzero(jobs[0] >= deadline)
    if never.size:
        i = int(never[jobs[0][never].argmax()])
        name = question.sites.called[i]
        raise ArgumentError(
            f"deadline must leave every site time to answer, got {deadline:g} s: {name!r} takes "
            f"{jobs[0, i]:.3g} s at least"
        )
    return outcome(question, share, deadline)


def if_remembered(question: Question, share: Shared) -> tuple[float, float]:
    """The deadline for a federation that remembers late answers, and what arrives within it.

    argmin T / F(T) as in `fedcommons.deadlines`, F the share of all weight (how many examples a
    site's answer stands for) that arrives within T. Nothing is said of hours: how training goes on
    late answers, no formula knows.
    """
    timing = question.timing
    if timing is None:
        raise ArgumentError("delays must be given for a deadline, got none")
    jobs = timing.job_quantiles(question.own + share.received)
    times = np.unique(jobs)
    kept = share.sent / max(share.copies, 1) * share.copies / (share.copies + 1)
    weight = question.own - kept + share.received / (share.copies + 1)
    arrives = (1 - question.sites.straggler_prob) * (1 - timing.presence.away)
    F = on_time(jobs, times) @ (weight * arrives) / weight.sum()
    T = np.where(F > 0, times / np.maximum(F, 1e-300), np.inf)
    best = int(T.argmin())
    return float(times[best]), float(F[best])


def _hours(one: Outcome) -> float:
    return np.inf if one.hours is None else one.hours


__all__ = ["at", "at_many", "best", "if_remembered", "tried"]


def __dir__() -> list[str]:
    return __all__
