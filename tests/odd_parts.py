"""Parts that are odd on purpose: what nothing in the package may rely on not being there.

They are found by import path, as somebody else's parts are: "tests.odd_parts:damped".
"""

from __future__ import annotations

import numpy as np

from fedcommons.estimators import Arrivals, Estimator, Weights


def _memorys(arrivals: Arrivals, p: np.ndarray) -> Weights:
    fresh = arrivals.on_time / (1 - p)
    return Weights(fresh, 1 - fresh)


damped = Estimator(
    name="damped",
    caption="damped memory: what is remembered moves half way",
    unbiased=True,
    remembers=True,
    needs_everybody=False,
    needs_p=True,
    weigh=_memorys,
    moves=lambda arrivals: 0.5 * arrivals.on_time,
)


def _stale(arrivals: Arrivals, p: np.ndarray) -> Weights:
    """Biased, with a mean that is neither the full gradient nor a multiple of it."""
    here = arrivals.on_time
    place = np.arange(here.shape[-1])
    return Weights(here * (1 + 0.1 * place), 0.7 * ~here + 0.2 * p)


stale = Estimator(
    name="stale",
    caption="a stand-in for who is missing",
    unbiased=False,
    remembers=True,
    needs_everybody=False,
    needs_p=True,
    weigh=_stale,
)


def _shrunk(arrivals: Arrivals, p: np.ndarray) -> Weights:
    place = np.arange(arrivals.on_time.shape[-1])
    return Weights(
        arrivals.on_time * (0.5 + 0.2 * place) / (1 - p), np.zeros(arrivals.on_time.shape)
    )


shrunk = Estimator(
    name="shrunk",
    caption="every client on a scale of its own",
    unbiased=False,
    remembers=False,
    needs_everybody=False,
    needs_p=True,
    weigh=_shrunk,
)


def _first_half(arrivals: Arrivals, _p: np.ndarray) -> Weights:
    """Weights that depend on who else is there."""
    order = np.cumsum(arrivals.on_time, axis=-1)
    counts = arrivals.on_time & (order <= (arrivals.on_time.shape[-1] + 1) // 2)
    return Weights(2.0 * counts, np.zeros(counts.shape))


first_half = Estimator(
    name="first_half",
    caption="the first half to arrive",
    unbiased=False,
    remembers=False,
    needs_everybody=False,
    needs_p=False,
    weigh=_first_half,
)

ODD_ESTIMATORS = tuple(f"tests.odd_parts:{e.name}" for e in (damped, stale, shrunk, first_half))
