"""What sharing does before training has moved the model, measured beside the theory.

At the initial model nothing depends on past rounds, so every quantity is exact given a draw of the
training set, the partition and the sharing; only these draws are averaged over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import coding, partition, privacy, sharing
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError
from fedcommons.placement import Placement
from fedcommons.simulate.streams import stream
from fedcommons.tasks import softmax
from fedcommons.theory import heterogeneity, scalar_products, second_moment, variance_reduction

SETTINGS: dict[str, Callable[[IntArray, int, np.random.Generator], IntArray]] = {
    "single-class": lambda labels, n, rng: partition.single_class(labels, n, rng=rng),
    "Dir(0.1)": lambda labels, n, rng: partition.dirichlet(labels, n, 0.1, rng=rng),
    "IID": lambda labels, n, rng: partition.iid(labels, n, rng=rng),
}


@dataclass(frozen=True, slots=True)
class Draw:
    """One training set, partition, mask and placement, with its gradients at zero weights."""

    labels: IntArray
    owner: IntArray
    shareable: BoolArray
    placement: Placement
    inputs: FloatArray
    residuals: FloatArray

    def unshared(self) -> csr_array:
        """The code without sharing: each owner has the whole of each of its examples."""
        return coding.equal_split(sharing.none(self.owner, n_clients=self.placement.n_clients))

    def products(self) -> FloatArray:
        """<g_j, g_k>: shape (M, M)."""
        return softmax.gradient_products(self.inputs, self.residuals)


def draw(
    dataset: Dataset,
    setting: str,
    *,
    n_clients: int,
    class_size: int,
    proportion: float,
    copies: int,
    seed: int,
    run: int,
) -> Draw:
    """Run number `run`: K training examples per class, partitioned and shared.

    The training set depends on seed and run only and the partition on the setting besides, so
    that settings and (c, d) pairs are compared on the same draws.
    """
    if setting not in SETTINGS:
        raise ArgumentError(f"setting must be one of {list(SETTINGS)}, got {setting!r}")
    examples = training_set(dataset.y_train, class_size, rng=stream(seed, "training set", run))
    labels = dataset.y_train[examples]
    owner = SETTINGS[setting](labels, n_clients, stream(seed, "partition", setting, run))
    shareable = privacy.proportion(
        labels, owner, proportion, n_clients=n_clients, rng=stream(seed, "privacy", run)
    )
    placement = sharing.randomised(
        owner, shareable, copies, n_clients=n_clients, rng=stream(seed, "sharing", run)
    )
    inputs = dataset.inputs("train", examples, dtype=np.float64)
    residuals = softmax.initial_residuals(labels, dataset.n_classes)
    return Draw(labels, owner, shareable, placement, inputs, residuals)


def training_set(labels: IntArray, class_size: int, *, rng: np.random.Generator) -> IntArray:
    """`class_size` examples of each class, uniformly at random without replacement, by class."""
    picks = []
    for label in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == label)
        if len(members) < class_size:
            raise ArgumentError(
                f"class_size must be at most the {len(members)} examples of class {label}, "
                f"got {class_size}"
            )
        picks.append(rng.choice(members, class_size, replace=False))
    return np.concatenate(picks)


def heterogeneity_of(draw: Draw, copies: int) -> dict[str, float]:
    """Heterogeneity averaged over labels: before sharing, after it, and as Theorem 1 expects it."""
    placement, labels = draw.placement, draw.labels
    n_clients = placement.n_clients
    before = partition.label_counts(labels, draw.owner, n_clients)
    offered = partition.label_counts(
        labels[draw.shareable], draw.owner[draw.shareable], n_clients, n_classes=before.shape[1]
    )
    return {
        "before": partition.mean_heterogeneity(before),
        "after": partition.mean_heterogeneity(placement.label_counts(labels)),
        "expected": float(np.nanmean(heterogeneity.expected(before, offered, copies))),
    }


def reduction_of(draw: Draw, *, copies: int, straggler_prob: float) -> dict[str, float]:
    """The reduction of the second moment by sharing beside its expectation and its bounds.

    All are relative to the variance without sharing.
    """
    n_clients, p = draw.placement.n_clients, straggler_prob
    products = draw.products()
    unshared = _variance(draw.unshared(), products, p)
    by_owner = scalar_products.pair_sums_from_products(products, draw.owner, draw.shareable)
    by_class = scalar_products.pair_sums_from_products(products, draw.labels, draw.shareable)
    absolute = {
        "measured": unshared - _variance(coding.equal_split(draw.placement), products, p),
        "expected": variance_reduction.expected_reduction(
            by_owner, n_clients=n_clients, copies=copies, straggler_prob=p
        ),
        "Remark": variance_reduction.remark_bound(by_class, copies=copies, straggler_prob=p),
        "Theorem 2": variance_reduction.theorem2_bound(by_class, copies=copies, straggler_prob=p),
    }
    return {name: value / unshared for name, value in absolute.items()}


def code_variances_of(draw: Draw, straggler_prob: npt.ArrayLike) -> dict[str, float]:
    """The variance of each code on this placement, relative to no sharing."""
    products, placement = draw.products(), draw.placement
    owner_share = coding.owner_share_from_products(placement, products)
    codes = {
        "equal split": coding.equal_split(placement),
        "reliability": coding.reliability_split(placement, straggler_prob),
        "owner-corrected": coding.owner_corrected(placement, owner_share),
    }
    unshared = _variance(draw.unshared(), products, straggler_prob)
    return {
        name: _variance(shares, products, straggler_prob) / unshared
        for name, shares in codes.items()
    }


_variance = second_moment.variance_from_products
