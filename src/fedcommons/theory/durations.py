"""How likely a client has done its job in time: each law of `delays` as a distribution function.

Computing times have closed forms; attempts over a link are a sum over how many there were; stalls
and absences, during which a job waits, are integrated over by quadrature. Nothing is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.delays import Delays, Law, Recorded
from fedcommons.errors import ArgumentError

REST = 1e-10  # of the probability, left out of sums that do not end
MOST_ATTEMPTS = 2000
NODES = 48  # of the quadrature over a stall
QUANTILES = 100  # of a job's seconds, over which absences are averaged
OF_A_CLIENT = ("rate", "spread", "stall", "link", "failure")
MOST_ABSENCES = 400  # within one job
GRID = 200  # times from which quantiles with absences are read
HALVINGS = 45  # of the seconds between which a quantile lies


@dataclass(frozen=True, slots=True, eq=False)
class Presence:
    """The long-run share of the time that each client is away, and for how long on average.

    As in `delays.Absences`: (N,) each, or one number for all.
    """

    away: FloatArray
    seconds: FloatArray

    @classmethod
    def of(cls, away: npt.ArrayLike, seconds: npt.ArrayLike, n_clients: int) -> Presence:
        """Checked and spread over the clients."""
        N = checks.n_clients(n_clients)
        share = checks.proportions("away", away, N, "client")
        if (share == 1).any():
            raise ArgumentError("away must be < 1, got 1: such a client never answers")
        length = checks.per_entry("away seconds", seconds, N, "client")
        if not (length[share > 0] > 0).all():
            raise ArgumentError(f"away seconds must be > 0, got {length[share > 0].min():g}")
        return cls(share, length)


def within(
    delays: Delays,
    work: FloatArray,
    seconds: npt.ArrayLike,
    *,
    presence: Presence | None = None,
    begun_away: npt.ArrayLike = 0.0,
) -> FloatArray:
    """The probability that each client's job takes at most so long: (T, N).

    Args:
        delays: a `Law` or a recording.
        work: (N,) multiply-adds.
        seconds: (T,), or (T, N) for others at each client.
        presence: jobs wait while their client is away.
        begun_away: how likely a client is away when it is asked, one number or (N,).
    """
    work = checks.finite("work", work, ndim=1)
    times = np.asarray(seconds, np.float64)
    times = np.broadcast_to(times[:, None] if times.ndim == 1 else times, (len(times), len(work)))
    if isinstance(delays, Recorded):
        there = _recorded(delays, times)
    elif isinstance(delays, Law):
        there = _law(delays, work, times)
    else:
        raise ArgumentError(
            f"delays must be a Law or a recording, got {type(delays).__name__}: of others nothing "
            "is known but their draws"
        )
    if presence is None or not presence.away.any():
        return there
    away_then = np.broadcast_to(np.asarray(begun_away, np.float64), work.shape)
    for i in np.flatnonzero(presence.away > 0).tolist():
        there[:, i] = _with_absences(delays, work, i, times[:, i], presence, float(away_then[i]))
    return there


def _recorded(delays: Recorded, times: FloatArray) -> FloatArray:
    columns = [
        np.searchsorted(np.sort(s), times[:, i], side="right") / len(s)
        for i, s in enumerate(delays.took)
    ]
    return np.stack(columns, axis=1).astype(np.float64)


def _law(law: Law, work: FloatArray, times: FloatArray) -> FloatArray:
    """For times (T, N); clients that are alike are computed once."""
    rows = np.stack([work / law.rate, law.spread, law.stall, law.link, law.failure], axis=1)
    seen = np.concatenate([rows, times[[0, -1]].T], axis=1)  # alike in their times as well
    _, first, which = np.unique(seen, axis=0, return_index=True, return_inverse=True)
    r, spread, stall, link, failure = rows[first].T
    times = times[:, first]
    found = np.zeros(times.shape)
    chance = (1 - failure) ** 2  # of g attempts in all, for g = 2
    left = np.ones(len(first))
    for g in range(2, MOST_ATTEMPTS):
        found += chance * _stalled(law, r, spread, stall, times - g * link / 2)
        left = left - chance
        if left.max() < REST:
            break
        chance = chance * failure * g / (g - 1)
    return np.asarray(found[:, which.ravel()])


def _stalled(
    law: Law, r: FloatArray, spread: FloatArray, stall: FloatArray, times: FloatArray
) -> FloatArray:
    """Computing and a stall together take at most `times`, (T, N): over the stall's quantiles."""
    if not stall.any():
        return _computed(law, r, spread, times)
    least = {"exponential": r, "lognormal": np.zeros_like(r)}.get(
        law.service, r * (1 + spread * (1 - 1 / law.tail))
    )
    shortest = 1 - 1 / law.tail  # of a Pareto law with mean 1
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(stall > 0, (times - least) / stall, np.inf)  # how long it may stall
        top = np.where(room > shortest, 1 - (shortest / room) ** law.tail, 0.0)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    found = np.zeros(np.broadcast_shapes(times.shape, r.shape))
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        u = node * top
        stalls = stall * shortest * (1 - u) ** (-1 / law.tail)
        found += weight * top * _computed(law, r, spread, times - stalls)
    return found


def _computed(law: Law, r: FloatArray, spread: FloatArray, times: FloatArray) -> FloatArray:
    """The distribution function of computing alone; 0 before it can be done."""
    at_once = (times >= r) & (times >= 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if law.service == "exponential":
            smooth = -np.expm1(-(times - r) / (spread * r))
            possible = times > r
        elif law.service == "pareto":
            x = (times / r - 1) / spread
            shortest = 1 - 1 / law.tail
            smooth = 1 - (shortest / x) ** law.tail
            possible = x > shortest
        else:
            from scipy.special import ndtr  # slow to import, and only this needs it

            smooth = ndtr((np.log(times / r) + spread**2 / 2) / spread)
            possible = times > 0
        smooth = np.where(possible, smooth, 0.0)
    return np.where((spread > 0) & (r > 0), smooth, at_once)


def _with_absences(
    delays: Delays,
    work: FloatArray,
    client: int,
    times: FloatArray,
    presence: Presence,
    begun_away: float,
) -> FloatArray:
    """A job of s seconds is interrupted by Poisson(s / there) absences of exponential length.

    One more if the client is away when it is asked.
    """
    from scipy.special import gammainc

    share, length = float(presence.away[client]), float(presence.seconds[client])
    there = length * (1 - share) / share
    s = _of_client(delays, work, client)
    left = times[:, None] - s  # what absences may take: (T, quantiles)
    rate, x = s / there, np.maximum(left, 0) / length
    found = np.zeros(left.shape)
    chance = np.exp(-rate)
    for n in range(MOST_ABSENCES):
        one_more = gammainc(n + 1, x)
        found += chance * ((1 - begun_away) * (gammainc(n, x) if n else 1) + begun_away * one_more)
        chance = chance * rate / (n + 1)
        if n > rate.max() and chance.max() < REST:
            break
    return np.where(left >= 0, found, 0).mean(axis=1)


def _of_client(delays: Delays, work: FloatArray, client: int) -> FloatArray:
    """Seconds between which a client's job, while it is there, is equally likely: (QUANTILES,)."""
    even = (np.arange(QUANTILES) + 0.5) / QUANTILES
    if isinstance(delays, Recorded):
        return np.quantile(delays.took[client], even)
    assert isinstance(delays, Law)
    mine = {name: getattr(delays, name)[client : client + 1] for name in OF_A_CLIENT}
    return quantiles(replace(delays, **mine), work[client : client + 1], even)[:, 0]


def quantiles(
    delays: Delays, work: FloatArray, u: npt.ArrayLike, *, presence: Presence | None = None
) -> FloatArray:
    """The seconds within which each client has done its job with probability u: (U, N).

    Args:
        u: (U,) in (0, 1), ascending.
        presence: as in `within`; then the seconds are read off a grid of `GRID` times.
    """
    u = checks.finite("u", u, ndim=1)
    work = checks.finite("work", work, ndim=1)
    if isinstance(delays, Recorded):
        there = np.stack([np.quantile(seconds, u) for seconds in delays.took], axis=1)
    else:
        there = _bisected(delays, work, u)
    if presence is None or not presence.away.any():
        return there
    for i in np.flatnonzero(presence.away > 0).tolist():
        longest = there[-1, i] / (1 - presence.away[i]) + 20 * presence.seconds[i]
        times = np.unique(
            np.concatenate([there[:, i], np.geomspace(max(there[0, i], 1e-9), longest, GRID)])
        )
        client = _with_absences(delays, work, i, times, presence, 0.0)
        there[:, i] = np.interp(u, np.maximum.accumulate(client), times)
    return there


def _bisected(delays: Delays, work: FloatArray, u: FloatArray) -> FloatArray:
    high = np.maximum(delays.mean(work), 1e-12)
    while (short := within(delays, work, high[None])[0] < u[-1]).any():
        high = np.where(short, 2 * high, high)
    lows = np.zeros((len(u), len(work)))
    highs = np.tile(high, (len(u), 1))
    for _ in range(HALVINGS):
        middle = (lows + highs) / 2
        below = within(delays, work, middle) < u[:, None]
        lows, highs = np.where(below, middle, lows), np.where(below, highs, middle)
    return highs


__all__ = ["Presence", "quantiles", "within"]


def __dir__() -> list[str]:
    return __all__
