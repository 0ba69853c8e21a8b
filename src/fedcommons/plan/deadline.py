"""Which deadline to take: the one with the fewest hours to the target."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.errors import ArgumentError
from fedcommons.plan.outcome import Outcome, Question, Shared, outcome

TRIED = 24  # deadlines, from the shortest that lets everybody answer to the longest answers
FINER = 8  # between the best of these and its neighbours


def tried(question: Question, load: FloatArray, n: int = TRIED) -> FloatArray:
    """Deadlines between the first that all sites keep now and then and one that all keep: (n,)."""
    timing = question.timing
    if timing is None:
        raise ArgumentError("delays must be given for a deadline, got none")
    jobs = timing.job_quantiles(load)
    low = float(jobs[1].max())  # in one of 40 rounds
    return np.geomspace(low, max(float(jobs[-1].max()), 1.05 * low), n)


def best(question: Question, share: Shared) -> Outcome:
    """The outcome with the deadline that takes the fewest hours."""
    grid = tried(question, question.own + share.received)
    found = [outcome(question, share, T) for T in grid.tolist()]
    k = _fewest(found)
    low, high = grid[max(0, k - 1)], grid[min(len(grid) - 1, k + 1)]
    finer = np.linspace(low, high, FINER + 2)[1:-1].tolist()
    found += [outcome(question, share, T) for T in finer]
    return found[_fewest(found)]


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


def _fewest(found: list[Outcome]) -> int:
    return int(np.argmin([np.inf if one.hours is None else one.hours for one in found]))


__all__ = ["at", "best", "tried"]


def __dir__() -> list[str]:
    return __all__
