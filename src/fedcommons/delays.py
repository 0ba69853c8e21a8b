"""How long clients take: for so much work, over links that fail, through stalls and absences.

A law turns the uniform numbers of a job into its seconds. Jobs are counted for each client, and a
job's numbers depend on the client and the count alone (`Units`), so that two ways to train see the
same luck wherever they give a client its k-th job. Absences depend on the time alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.errors import ArgumentError

UNITS = 4  # uniform numbers of a job: computing, stalling, the way there and the way back
NUMBERS_AT_ONCE = 1 << 13  # drawn together, about: jobs of all clients
SERVICES = ("exponential", "lognormal", "pareto")


class Delays(Protocol):
    """How long a job of each client takes while the client is there."""

    def seconds(self, clients: IntArray, jobs: IntArray, work: FloatArray) -> FloatArray:
        """Of the `jobs`-th job, counted from 0, with `work` multiply-adds: (n,) each."""
        ...

    def mean(self, work: FloatArray) -> FloatArray:
        """The mean seconds of every client's job, for work (N,): (N,)."""
        ...

    def links(self) -> FloatArray:
        """The mean seconds that each client's two ways take: (N,)."""
        ...

    def least(self, work: FloatArray) -> FloatArray:
        """What no job of each client takes less than, for work (N,): (N,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """Seconds = work / rate, with chance, + a stall + a way there and a way back.

    With r the seconds that the work takes by the rate alone, computing takes

    - exponential: r + Exp(mean spread r), the shifted exponential law of coded computing;
    - lognormal: r exp(spread Z - spread^2 / 2), with mean r;
    - pareto: r (1 + spread X), X of mean 1 with a tail of exponent `tail`.

    A stall lasts stall X, whatever the work, X Pareto with mean 1 and exponent `tail`. Each of the
    two ways takes link / 2 seconds an attempt, and an attempt fails with probability `failure`.

    Attributes:
        rate: (N,) multiply-adds a second; infinity for a client that computes in no time.
        spread, stall, link, failure: (N,) each.
        service: one of `SERVICES`.
        tail: the exponent of Pareto laws, above 1.
        units: the uniform numbers of jobs.
    """

    rate: FloatArray
    spread: FloatArray
    stall: FloatArray
    link: FloatArray
    failure: FloatArray
    units: Units
    service: str = "exponential"
    tail: float = 1.5

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.rate)))
        rate = np.asarray(self.rate, np.float64)
        if rate.ndim != 1 or not (rate > 0).all():
            bad = rate if rate.ndim != 1 else rate[~(rate > 0)][0]
            raise ArgumentError(f"rate must be one number > 0 for each client, got {bad}")
        for name in ("spread", "stall", "link", "failure"):
            values = checks.per_entry(name, getattr(self, name), n, "client")
            top = 1.0 if name == "failure" else np.inf
            bad_ones = ~((values >= 0) & (values < top))
            if bad_ones.any():
                rule = "in [0, 1)" if name == "failure" else ">= 0 and finite"
                raise ArgumentError(f"{name} must be {rule}, got {values[bad_ones][0]:g}")
            object.__setattr__(self, name, values)
        object.__setattr__(self, "rate", rate)
        if self.service not in SERVICES:
            raise ArgumentError(
                f"service must be one of {', '.join(SERVICES)}, got {self.service!r}"
            )
        if not checks.real("tail", self.tail, low=1) > 1:
            raise ArgumentError(f"tail must be > 1, or the mean is infinite, got {self.tail:g}")

    def seconds(self, clients: IntArray, jobs: IntArray, work: FloatArray) -> FloatArray:
        u = self.units.of(clients, jobs)
        computing = work / self.rate[clients] * self._chance(u[:, 0], self.spread[clients])
        stall, half = self.stall[clients], self.link[clients] / 2
        if stall.any():
            computing = computing + stall * _pareto(u[:, 1], self.tail)
        ways = _attempts(u[:, 2:], self.failure[clients, None]).sum(axis=1)
        return np.asarray(computing + half * ways)

    def mean(self, work: FloatArray) -> FloatArray:
        more = 1 if self.service == "lognormal" else 1 + self.spread
        return work / self.rate * more + self.stall + self.links()

    def links(self) -> FloatArray:
        return self.link / (1 - self.failure)

    def least(self, work: FloatArray) -> FloatArray:
        shortest = {
            "exponential": np.ones(len(self.rate)),
            "lognormal": (self.spread == 0) * 1.0,
            "pareto": 1 + self.spread * (1 - 1 / self.tail),
        }
        stall = self.stall * (1 - 1 / self.tail)
        return work / self.rate * shortest[self.service] + stall + self.link

    def _chance(self, u: FloatArray, spread: FloatArray) -> FloatArray:
        if self.service == "exponential":
            return 1 - spread * np.log1p(-u)
        if self.service == "pareto":
            return 1 + spread * _pareto(u, self.tail)
        from scipy.special import ndtri  # slow to import, and only this needs it

        return np.asarray(np.exp(spread * ndtri(u) - spread**2 / 2))


def _pareto(u: FloatArray, tail: float) -> FloatArray:
    """Mean 1, on (1 - 1/tail, infinity)."""
    return np.asarray((1 - 1 / tail) * (1 - u) ** (-1 / tail))


def _attempts(u: FloatArray, failure: FloatArray) -> FloatArray:
    """How often something is sent until it arrives: geometric, 1 without failures."""
    with np.errstate(divide="ignore"):
        tries = np.ceil(np.log1p(-u) / np.log(failure))
    return np.where(failure > 0, np.maximum(tries, 1), 1.0)


class Units:
    """The uniform numbers in [0, 1) of every client's jobs, drawn when they are asked for.

    `stream` gives the generator of a block of jobs, by its number: the numbers do not depend on
    who asks first.
    """

    def __init__(self, n_clients: int, stream: Callable[[int], np.random.Generator]) -> None:
        self._n_clients, self._stream = checks.n_clients(n_clients), stream
        self._jobs_at_once = max(1, NUMBERS_AT_ONCE // (UNITS * self._n_clients))
        self._blocks: dict[int, npt.NDArray[np.float64]] = {}

    def of(self, clients: IntArray, jobs: IntArray) -> FloatArray:
        """(n, UNITS) for the `jobs`-th job of each of these clients."""
        block, place = np.divmod(jobs, self._jobs_at_once)
        found = np.empty((len(clients), UNITS))
        for b in np.unique(block).tolist():
            if b not in self._blocks:
                shape = (self._jobs_at_once, self._n_clients, UNITS)
                self._blocks[b] = self._stream(b).random(shape)
            here = block == b
            found[here] = self._blocks[b][place[here], clients[here]]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Jobs take what a recording says, whatever the work, one after another and then again.

    Attributes:
        took: for each client, the seconds of its recorded jobs, at least one.
        first: (N,) the recorded job that each client's first one is.
    """

    took: tuple[FloatArray, ...]
    first: IntArray

    def __post_init__(self) -> None:
        for client, seconds in enumerate(self.took):
            if not len(seconds) or not (np.isfinite(seconds).all() and (seconds >= 0).all()):
                raise ArgumentError(
                    f"took must be one or more finite seconds >= 0 for each client, got "
                    f"{'none' if not len(seconds) else seconds.min()} for client {client}"
                )

    def seconds(self, clients: IntArray, jobs: IntArray, work: FloatArray) -> FloatArray:  # noqa: ARG002
        return np.array(
            [
                self.took[i][(self.first[i] + k) % len(self.took[i])]
                for i, k in zip(clients.tolist(), jobs.tolist(), strict=True)
            ],
            np.float64,
        )

    def mean(self, work: FloatArray) -> FloatArray:  # noqa: ARG002
        return np.array([seconds.mean() for seconds in self.took])

    def links(self) -> FloatArray:
        """What of a duration was the link is not recorded."""
        return np.zeros(len(self.took))

    def least(self, work: FloatArray) -> FloatArray:
        """With work at all, the shortest that was recorded."""
        return np.array([seconds.min() for seconds in self.took]) * (work > 0)


class Absences:
    """When each client is away: it comes and goes, and its work waits while it is away.

    Away and there follow each other with exponential lengths, in the long run a `share` of the time
    away, `mean_seconds` at a time; the beginning is drawn from the long run. After `horizon`
    everybody is there.
    """

    def __init__(
        self,
        share: npt.ArrayLike,
        mean_seconds: npt.ArrayLike,
        n_clients: int,
        *,
        horizon: float,
        rng: np.random.Generator,
    ) -> None:
        N = checks.n_clients(n_clients)
        share = checks.per_entry("share", share, N, "client")
        length = checks.per_entry("mean_seconds", mean_seconds, N, "client")
        if not ((share >= 0) & (share < 1)).all():
            raise ArgumentError(
                f"share must be in [0, 1), got {share[(share < 0) | (share >= 1)][0]:g}"
            )
        if not ((length > 0) & np.isfinite(length))[share > 0].all():
            raise ArgumentError(f"mean_seconds must be > 0 and finite, got {length.min():g}")
        horizon = checks.positive("horizon", horizon)
        self.share = share
        # Where each client turns away and where it comes back, in turn, client after client.
        edges = [
            _edges(share[i], length[i], horizon, one) if share[i] > 0 else np.empty(0)
            for i, one in enumerate(rng.spawn(N))
        ]
        self._first = np.concatenate([[0], np.cumsum([len(e) // 2 for e in edges])])
        every = np.concatenate(edges)
        self._away, self._again = every[0::2], every[1::2]
        # How long a client has been away before each of its absences, and after the last; how long
        # it has been there when each begins.
        gone = [np.concatenate([[0.0], np.cumsum(e[1::2] - e[0::2])]) for e in edges]
        self._gone = np.concatenate(gone)
        self._there = self._away - np.concatenate([g[:-1] for g in gone])

    def back(self, clients: IntArray, when: float) -> FloatArray:
        """When each client is there next, `when` or later: (n,)."""
        found = np.full(len(clients), when)
        begun = self._begun(self._away, clients, found, or_equal=True)
        last = self._first[clients] + begun - 1
        inside = begun > 0
        inside[inside] = self._again[last[inside]] > when
        found[inside] = self._again[last[inside]]
        return found

    def done(self, clients: IntArray, begun: FloatArray, seconds: FloatArray) -> FloatArray:
        """When jobs end that were begun then, while the client was there: (n,).

        They take so long without counting the time that it is away.
        """
        gone = self._first[clients] + clients  # each client has one number more there
        before = self._begun(self._away, clients, begun, or_equal=False)
        until = begun - self._gone[gone + before] + seconds  # by the time that it is there
        after = self._begun(self._there, clients, until, or_equal=False)
        return np.asarray(until + self._gone[gone + np.maximum(before, after)])

    def _begun(
        self, starts: FloatArray, clients: IntArray, when: FloatArray, *, or_equal: bool
    ) -> IntArray:
        """How many of each client's numbers are below `when`, or up to it: (n,)."""
        low, high = self._first[clients], self._first[clients + 1]
        first = low
        while (open_ones := low < high).any():
            middle = (low + high) // 2
            at = starts[np.where(open_ones, middle, 0)]
            passed = open_ones & ((at <= when) if or_equal else (at < when))
            low = np.where(passed, middle + 1, low)
            high = np.where(open_ones & ~passed, middle, high)
        return np.asarray(low - first)


def _edges(share: float, length: float, horizon: float, rng: np.random.Generator) -> FloatArray:
    there = length * (1 - share) / share
    edges: list[float] = []
    now = 0.0 if rng.random() < share else rng.exponential(there)
    while now < horizon:
        edges += [now, now + rng.exponential(length)]
        now = edges[-1] + rng.exponential(there)
    return np.array(edges)


def coded_padded_fl(n_clients: int) -> FloatArray:
    """The multiply-adds a second of 25 devices, spread over N clients: (N,), fastest first.

    Schlegel, Kumar, Rosnes and Graell i Amat, CodedPaddedFL and CodedSecAgg, IEEE Transactions on
    Communications 71(4), 2023 (arXiv 2112.08909): ten devices of 25 million, five each of 5, 2.5
    and 1.25 million.
    """
    table = np.repeat([25e6, 5e6, 2.5e6, 1.25e6], [10, 5, 5, 5])
    N = checks.n_clients(n_clients)
    return table[(np.arange(N) * 2 + 1) * len(table) // (2 * N)]


CODED_PADDED_FL = {"spread": 0.5, "link": 0.26 * 0.9, "failure": 0.1}
"""What else they assume: exponential set-up times of half the computing time on average, and
attempts that fail with probability 0.1; both ways together take 0.26 s on average."""


def where_away(absences: Absences | None, n_clients: int, when: float) -> BoolArray:
    """Who is away at a time: (N,)."""
    if absences is None:
        return np.zeros(n_clients, np.bool_)
    return absences.back(np.arange(n_clients), when) > when


__all__ = [
    "CODED_PADDED_FL",
    "Absences",
    "Delays",
    "Law",
    "Recorded",
    "Units",
    "coded_padded_fl",
    "where_away",
]


def __dir__() -> list[str]:
    return __all__
