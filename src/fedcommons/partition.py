"""Who owns which example before anything is shared (Section II of the paper).

A partition is the array `owner`, shape (M,): the client that owns each example. The functions here
make one from the labels; your own array serves as well (`given` checks it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError
from fedcommons.registry import Registry


def iid(labels: npt.ArrayLike, n_clients: int, *, rng: np.random.Generator) -> IntArray:
    """Shuffle, then deal out evenly: client sizes differ by at most one.

    Where N does not divide M, the clients that get one more are drawn at random.
    """
    labels, _ = checks.labels(labels)
    n_clients = checks.n_clients(n_clients)
    rng = checks.rng(rng)
    return _deal(len(labels), rng.permutation(n_clients), rng)


def single_class(labels: npt.ArrayLike, n_clients: int, *, rng: np.random.Generator) -> IntArray:
    """Each client owns a single class; with N = L, client i owns all of class i.

    With N > L, client i owns a part of class i mod L: clients per class differ by at most one, and
    so do the sizes of a class's parts. With N < L, class l belongs whole to client l mod N (one
    client per class, classes per client as even as possible). Only classes that have examples
    count.
    """
    labels, _ = checks.labels(labels)
    n_clients = checks.n_clients(n_clients)
    rng = checks.rng(rng)
    owner = np.empty(len(labels), np.int64)
    classes = _members_by_class(labels)
    for k, members in enumerate(classes):
        clients = rng.permutation(_clients_of_class(k, len(classes), n_clients))
        owner[members] = _deal(len(members), clients, rng)
    return owner


def single_class_counts(
    class_sizes: Sequence[int], n_clients: int, *, rng: np.random.Generator
) -> IntArray:
    """The label counts, shape (N, L), of a `single_class` partition of classes of these sizes."""
    counts = np.zeros((n_clients, len(class_sizes)), np.int64)
    for k, size in enumerate(class_sizes):
        clients = rng.permutation(_clients_of_class(k, len(class_sizes), n_clients))
        counts[clients, k] = size // len(clients)
        counts[clients[: size % len(clients)], k] += 1
    return counts


def dirichlet(
    labels: npt.ArrayLike, n_clients: int, alpha: float, *, rng: np.random.Generator
) -> IntArray:
    """Per label, proportions over the clients from a symmetric Dirichlet(alpha).

    The counts are the proportions times the class size, rounded by largest remainder: they sum to
    the class size exactly and no integer counts are nearer to the proportions.
    """
    labels, _ = checks.labels(labels)
    n_clients = checks.n_clients(n_clients)
    alpha = checks.positive("alpha", alpha)
    rng = checks.rng(rng)
    owner = np.empty(len(labels), np.int64)
    for members in _members_by_class(labels):
        counts = _dirichlet_class(len(members), n_clients, alpha, rng)
        owner[rng.permutation(members)] = np.repeat(np.arange(n_clients), counts)
    return owner


def dirichlet_counts(
    class_sizes: Sequence[int], n_clients: int, alpha: float, *, rng: np.random.Generator
) -> IntArray:
    """The label counts, shape (N, L), of a `dirichlet` partition of classes of these sizes."""
    alpha = checks.positive("alpha", alpha)
    return np.stack([_dirichlet_class(K, n_clients, alpha, rng) for K in class_sizes], axis=1)


def given(owner: npt.ArrayLike, n_clients: int) -> IntArray:
    """Your own owner array, checked."""
    return checks.owner(owner, checks.n_clients(n_clients))


def round_to_sum(proportions: FloatArray, total: int) -> IntArray:
    """The integer counts nearest to proportions * total that sum to total (largest remainder)."""
    quota = proportions * total
    counts = np.floor(quota).astype(np.int64)
    missing = total - int(counts.sum())
    if missing < 0:  # above 2^50 or so the products are no longer exact to 1
        counts[counts.argmax()] += missing
    else:
        counts[np.argsort(counts - quota, kind="stable")[:missing]] += 1
    return counts


def label_counts(
    labels: npt.ArrayLike, owner: npt.ArrayLike, n_clients: int, *, n_classes: int | None = None
) -> IntArray:
    """How many examples of each class each client owns, shape (N, L)."""
    labels, n_classes = checks.labels(labels, n_classes)
    n_clients = checks.n_clients(n_clients)
    owner = checks.owner(owner, n_clients, len(labels))
    cells = np.bincount(owner * n_classes + labels, minlength=n_clients * n_classes)
    return cells.reshape(n_clients, n_classes)


def heterogeneity(counts: npt.ArrayLike) -> FloatArray:
    """|X - Theta*|^2 for each label, from counts (N, L): shape (L,).

    X are a label's proportions over the N clients and Theta* = (1/N, ..., 1/N). A class with no
    examples has no proportions: its entry is NaN.
    """
    counts, _ = checks.counts(counts, counts)
    n_clients = len(counts)
    with np.errstate(invalid="ignore"):
        X = counts / counts.sum(axis=0)
    return ((X - 1 / n_clients) ** 2).sum(axis=0)


def mean_heterogeneity(counts: npt.ArrayLike) -> float:
    """`heterogeneity` averaged over the classes that have examples (NaN if none has)."""
    per_label = heterogeneity(counts)
    present = per_label[~np.isnan(per_label)]
    return float(present.mean()) if present.size else float("nan")


def _members_by_class(labels: IntArray) -> list[IntArray]:
    """The examples of each class that has any, by label."""
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order])) + 1
    return [members for members in np.split(order, starts) if members.size]


def _clients_of_class(k: int, n_classes: int, n_clients: int) -> IntArray:
    return np.arange(k, n_clients, n_classes) if k < n_clients else np.array([k % n_clients])


def _dirichlet_class(size: int, n_clients: int, alpha: float, rng: np.random.Generator) -> IntArray:
    """How many of a class's examples each client gets: (N,)."""
    alpha = min(alpha, 1e100)  # far beyond even; the sum must not overflow
    return round_to_sum(rng.dirichlet(np.full(n_clients, alpha)), size)


def _deal(n_cards: int, clients: IntArray, rng: np.random.Generator) -> IntArray:
    """Deal shuffled examples to `clients` in turn: the first in `clients` get one more."""
    return clients[rng.permutation(n_cards) % len(clients)]


def _no_split(
    _labels: IntArray, _n_clients: int, _alpha: float, _rng: np.random.Generator
) -> IntArray:
    raise ArgumentError("partition site must come with data that name the site of each example")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, as studies name it.

    Attributes:
        name: how they call it.
        caption: what it is, for the words beside a figure; "{alpha:g}" is its concentration.
        split: (labels, n_clients, alpha, rng) -> owner.
        needs_alpha: whether it has a concentration.
        natural: whether owners are the sites that the data come from: nothing is split then.
    """

    name: str
    caption: str
    split: Callable[[IntArray, int, float, np.random.Generator], IntArray]
    needs_alpha: bool = False
    natural: bool = False


PARTITIONS = Registry(
    "partition",
    Partition,
    (
        Partition("iid", "IID", lambda labels, n, _alpha, rng: iid(labels, n, rng=rng)),
        Partition(
            "single-class",
            "single-class",
            lambda labels, n, _alpha, rng: single_class(labels, n, rng=rng),
        ),
        Partition(
            "dirichlet",
            "Dirichlet, α = {alpha:g}",
            lambda labels, n, alpha, rng: dirichlet(labels, n, alpha, rng=rng),
            needs_alpha=True,
        ),
        Partition("site", "natural sites", _no_split, natural=True),
    ),
)


__all__ = [
    "PARTITIONS",
    "Partition",
    "dirichlet",
    "dirichlet_counts",
    "given",
    "heterogeneity",
    "iid",
    "label_counts",
    "mean_heterogeneity",
    "round_to_sum",
    "single_class",
    "single_class_counts",
]


def __dir__() -> list[str]:
    return __all__
