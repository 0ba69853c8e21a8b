"""How alike gradients are, within and between classes, before training."""

from __future__ import annotations

import numpy as np

from fedcommons import checks
from fedcommons.datasets import Dataset
from fedcommons.errors import DataError
from fedcommons.tasks import softmax
from fedcommons.theory.expected_variance import Geometry

PILOT_PER_CLASS = 2000
SAME_CLASS, OTHER_CLASS = 0.53, 0.40  # how alike two images of MNIST are, on average


def assumed_geometry(
    n_classes: int, *, same_class: float = SAME_CLASS, other_class: float = OTHER_CLASS
) -> Geometry:
    """Gradients of softmax regression at zero weights, from how alike inputs are on average.

    `same_class` and `other_class` are mean scalar products of two inputs over their mean square;
    the defaults are MNIST's.
    """
    L = checks.integer("n_classes", n_classes, low=2)
    same = checks.real("same_class", same_class, low=-1, high=1)
    other = checks.real("other_class", other_class, low=-1, high=1)
    alike = np.where(np.eye(L, dtype=np.bool_), same, other)
    return Geometry(np.full(L, 1 - 1 / L), alike * (np.eye(L) - 1 / L))


def pilot_geometry(dataset: Dataset) -> Geometry:
    """Gradients of softmax regression at zero weights, from some of the dataset's examples."""
    rng = np.random.default_rng(0)  # the same plan every time
    rows = [
        rng.permutation(np.flatnonzero(dataset.y_train == label))[:PILOT_PER_CLASS]
        for label in range(dataset.n_classes)
    ]
    if min(map(len, rows)) < 2:
        raise DataError(f"{dataset.name}: a plan needs two examples of each class")
    chosen = np.concatenate(rows)
    return softmax.initial_geometry(
        dataset.inputs("train", chosen), dataset.y_train[chosen], dataset.n_classes
    )
