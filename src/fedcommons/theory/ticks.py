"""How long a tick takes on average, and who answers in time: from the laws of clients' jobs.

Clients are independent, so that all is products of their distribution functions F_i
(`durations.within`), integrated over time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.delays import Delays
from fedcommons.errors import ArgumentError
from fedcommons.policies import Policy
from fedcommons.theory.durations import Presence, quantiles, within

STEPS = 400  # of the integrals over a tick
REST = 1e-6  # of a tick without an end, left out
FAR = 1e6  # times the mean of the slowest, after which nothing is looked at
TIMES_ROUND = 12  # of finding out what follows from each other


@dataclass(frozen=True, slots=True, eq=False)
class TickForecast:
    """What a tick is like in the long run.

    Attributes:
        seconds: how long it takes on average.
        on_time: (N,) the probability that each client, if it is asked, answers in time.
        asked: (N,) the share of the ticks in which each is asked.
    """

    seconds: float
    on_time: FloatArray
    asked: FloatArray

    @property
    def straggler_prob(self) -> FloatArray:
        """(N,) the share of the ticks in which each client's answer to that tick is missing."""
        return 1 - self.asked * self.on_time


def forecast(
    delays: Delays,
    policy: Policy,
    work: FloatArray,
    *,
    presence: Presence | None = None,
) -> TickForecast:
    """The tick of clients with these delays and so much work, (N,) multiply-adds, under a policy.

    - all: E max_i D_i. Exact without absences.
    - fastest:K, where late answers are discarded and nobody is ever away: the mean of the K-th
      smallest of the D_i. Exact.
    - deadline T: int_0^T (1 - prod_i (1 - q_i (1 - F_i(t)))) dt, with q_i the share of the ticks in
      which client i is asked. With late answers discarded q_i = 1: exact without absences. With
      late answers remembered a job that takes longer than T goes on through ticks of the others;
      how many, on average, follows from renewal theory, q and their lengths from each other.

    With absences, who is there when a tick begins is an approximation: each client by itself. It is
    within 5 % where clients are away for three tenths of the time, and was 8 to 22 % short where
    they were for half of it. With late answers remembered and so few clients that all may be busy
    at once ticks are up to three tenths longer than this says, and longer still for two.
    """
    work = checks.finite("work", work, ndim=1)
    if policy.adaptive:
        raise ArgumentError("policy must have a deadline in seconds, got one that adapts")
    if policy.wait == "deadline" and policy.deadline is not None:
        return _of_deadline(delays, policy, work, presence, policy.deadline)
    N = len(work)
    everybody = np.ones(N)
    if policy.wait == "all":
        return TickForecast(_of_all(delays, work, presence), everybody, everybody)
    if policy.late != "discard" or (presence is not None and presence.away.any()):
        raise ArgumentError(
            "policy fastest:K can be forecast where late answers are discarded and nobody is away"
        )
    K = min(policy.fastest, N)
    times = _until_done(delays, work, None)
    F = within(delays, work, times)
    seconds = float(_integral(fewer_than(F, K), times))
    return TickForecast(seconds, _among_fastest(F, K), everybody)


def _of_deadline(
    delays: Delays, policy: Policy, work: FloatArray, presence: Presence | None, T: float
) -> TickForecast:
    times = np.concatenate([[0.0], T * np.linspace(0, 1, STEPS + 1)[1:]])
    F = within(delays, work, times, presence=presence)
    if policy.late == "discard":
        asked = _asked(F, times, presence)
        return TickForecast(float(_integral(_goes_on(F, asked), times)), F[-1], asked)
    seconds, asked = _remembered(delays, work, T, presence, F, times)
    return TickForecast(seconds, F[-1], asked)


def _goes_on(F: FloatArray, asked: FloatArray) -> FloatArray:
    """The probability that somebody who was asked has not answered yet: (T,)."""
    return np.asarray(1 - (1 - asked * (1 - F)).prod(axis=1))


def _remembered(
    delays: Delays,
    work: FloatArray,
    T: float,
    presence: Presence | None,
    F: FloatArray,
    times: FloatArray,
) -> tuple[float, FloatArray]:
    """A tick's seconds and who is asked, if late answers are remembered.

    Who does not answer within T is not waited for any more: the rest of its job, x seconds, takes
    about x / l + E L^2 / (2 l^2) ticks of the others, of length L and mean l, and one at least.
    """
    over = T + times  # the same steps beyond the deadline
    late = 1 - within(delays, work, over, presence=presence)
    more = _mean(delays, work, presence) - _integral(1 - F, times)  # E (D - T)+
    seconds, asked = T, np.ones(len(work))
    for _ in range(TIMES_ROUND):
        somebody = _goes_on(F, asked)
        nobody = float((1 - asked).prod())
        # Of the excess of whoever is busy, in the long run: P(it is above t).
        left = np.maximum(more - _running(late, times), 0) / np.maximum(more, 1e-300)
        going = somebody + nobody * left.prod(axis=1)
        seconds = float(_integral(going, times))
        others = 1 - (1 - somebody[:, None]) / np.maximum(1 - asked * (1 - F), 1e-12)
        mean = np.maximum(_integral(others, times), 1e-12)
        square = _integral(times[:, None] * others, times) / mean**2
        short = np.maximum(1 - square - (times[1:] + times[:-1])[:, None] / 2 / mean, 0)
        ticks = 1 + more / mean + square * late[0] + (-np.diff(late, axis=0) * short).sum(axis=0)
        away = _ticks_away(delays, work, T, presence, seconds)
        asked = (asked + 1 / (ticks + away)) / 2
    return seconds, asked


def _running(values: FloatArray, times: FloatArray) -> FloatArray:
    """The integral up to each time, by trapezoids: (T, N)."""
    pieces = np.diff(times)[:, None] * (values[1:] + values[:-1]) / 2
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(pieces, axis=0)])


def _asked(F: FloatArray, times: FloatArray, presence: Presence | None) -> FloatArray:
    """How likely each client is there as a tick begins, if what is late is discarded: (N,).

    Less than the long run's share for a slow one: without it ticks are shorter, and so more.
    Presence is a chain of two states; phi = E exp(-L / memory) of it outlasts a tick of length L.
    """
    q = np.ones(F.shape[1])
    if presence is None or not presence.away.any():
        return q
    a = presence.away
    memory = np.maximum(presence.seconds * (1 - a), 1e-12)
    q = 1 - a
    fading = np.exp(-times[:, None] / memory)

    def phi(over: FloatArray) -> FloatArray:  # over: (T, N), P(L <= t) before the deadline
        return 1 - _integral(fading * (1 - over), times) / memory

    for _ in range(TIMES_ROUND):
        closed = (1 - q) + q * F
        others = np.stack([np.delete(closed, i, axis=1).prod(axis=1) for i in range(len(q))], 1)
        comes, goes = (1 - a) * (1 - phi(others)), a * (1 - phi(F * others))
        q = np.where(a > 0, comes / np.maximum(comes + goes, 1e-300), 1.0)
    return q


def _mean(delays: Delays, work: FloatArray, presence: Presence | None) -> FloatArray:
    mean = delays.mean(work)
    return mean if presence is None else mean / (1 - presence.away)


def _ticks_away(
    delays: Delays, work: FloatArray, T: float, presence: Presence | None, seconds: float
) -> FloatArray:
    """How many ticks each client is away after a job before it can be asked again: (N,)."""
    found = np.zeros(len(work))
    if presence is None or not presence.away.any():
        return found
    jobs = quantiles(delays, work, (np.arange(200) + 0.5) / 200)
    for i in np.flatnonzero(presence.away > 0).tolist():
        share, length = float(presence.away[i]), float(presence.seconds[i])
        memory = length * (1 - share)  # seconds over which being there is forgotten
        rest = (np.ceil(jobs[:, i] / T) * T - jobs[:, i]) * seconds / T  # to the end of its tick
        gone = share * (1 - np.exp(-rest / memory)).mean()
        stays = share + (1 - share) * np.exp(-seconds / memory)
        found[i] = gone / (1 - stays)
    return found


def fewer_than(F: FloatArray, K: int) -> FloatArray:
    """The probability that fewer than K of independent events happen: (T,) for F (T, N)."""
    happened = np.zeros((len(F), K))
    happened[:, 0] = 1
    for p in F.T:
        moved = happened[:, :-1] * p[:, None]
        happened *= 1 - p[:, None]
        happened[:, 1:] += moved
    return happened.sum(axis=1)


def _among_fastest(F: FloatArray, K: int) -> FloatArray:
    """The probability that each client is among the K first: (N,), for F (T, N)."""
    N = F.shape[1]
    if K == N:
        return np.ones(N)
    found = np.empty(N)
    for i in range(N):
        others = fewer_than(np.delete(F, i, axis=1), K)
        found[i] = (np.diff(F[:, i]) * (others[1:] + others[:-1]) / 2).sum() + F[0, i] * others[0]
    return found * K / found.sum()


def _of_all(delays: Delays, work: FloatArray, presence: Presence | None) -> float:
    """E max_i D_i; who is away as a tick begins has left since it answered in the last one."""
    times = _until_done(delays, work, presence)
    F = there = within(delays, work, times, presence=presence)
    if presence is not None and presence.away.any():
        begun_away = within(delays, work, times, presence=presence, begun_away=1.0)
        memory = np.maximum(presence.seconds * (1 - presence.away), 1e-12)
        for _ in range(TIMES_ROUND):
            away = presence.away * (1 - _waits(F, times, memory))
            F = (1 - away) * there + away * begun_away
    return float(_integral(1 - F.prod(axis=1), times))


def _waits(F: FloatArray, times: FloatArray, memory: FloatArray) -> FloatArray:
    """E exp(-w_i / memory_i), w_i how long client i waits for the others: (N,).

    w = (u - s)+ with s its own time and u the last of the others'. By parts, over s:
    e(s) = E exp(-(u - s)+ / m) satisfies e(s) = G(s) + int_s dG(u) exp(-(u - s) / m).
    """
    found = np.empty(F.shape[1])
    steps = np.diff(times)
    for i in range(F.shape[1]):
        G = np.delete(F, i, axis=1).prod(axis=1)
        later = np.zeros(len(times))  # int_s dG(u) exp(-(u - s) / m), from the end
        fading = np.exp(-steps / memory[i])
        for k in range(len(steps) - 1, -1, -1):
            later[k] = fading[k] * later[k + 1] + (G[k + 1] - G[k]) * np.sqrt(fading[k])
        e = G + later
        found[i] = (np.diff(F[:, i]) * (e[1:] + e[:-1]) / 2).sum() + F[0, i] * e[0]
    return found


def _until_done(delays: Delays, work: FloatArray, presence: Presence | None) -> FloatArray:
    """Times from 0 until everybody has almost surely answered, dense where most answers come."""
    usual = high = float(_mean(delays, work, presence).max())
    away = 0.0 if presence is None else presence.away
    while True:
        done = within(delays, work, [high], presence=presence, begun_away=away)
        if 1 - done.prod() < REST or high > FAR * usual:
            break
        high *= 2
    even = np.linspace(0, 4 * usual, STEPS)
    far = np.geomspace(4 * usual, max(high, 4.1 * usual), STEPS // 2)
    return np.unique(np.concatenate([even, far]))


def _integral(values: FloatArray, times: FloatArray) -> FloatArray:
    """Over the first axis, by trapezoids."""
    steps = np.diff(times)
    return np.asarray(np.tensordot(steps, (values[1:] + values[:-1]) / 2, axes=1))


__all__ = ["TickForecast", "fewer_than", "forecast"]


def __dir__() -> list[str]:
    return __all__
