"""How long to wait: the deadline that gives most for its time, from what was seen.

With F(T) the share of the total weight that arrives within T seconds, a deadline of T gives F(T) of
a full answer every T seconds at most: the best is argmin T / F(T). F follows from each client's
last durations. Where the work is cut to fit the deadline, F cannot say which one: it is a multiple
of what the way there and back takes then (`for_fitting_work`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.errors import ArgumentError

LAST = 20  # durations of a client that count
TIMES_THE_LINK = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Deadline:
    """A deadline and what is expected of it.

    Attributes:
        seconds: how long to wait; infinity as long as nothing is known: for everybody.
        share: of the total weight, what is expected within it.
        on_time: (N,) the share of each client's answers that is expected within it; NaN for a
            client of which nothing is known.
    """

    seconds: float
    share: float
    on_time: FloatArray


class Durations:
    """How long each client's last answers took, from being asked to arriving.

    Attributes:
        seconds: (N, LAST), in any order; NaN where there are fewer, infinity for an answer that
            was given up.
    """

    def __init__(self, n_clients: int, seconds: npt.ArrayLike | None = None) -> None:
        N = checks.n_clients(n_clients)
        self.seconds: FloatArray = np.full((N, LAST), np.nan)
        if seconds is not None:
            given = np.asarray(seconds, np.float64)
            if given.ndim != 2 or len(given) != N or given.shape[1] > LAST:
                raise ArgumentError(
                    f"seconds must have shape ({N}, at most {LAST}), got {given.shape}"
                )
            if (given < 0).any():
                raise ArgumentError(f"seconds must be >= 0, got {given[given < 0][0]:g}")
            self.seconds[:, : given.shape[1]] = given
        self._next: IntArray = np.count_nonzero(~np.isnan(self.seconds), axis=1) % LAST

    def add(self, clients: IntArray, seconds: FloatArray) -> None:
        """What some answers took, at most one of a client; infinity for one that was given up."""
        self.seconds[clients, self._next[clients]] = seconds
        self._next[clients] = (self._next[clients] + 1) % LAST

    def best(self, weight: FloatArray, waited: FloatArray) -> Deadline:
        """`adaptive` with these durations."""
        return adaptive(self.seconds, weight, waited)


def adaptive(seconds: FloatArray, weight: FloatArray, waited: FloatArray) -> Deadline:
    """T = argmin T / F(T); of equal ones the shortest.

    Args:
        seconds: (N, K) each client's last durations, as in `Durations`.
        weight: (N,) what each client's answers count, such as its number of examples.
        waited: (N,) for how long a client has been working on what it owes; NaN if it owes
            nothing. A job that is older than all of the client's durations counts as one that
            never comes; a younger one says nothing yet.
    """
    seconds = np.asarray(seconds, np.float64)
    weight = checks.finite("weight", weight, shape=(len(seconds),))
    if not ((weight >= 0).all() and weight.sum() > 0):
        raise ArgumentError(f"weight must be >= 0 and not all 0, got {weight.min():g}")
    known = ~np.isnan(seconds)
    came = np.isfinite(seconds)
    longest = np.where(came, seconds, 0.0).max(axis=1, initial=0.0)
    with np.errstate(invalid="ignore"):
        overdue = np.asarray(waited, np.float64) > longest
    n = known.sum(axis=1) + overdue
    if not came.any():
        return Deadline(np.inf, float("nan"), np.where(n > 0, 0.0, np.nan))
    each = weight / weight.sum() / np.maximum(n, 1)
    order, share = _arrivals(seconds, came, each)
    k = int(np.argmin(order / share))
    return Deadline(float(order[k]), float(share[k]), _on_time(seconds, n, float(order[k])))


def _arrivals(
    seconds: FloatArray, came: BoolArray, each: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The durations that were seen, ascending, and the share that arrives within each."""
    of_client, _ = np.nonzero(came)
    values = seconds[came]
    order = np.argsort(values, kind="stable")
    share = np.cumsum(each[of_client[order]])
    values = values[order]
    last = np.append(values[1:] != values[:-1], True)  # of equal durations
    keep = last & (share > 0)
    return values[keep], share[keep]


def _on_time(seconds: FloatArray, n: IntArray, deadline: float) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(n > 0, (seconds <= deadline).sum(axis=1) / n, np.nan))


def for_fitting_work(link: FloatArray) -> float:
    """The deadline where work is cut to fit it: `TIMES_THE_LINK` times what the ways take.

    Args:
        link: (N,) the mean seconds that each client's ways there and back take together. The
            median decides, so that one slow line does not.
    """
    link = checks.finite("link", link, ndim=1)
    if not (len(link) and np.median(link) > 0):
        raise ArgumentError(
            "link must take time for most clients where a deadline follows from it, got "
            f"{link.tolist()[:5]}; give the deadline in seconds"
        )
    return TIMES_THE_LINK * float(np.median(link))


__all__ = ["LAST", "TIMES_THE_LINK", "Deadline", "Durations", "adaptive", "for_fitting_work"]


def __dir__() -> list[str]:
    return __all__
