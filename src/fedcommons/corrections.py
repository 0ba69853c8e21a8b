"""Corrected chunks: holders of an absent owner's shared examples correct what is remembered.

Every client works on a chunk of its own examples at a time, and the server's estimate is the sum of
what everything gave last, sum_j R_j, with R_j the gradient of example j at the model at which its
owner's chunk was last computed (its anchor). While owner i is away that grows old. Holders of its
shared examples A_i that are there compute these out of their own time, R'_j, and their drift stands
for that of all n_i:

    v = sum_j R_j + sum_{i away} (n_i / |A_i|) sum_{j in A_i} (R'_j - R_j),

where an example that nobody has computed since its anchor counts R'_j = R_j. No p is needed. Over
which examples are shared the correction is unbiased if all R'_j are of now, and its squared error
is sum_i n_i (n_i - a_i) / a_i s_i^2, a_i = |A_i| and s_i^2 the variance of the drifts of i's
examples; without correction it is |sum_{i away} sum_j drift_j|^2.

**Pooled**, as in a federation, a holder does not need to know which example is in which chunk, but
how many examples each anchor x_c is of, n_ic, and it takes all that it holds of an owner together:

    v = sum_i h_i + sum_{i away} (1/s_i) sum_{k there} sum_c n_ic (G_ik(now) - G_ik(x_c)),

h_i = sum_j R_j, G_ik the sum of the gradients of the s_ik examples of i that k holds, s_i the sum
of s_ik over the holders that are there. With one chunk and all holders there it is the formula
above. With random chunks it is unbiased as well; and since what stands for a chunk is no longer how
many of the shared examples happen to lie in it, its error is smaller (tests/test_corrections.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.errors import ArgumentError
from fedcommons.placement import Placement
from fedcommons.schedule import Ticks

AnyFloats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """How clients divide their time between their own examples and received ones: (N,) each.

    Attributes:
        n_chunks: C_i, in how many chunks a client's own examples are cut.
        received: how many received examples of absent owners fit into a job beside a chunk.
    """

    n_chunks: IntArray
    received: IntArray


def divided(
    placement: Placement,
    away_share: npt.ArrayLike,
    fitting: FloatArray,
    *,
    cost: float = 1.0,
) -> Division:
    """In proportion: what is computed once in a while is own examples and absent owners' alike.

    A cycle of client i has its n_i own examples and the expected number of received ones whose
    owners are away, each `cost` times as much work.

    Args:
        away_share: how much of the time each client is away, (N,) or one for all.
        fitting: (N,) how many examples each client manages until its deadline.
        cost: of a received example beside an own one: 1 where owners send R_j along, 2 where a
            holder computes it, too.
    """
    N = placement.n_clients
    share = checks.per_entry("away_share", away_share, N, "client")
    own = placement.owned_counts()
    owner_of = np.repeat(placement.owner, placement.copies)
    copies = np.repeat(placement.copies, placement.copies)
    # Of an example's copies one holder computes it: each of d holders every d-th time.
    expected = np.bincount(placement.recipients, share[owner_of] / copies, N)
    cycle = own + cost * expected
    fits = np.maximum(1, np.minimum(fitting, np.maximum(cycle, 1)))
    chunks = np.clip(np.ceil(cycle / fits), 1, np.maximum(own, 1)).astype(np.int64)
    received = [per_job(x, c) for x, c in zip(expected, chunks.tolist(), strict=True)]
    return Division(chunks, np.array(received, np.int64))


def weights(placement: Placement) -> FloatArray:
    """n_i / |A_i| of every example that has copies, 0 of the others: (M,)."""
    shared = placement.copies > 0
    a = np.bincount(placement.owner[shared], minlength=placement.n_clients)
    n = placement.owned_counts()
    return np.where(shared, (n / np.maximum(a, 1))[placement.owner], 0.0)


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a holder computes of absent owners' examples in a job."""

    holder: int
    examples: IntArray


def refreshes(ticks: Ticks, placement: Placement, received: IntArray) -> list[list[Refresh]]:
    """Who computes which received examples in every tick: lists for each of the T ticks.

    Whoever is asked takes those of its received examples whose owners are away and that were
    computed longest ago, as many as `received` says, (N,), but none that another holder takes in
    the same tick. Everybody can work that out: who is away and who holds what is known.
    """
    if len(received) != placement.n_clients:
        raise ArgumentError(
            f"received must have {placement.n_clients} entries, got {len(received)}"
        )
    examples = np.repeat(np.arange(placement.n_examples), placement.copies)
    by_holder = np.argsort(placement.recipients, kind="stable")
    ends = np.cumsum(np.bincount(placement.recipients, minlength=placement.n_clients))
    mine = np.split(examples[by_holder], ends[:-1])
    last = np.full(placement.n_examples, -1)
    found: list[list[Refresh]] = []
    for t in range(len(ticks)):
        away = ticks.away[t][placement.owner]
        now: list[Refresh] = []
        for k in np.flatnonzero(ticks.asked[t] & (received > 0)).tolist():
            some = mine[k][away[mine[k]] & (last[mine[k]] < t)]
            some = some[np.argsort(last[some], kind="stable")[: received[k]]]
            if len(some):
                last[some] = t
                now.append(Refresh(k, some))
        found.append(now)
    return found


def estimate(
    anchored: FloatArray,
    stand_ins: FloatArray,
    is_newer: BoolArray,
    owner_away: BoolArray,
    weight: FloatArray,
) -> FloatArray:
    """v from all R_j, (M, P), and R'_j, (M, P), whatever stands where nothing is newer: (P,).

    Args:
        is_newer: (M,) whether R'_j was computed after R_j.
        owner_away: (M,) whether the owner of each example is away.
        weight: (M,) as `weights` gives them.
    """
    found = is_newer & owner_away & (weight > 0)
    return anchored.sum(axis=0) + correction(stand_ins[found], anchored[found], weight[found])


def correction(stand_ins: AnyFloats, anchored: AnyFloats, weight: AnyFloats) -> AnyFloats:
    """sum_s weight_s (R'_s - R_s), of (S, P) each: (P,).

    A row is an example, whose weight is n_i / |A_i|; or all that a holder has of an owner, with the
    sum of their gradients now, `mean_at_anchors` and `pooled_weight`.
    """
    return np.asarray(weight @ (stand_ins - anchored))


def mean_at_anchors(gradients: AnyFloats, sizes: AnyFloats) -> AnyFloats:
    """sum_c n_ic G_ik(x_c) / sum_c n_ic, of (C, P) and (C,): (P,)."""
    return np.asarray(sizes @ gradients / sizes.sum())


def pooled_weight(sizes: npt.ArrayLike, held: npt.ArrayLike) -> float:
    """sum_c n_ic / s_i, from (C,) and s_ik of the holders that are there."""
    return float(np.sum(sizes) / np.sum(held))


def per_job(received: float, n_chunks: int) -> int:
    """How many received examples a job computes beside a chunk, of so many in a cycle of chunks."""
    return int(np.ceil(received / n_chunks))


def kept_vectors(n_chunks: Sequence[int] | IntArray, n_shared: int) -> int:
    """How many vectors of the model's size a simulator keeps: anchors, R_j and R'_j.

    The model at which each chunk was last computed, and two gradients of each shared example.
    """
    return int(np.sum(n_chunks)) + 2 * n_shared


__all__ = [
    "Division",
    "Refresh",
    "correction",
    "divided",
    "estimate",
    "kept_vectors",
    "mean_at_anchors",
    "per_job",
    "pooled_weight",
    "refreshes",
    "weights",
]


def __dir__() -> list[str]:
    return __all__
