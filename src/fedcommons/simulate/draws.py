"""What chance decides in one run: the training set, who owns and shares what, who straggles.

Streams are named by what a draw may depend on. All curves of a run share the training set, curves
with the same partition share the owners, those with the same c besides the mask, and all share the
uniform numbers behind the stragglers: curves with the same p see the same stragglers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import checks, coding, partition, privacy, sharing
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError
from fedcommons.placement import Placement
from fedcommons.simulate.curves import Curve
from fedcommons.streams import stream
from fedcommons.tasks import softmax
from fedcommons.theory import heterogeneity


@dataclass(frozen=True)
class TrainingSet:
    """The examples of one run, sorted by what partitions tell them apart by.

    Attributes:
        y: (M, ...) as the dataset has them.
        groups: (M,) labels or strata.
        inputs: (M, F) float32.
        n_classes: L; 0 if y are no labels.
        sites: (M,) the number of each example's site; None if the data name none.
    """

    y: npt.NDArray[Any]
    groups: IntArray
    inputs: np.ndarray
    n_classes: int
    sites: IntArray | None = None

    @property
    def labels(self) -> IntArray:
        """y, where they are labels."""
        return self.y

    @cached_property
    def products(self) -> FloatArray:
        """The scalar products <g_j, g_k> of softmax regression at zero weights: (M, M)."""
        residuals = softmax.initial_residuals(self.labels, self.n_classes)
        return softmax.gradient_products(self.inputs, residuals)


@dataclass(frozen=True, slots=True)
class Shared:
    """Who owns, may share and holds what, for one curve of one run."""

    owner: IntArray
    shareable: BoolArray
    placement: Placement


def training_set(dataset: Dataset, class_size: int | None, *, seed: int, run: int) -> TrainingSet:
    """`class_size` examples of each class or stratum, at random without replacement.

    None stands for all that there are, sorted.
    """
    groups = dataset.groups
    if class_size is None:
        return _of_examples(dataset, np.argsort(groups, kind="stable"))
    class_size = checks.integer("class_size", class_size, low=1)
    rng = stream(seed, "training set", run)
    picks = []
    word = "class" if dataset.strata_train is None else "stratum"
    n_groups = dataset.n_classes if dataset.strata_train is None else int(groups.max()) + 1
    for label in range(n_groups):
        members = np.flatnonzero(groups == label)
        if len(members) < class_size:
            raise ArgumentError(
                f"class_size must be at most the {len(members)} examples of {word} {label}, "
                f"got {class_size}"
            )
        picks.append(rng.choice(members, class_size, replace=False))
    return _of_examples(dataset, np.concatenate(picks))


def _of_examples(dataset: Dataset, examples: IntArray) -> TrainingSet:
    return TrainingSet(
        dataset.y_train[examples],
        dataset.groups[examples],
        dataset.inputs("train", examples),
        dataset.n_classes if dataset.has_labels else 0,
        None if dataset.site_train is None else dataset.site_train[examples],
    )


def share(
    curve: Curve,
    labels: IntArray,
    n_clients: int,
    *,
    seed: int,
    run: int,
    sites: IntArray | None = None,
) -> Shared:
    """The partition, the mask and the placement of one curve.

    `sites` are the owners in a natural partition.
    """
    rng = stream(seed, "partition", curve.partition, curve.alpha, run)
    by = partition.PARTITIONS[curve.partition]
    if by.natural and sites is not None:
        found = sites
    else:
        found = by.split(labels, n_clients, curve.alpha, rng)
    owner = partition.given(found, n_clients)
    shareable = privacy.proportion(
        labels, owner, curve.proportion, n_clients=n_clients, rng=stream(seed, "privacy", run)
    )
    placement = sharing.SCHEMES[curve.scheme].share(
        labels, owner, shareable, curve.copies, n_clients, stream(seed, "sharing", run)
    )
    return Shared(owner, shareable, placement)


def share_all(
    curves: Sequence[Curve], data: TrainingSet, n_clients: int, *, seed: int, run: int
) -> list[Shared]:
    """What each curve shares; curves that share alike get the same record."""
    known: dict[tuple[object, ...], Shared] = {}
    result = []
    for curve in curves:
        key = (curve.partition, curve.alpha, curve.proportion, curve.copies, curve.scheme)
        if key not in known:
            known[key] = share(curve, data.groups, n_clients, seed=seed, run=run, sites=data.sites)
        result.append(known[key])
    return result


def heterogeneity_of(shared: Shared, labels: IntArray, curve: Curve) -> tuple[float, float, float]:
    """|X - Theta*|^2, |Y - Theta*|^2 and the expectation of the latter, averaged over labels.

    The expectation is over randomised sharing: NaN for other schemes.
    """
    n_clients, mask = shared.placement.n_clients, shared.shareable
    before = partition.label_counts(labels, shared.owner, n_clients)
    offered = partition.label_counts(
        labels[mask], shared.owner[mask], n_clients, n_classes=before.shape[1]
    )
    expected = math.nan
    if sharing.SCHEMES[curve.scheme].is_randomised:
        expected = float(heterogeneity.expected(before, offered, curve.copies).mean())
    return (
        partition.mean_heterogeneity(before),
        partition.mean_heterogeneity(shared.placement.label_counts(labels)),
        expected,
    )


def shares(curve: Curve, placement: Placement, products: FloatArray) -> csr_array:
    """The code of one curve: sparse, (N, M)."""
    owner_share = None
    if curve.code == "owner-corrected":
        owner_share = coding.owner_share_from_products(placement, products)
    return coding.by_name(
        curve.code, placement, straggler_prob=curve.straggler_prob, owner_share=owner_share
    )


def answered(curve: Curve, n_rounds: int, n_clients: int, *, seed: int, run: int) -> BoolArray:
    """Who answers in each round of one curve: (rounds, N)."""
    rng = stream(seed, "stragglers", run)
    return curve.straggler_model(n_clients).answered(n_rounds, n_clients, rng=rng)


def main_class(shared: Shared, groups: IntArray) -> IntArray:
    """The class or stratum that most of each client's own examples are of: (N,); of several the
    lowest, 0 for a client without any."""
    counts = partition.label_counts(groups, shared.owner, shared.placement.n_clients)
    return np.asarray(counts.argmax(axis=1))
