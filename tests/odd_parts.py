"""Parts that are odd on purpose: what nothing in the package may rely on not being there.

They are found by import path, as somebody else's parts are: "tests.odd_parts:damped".
"""

from __future__ import annotations

import numpy as np

from fedcommons import coding, partition, sharing
from fedcommons.estimators import Arrivals, Estimator, Weights
from fedcommons.optimizers import Constants, Optimizer, State
from fedcommons.placement import Placement
from fedcommons.simulate.algorithms.algorithm import Algorithm, averaged, own_examples


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


def _half_to_owner(placement: Placement, _p: object, _w: object) -> coding.Rule:
    def rule(client: np.ndarray, example: np.ndarray) -> np.ndarray:
        copies = placement.copies[example]
        is_owner = placement.owner[example] == client
        alone = np.where(copies == 0, 1.0, 0.5)
        return np.where(is_owner, alone, 0.5 / np.maximum(copies, 1))

    return rule


half_to_owner = coding.Code("half_to_owner", "the owner keeps half", _half_to_owner)
ODD_CODES = ("tests.odd_parts:half_to_owner",)


def _in_blocks(labels: np.ndarray, n: int, _alpha: float, _rng: np.random.Generator) -> np.ndarray:
    """One after another; the last client owns nothing."""
    return np.arange(len(labels)) * max(n - 1, 1) // len(labels)


in_blocks = partition.Partition("in_blocks", "in blocks", _in_blocks)
ODD_PARTITIONS = ("tests.odd_parts:in_blocks",)


def _ring(
    _labels: np.ndarray,
    owner: np.ndarray,
    shareable: np.ndarray,
    d: int,
    n: int,
    _rng: np.random.Generator,
) -> Placement:
    examples = np.repeat(np.flatnonzero(shareable), d)
    recipients = (owner[examples] + np.tile(np.arange(1, d + 1), shareable.sum())) % n
    return Placement.from_copies(owner, examples, recipients, n_clients=n)


ring = sharing.Scheme("ring", "around a ring: copies go to the next d clients", _ring)
ODD_SCHEMES = ("tests.odd_parts:ring",)

drifting = Algorithm(
    name="drifting",
    source="nobody",
    sharing="none",
    several_steps=True,
    batches=True,
    estimators=False,
    hold=own_examples,
    weigh=averaged,
    uses=("mu",),
    correction=lambda local: -local.mu * (local.params - local.start),
)
ODD_ALGORITHMS = ("tests.odd_parts:drifting",)


def _signed(state: State, gradient: np.ndarray, _c: Constants) -> tuple[np.ndarray, State]:
    seen = state[0] + np.abs(gradient)
    return np.sign(gradient) / (1 + seen), (seen,)


signed = Optimizer("signed", "by sign", 1, _signed)
ODD_OPTIMIZERS = ("tests.odd_parts:signed",)
