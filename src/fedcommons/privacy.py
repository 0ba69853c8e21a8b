"""Which examples may be shared (Section II: a proportion c of each client's data is not private).

The answer is a boolean mask `shareable`, shape (M,). Nothing is shareable unless it says so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray, IntArray


def proportion(
    labels: npt.ArrayLike,
    owner: npt.ArrayLike,
    proportion: npt.ArrayLike,
    *,
    n_clients: int,
    rng: np.random.Generator,
) -> BoolArray:
    """A proportion c of each client's examples of each class, drawn at random.

    `proportion` is one c, or c_i for each client, shape (N,). Where c times a count is not an
    integer the count is rounded up with the probability of its fraction, so that every example is
    shareable with probability exactly c (docs/deviations.md, 3).
    """
    labels, n_classes = checks.labels(labels)
    n_clients = checks.n_clients(n_clients)
    c = checks.proportions("proportion", proportion, n_clients, "client")
    cells = np.broadcast_to(c[:, None], (n_clients, n_classes))
    return _draw(labels, owner, cells, rng)


def proportion_per_class(
    labels: npt.ArrayLike,
    owner: npt.ArrayLike,
    proportion: npt.ArrayLike,
    *,
    n_clients: int,
    rng: np.random.Generator,
    n_classes: int | None = None,
) -> BoolArray:
    """As `proportion`, with a c for each class instead, shape (L,)."""
    labels, n_classes = checks.labels(labels, n_classes)
    n_clients = checks.n_clients(n_clients)
    c = checks.proportions("proportion", proportion, n_classes, "class")
    cells = np.broadcast_to(c[None, :], (n_clients, n_classes))
    return _draw(labels, owner, cells, rng)


def given(shareable: npt.ArrayLike, n_examples: int) -> BoolArray:
    """Your own mask, checked: True means that this example may be shared."""
    return checks.mask("shareable", shareable, n_examples)


def _draw(
    labels: IntArray, owner: npt.ArrayLike, proportions: FloatArray, rng: np.random.Generator
) -> BoolArray:
    """Draw round(c n) of the n examples in each (client, class) cell; `proportions` is (N, L)."""
    n_clients, n_classes = proportions.shape
    owner = checks.owner(owner, n_clients, len(labels))
    rng = checks.rng(rng)
    cell = owner * n_classes + labels
    counts = np.bincount(cell, minlength=n_clients * n_classes)
    quota = _round_unbiased(proportions.ravel() * counts, rng)
    order = np.argsort(cell[shuffled := rng.permutation(len(cell))], kind="stable")
    ranked = shuffled[order]  # by cell, in random order within a cell
    first = np.cumsum(counts) - counts
    rank = np.arange(len(cell)) - first[cell[ranked]]
    shareable = np.zeros(len(cell), np.bool_)
    shareable[ranked] = rank < quota[cell[ranked]]
    return shareable


def _round_unbiased(target: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Round down, or up with the probability of the fraction: the expectation is the target."""
    # A product such as 0.1 * 30 = 3.0000000000000004 means 3.
    nearest = np.rint(target)
    error = 4 * np.finfo(np.float64).eps * target
    target = np.where(np.abs(target - nearest) <= error, nearest, target)
    down = np.floor(target)
    return down + (rng.random(len(target)) < target - down)


__all__ = ["given", "proportion", "proportion_per_class"]


def __dir__() -> list[str]:
    return __all__
