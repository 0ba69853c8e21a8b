"""The offline exchange: which clients get a copy of which shareable example (Section III-A).

Every scheme takes the partition and the shareable mask and returns a `Placement`. Private examples
never move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons import checks, partition, shown
from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import ArgumentError
from fedcommons.placement import Placement
from fedcommons.registry import Registry
from fedcommons.subsets import random_subsets

logger = shown.logger(__name__)


def none(owner: npt.ArrayLike, *, n_clients: int) -> Placement:
    """No sharing: each example stays with its owner, d_j = 1."""
    n_clients = checks.n_clients(n_clients)
    owner = checks.owner(owner, n_clients)
    nothing = np.zeros(0, np.int32)
    no_copies = np.zeros(len(owner) + 1, np.int64)
    return Placement(owner.astype(np.int32), no_copies, nothing, n_clients)


def randomised(
    owner: npt.ArrayLike,
    shareable: npt.ArrayLike,
    copies: int,
    *,
    n_clients: int,
    rng: np.random.Generator,
) -> Placement:
    """The paper's scheme: each shareable example goes to a uniformly random d-subset of the others.

    The subsets are independent across examples, so S_i is Binomial(C~_i, d/(N-1)), while
    d_j = d + 1 and B = d times the number of shareable examples hold exactly
    (docs/deviations.md, 1).
    """
    owner, shareable, copies, n_clients = _inputs(owner, shareable, copies, n_clients)
    rng = checks.rng(rng)
    givers = owner[shareable].astype(np.int32)
    recipients = random_subsets(len(givers), copies, n_clients - 1, rng=rng)
    recipients += recipients >= givers[:, None]  # the others: everybody but the owner
    return _every_shareable(owner, shareable, recipients, n_clients)


def per_client(
    owner: npt.ArrayLike,
    shareable: npt.ArrayLike,
    copies: int,
    *,
    n_clients: int,
    rng: np.random.Generator,
) -> Placement:
    """The other reading of the paper: each client picks d others, who get all that it shares.

    Here for comparison. d_j and B are as in `randomised`, but S_i is no longer binomial and
    Theorem 1 does not hold (docs/deviations.md, 1).
    """
    owner, shareable, copies, n_clients = _inputs(owner, shareable, copies, n_clients)
    rng = checks.rng(rng)
    friends = random_subsets(n_clients, copies, n_clients - 1, rng=rng)
    friends += friends >= np.arange(n_clients, dtype=np.int32)[:, None]
    return _every_shareable(owner, shareable, friends[owner[shareable]], n_clients)


def optimal(
    labels: npt.ArrayLike,
    owner: npt.ArrayLike,
    shareable: npt.ArrayLike,
    *,
    n_clients: int,
    rng: np.random.Generator,
    copies: int | None = None,
    budget: npt.ArrayLike | None = None,
    stop_early: bool = False,
    n_classes: int | None = None,
) -> Placement:
    """The least heterogeneous labels that a budget of copies can buy, if label counts are public.

    The budget is a number of copies for each label, shape (L,), or d copies for every shareable
    example (`copies`, the same amount that `randomised` moves). How many examples each client
    receives is `optimal_counts`; which ones is chosen so that the d_j stay even: no exchange of one
    copy for another would make them more so. Ties are broken at random.

    All of the budget is spent, unless `stop_early` lets the scheme keep what would only raise
    heterogeneity. Then `Placement.n_copies` is below the budget, the log says by how much for each
    label, and `optimal_counts` tells beforehand.
    """
    labels, n_classes = checks.labels(labels, n_classes)
    n_clients = checks.n_clients(n_clients)
    owner = checks.owner(owner, n_clients, len(labels))
    shareable = checks.mask("shareable", shareable, len(labels))
    rng = checks.rng(rng)
    offered = partition.label_counts(
        labels[shareable], owner[shareable], n_clients, n_classes=n_classes
    )
    if (copies is None) == (budget is None):
        got = "neither" if copies is None else "both"
        raise ArgumentError(f"copies or budget must be given, one of them, got {got}")
    if budget is None:
        budget = checks.copies(copies, n_clients) * offered.sum(axis=0)
    counts = partition.label_counts(labels, owner, n_clients, n_classes=n_classes)
    plan = optimal_counts(counts, offered, budget, rng=rng, stop_early=stop_early)
    if plan.stopped_early:
        logger.info("optimal sharing stopped early; unused per label: %s", plan.unused.tolist())
    examples, recipients = [], []
    for label in range(n_classes):
        members = np.flatnonzero(shareable & (labels == label))
        taken = _take_evenly(owner[members], plan.received[:, label], rng)
        clients, picks = np.nonzero(taken)
        examples.append(members[picks])
        recipients.append(clients)
    return Placement.from_copies(
        owner,
        np.concatenate([np.zeros(0, np.int64), *examples]),
        np.concatenate([np.zeros(0, np.int64), *recipients]),
        n_clients=n_clients,
    )


@dataclass(frozen=True, slots=True)
class ReceivedCounts:
    """How many examples of each label each client should receive.

    Attributes:
        received: (N, L) S_i for each label.
        budget: (L,) the copies that could have been used.
    """

    received: IntArray
    budget: IntArray

    @property
    def unused(self) -> IntArray:
        """(L,) the copies that were not used, since they would have raised heterogeneity."""
        return self.budget - self.received.sum(axis=0)

    @property
    def stopped_early(self) -> bool:
        return bool(self.unused.any())


def optimal_counts(
    counts: npt.ArrayLike,
    shareable_counts: npt.ArrayLike,
    budget: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    stop_early: bool = False,
) -> ReceivedCounts:
    """The S that minimises |Y - Theta*|^2 for each label (Section III, known label counts).

    `counts` and `shareable_counts` have shape (N, L). Integers S_i in [0, C~_i] that sum to the
    budget: the problem is separable and convex, so raising the lowest client by one example at a
    time is exact; that is a water level, found here at once. With `stop_early` a label uses the
    largest part of its budget at which the distance is lowest.
    """
    rng = checks.rng(rng)
    counts, offered = checks.counts(counts, shareable_counts)
    n_classes = counts.shape[1]
    budget = checks.indices("budget", budget, length=n_classes)
    caps = offered.sum(axis=0) - offered
    over = np.flatnonzero(budget > caps.sum(axis=0))
    if over.size:
        label = int(over[0])
        raise ArgumentError(
            f"budget must be at most (N - 1) times the shareable examples of a label "
            f"({caps[:, label].sum()} for label {label}), got {budget[label]}"
        )
    received = np.zeros_like(counts)
    for label in range(n_classes):
        spend = int(budget[label])
        if stop_early:
            spend = _best_spend(counts[:, label], caps[:, label], spend)
        received[:, label] = _fill_up(counts[:, label], caps[:, label], spend, rng)
    return ReceivedCounts(received, budget)


def _fill_up(start: IntArray, caps: IntArray, spend: int, rng: np.random.Generator) -> IntArray:
    """Raise the lowest first: to the highest level that `spend` pays for, then the rest."""

    def poured(level: int) -> IntArray:
        return np.clip(level - start, 0, caps)

    low, high = int(start.min()), int((start + caps).max())
    while low < high:  # the highest level whose cost is within the spend
        middle = (low + high + 1) // 2
        if poured(middle).sum() <= spend:
            low = middle
        else:
            high = middle - 1
    received = poured(low)
    rest = spend - int(received.sum())
    can_rise = np.flatnonzero((start + received == low) & (received < caps))
    received[rng.permutation(can_rise)[:rest]] += 1
    return received


def _best_spend(start: IntArray, caps: IntArray, budget: int) -> int:
    """The largest spend within the budget at which heterogeneity is lowest.

    One more example at a client that has h adds 2h + 1 to the sum of squares Q, and the lowest are
    raised first; |Y - Theta*|^2 = Q / (K + spend)^2 - 1/N.
    """
    if start.sum() == 0 or budget == 0:
        return budget
    opens = np.bincount(start, minlength=int((start + caps).max()) + 1)
    closes = np.bincount(start + caps, minlength=len(opens))
    can_rise = np.cumsum(opens - closes)  # clients that can go from h to h + 1
    heights = np.repeat(np.arange(len(can_rise)), can_rise)[:budget]
    Q = np.cumsum(np.concatenate([[(start**2).sum()], 2 * heights + 1]))
    distance = Q / (start.sum() + np.arange(len(Q))) ** 2
    return int(np.flatnonzero(distance <= distance.min() * (1 + 1e-12))[-1])


def _take_evenly(owner: IntArray, received: IntArray, rng: np.random.Generator) -> BoolArray:
    """Which of one label's shareable examples each client takes: (N, examples).

    Client by client, in random order, those with the fewest copies so far; then single exchanges
    as long as one makes the numbers of copies more even.
    """
    taken = np.zeros((len(received), len(owner)), np.bool_)
    n_copies = np.zeros(len(owner))
    for client in rng.permutation(np.flatnonzero(received)):
        rank = n_copies + rng.random(len(owner))  # ties at random
        rank[owner == client] = np.inf
        picks = np.argsort(rank)[: received[client]]
        n_copies[picks] += 1
        taken[client, picks] = True
    for low in rng.permutation(len(owner)):
        while True:
            can_take = ~taken[:, low]
            can_take[owner[low]] = False
            could_give = np.where(taken[can_take].any(axis=0), n_copies, -1)
            high = int(np.argmax(could_give)) if could_give.size else low
            if n_copies[high] < n_copies[low] + 2 or could_give[high] < 0:
                break
            client = np.flatnonzero(can_take & taken[:, high])[0]
            taken[client, [low, high]] = True, False
            n_copies[[low, high]] += 1, -1
    return taken


def _inputs(
    owner: npt.ArrayLike, shareable: npt.ArrayLike, copies: int, n_clients: int
) -> tuple[IntArray, BoolArray, int, int]:
    n_clients = checks.n_clients(n_clients)
    copies = checks.copies(copies, n_clients)
    owner = checks.owner(owner, n_clients)
    return owner, checks.mask("shareable", shareable, len(owner)), copies, n_clients


def _every_shareable(
    owner: IntArray, shareable: BoolArray, recipients: npt.NDArray[np.int32], n_clients: int
) -> Placement:
    """The placement in which row k of `recipients`, sorted, holds the k-th shareable example."""
    indptr = np.zeros(len(owner) + 1, np.int64)
    np.cumsum(shareable * recipients.shape[1], out=indptr[1:])
    indptr.flags.writeable = recipients.flags.writeable = False  # handed over, not copied
    return Placement(owner.astype(np.int32), indptr, recipients.ravel(), n_clients)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A sharing scheme, as studies name it.

    Attributes:
        name: how they call it.
        caption: what it is, for the words beside a figure; empty for the paper's.
        share: (labels, owner, shareable, copies, n_clients, rng) -> placement.
        is_randomised: whether what is expected over the sharing is that of `randomised`: what
            Theorem 1, Proposition 1 and Theorem 2 are about.
    """

    name: str
    caption: str
    share: Callable[[IntArray, IntArray, BoolArray, int, int, np.random.Generator], Placement]
    is_randomised: bool = False


SCHEMES = Registry(
    "scheme",
    Scheme,
    (
        Scheme(
            "randomised",
            "",
            lambda _labels, owner, shareable, d, n, rng: randomised(
                owner, shareable, d, n_clients=n, rng=rng
            ),
            is_randomised=True,
        ),
        Scheme(
            "per-client",
            "per-client sharing: all that a client shares goes to the same d others",
            lambda _labels, owner, shareable, d, n, rng: per_client(
                owner, shareable, d, n_clients=n, rng=rng
            ),
        ),
        Scheme(
            "optimal",
            "optimal sharing: with known label counts, the least lopsided that d copies can buy",
            lambda labels, owner, shareable, d, n, rng: optimal(
                labels, owner, shareable, copies=d, n_clients=n, rng=rng
            ),
        ),
    ),
)


__all__ = [
    "SCHEMES",
    "ReceivedCounts",
    "Scheme",
    "none",
    "optimal",
    "optimal_counts",
    "per_client",
    "randomised",
]


def __dir__() -> list[str]:
    return __all__
