"""The variance of the estimate before anything is drawn: its expectation over randomised sharing.

A placement needs to be known for `second_moment`; for a decision only the label counts are, and how
alike gradients are within and between classes. Examples' subsets are independent, so over sharing
E|f_i|^2 needs the first two moments of each share b_ij alone. Exact for the equal split and the
owner-corrected code if the scalar products are the same for all pairs of two classes, else up to
the sampling of examples; the reliability split's moments are sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons import checks, coding
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError
from fedcommons.subsets import random_subsets
from fedcommons.theory.second_moment import odds


@dataclass(frozen=True, slots=True)
class Geometry:
    """Mean scalar products of the examples' gradients at one model.

    Attributes:
        norm2: (L,) E|g_j|^2 of each class.
        products: (L, L) E<g_j, g_k> of two different examples, by their classes.
    """

    norm2: FloatArray
    products: FloatArray

    def __post_init__(self) -> None:
        norm2 = checks.finite("norm2", self.norm2, ndim=1)
        checks.finite("products", self.products, shape=(len(norm2), len(norm2)))

    def square(self, weights: FloatArray, squares: FloatArray, own: FloatArray) -> FloatArray:
        """E|sum_j b_j g_j|^2 from sums over each class: E b, (E b)^2 and E b^2: (..., L) each."""
        pairs = ((weights @ self.products) * weights).sum(axis=-1)
        return pairs - squares @ np.diag(self.products) + own @ self.norm2


def geometry_from_products(products: npt.ArrayLike, labels: npt.ArrayLike) -> Geometry:
    """The means of <g_j, g_k>, shape (M, M), over the examples of each class; two are needed."""
    labels, L = checks.labels(labels)
    products = checks.products(products, len(labels))
    members = np.eye(L)[labels]
    n = members.sum(axis=0)
    if (n < 2).any():
        raise ArgumentError(f"labels must have two examples of each class, got {n.min():g}")
    norm2 = members.T @ np.diag(products)
    sums = members.T @ products @ members - np.diag(norm2)
    return Geometry(norm2 / n, sums / (np.outer(n, n) - np.diag(n)))


@dataclass(frozen=True, slots=True)
class Shares:
    """Moments of the shares over randomised sharing, summed over examples where they are received.

    Attributes:
        own: (N,) E b of an owner for an example it shared, and `own_square` E b^2.
        received: (N, L) the sum of E b over what a client receives of each class, and
            `received_square` that of E b^2.
        q: the probability d/(N-1) that a certain client receives a certain example.
    """

    own: FloatArray
    own_square: FloatArray
    received: FloatArray
    received_square: FloatArray
    q: float


def shares(
    code: str,
    counts: FloatArray,
    offered: FloatArray,
    copies: int,
    straggler_prob: FloatArray,
    geometry: Geometry,
) -> Shares:
    """The moments of a code's shares: `counts` and `offered` (shareable), shape (N, L)."""
    N, d = len(counts), copies
    q = d / (N - 1) if N > 1 else 0.0
    if code == "reliability-split" and d and np.ptp(straggler_prob) > 0:
        return _reliability_shares(offered, d, straggler_prob, q)
    if code == "owner-corrected" and d:
        own = _owner_shares(counts, offered, d, geometry)
        theirs = (1 - own) / d
    elif code in coding.CODES:
        own = theirs = np.full(N, 1 / (d + 1))
    else:
        raise ArgumentError(f"code must be one of {', '.join(coding.CODES)}, got {code!r}")
    first, second = theirs[:, None] * offered, theirs[:, None] ** 2 * offered
    return Shares(
        own, own**2, q * (first.sum(axis=0) - first), q * (second.sum(axis=0) - second), q
    )


def _owner_shares(
    counts: FloatArray, offered: FloatArray, copies: int, geometry: Geometry
) -> FloatArray:
    """Each owner's best w, as `coding.best_owner_share` has it, from the mean products."""
    private = counts - offered
    return coding.best_owner_share(
        ((private @ geometry.products) * offered).sum(axis=1),
        geometry.square(offered, offered, offered),
        offered @ geometry.norm2 / copies,
    )


def _reliability_shares(offered: FloatArray, copies: int, p: FloatArray, q: float) -> Shares:
    """Sampled: some subsets for each owner, of which the reliable members carry more."""
    N = len(p)
    samples = max(64, 20_000 // N)
    weight = (1 - p) / np.maximum(p, 1e-9)
    rng = np.random.default_rng(0)  # the same plan every time
    owner = np.repeat(np.arange(N, dtype=np.int32), samples)
    others = random_subsets(len(owner), copies, N - 1, rng=rng)
    others += others >= owner[:, None]
    total = weight[owner] + weight[others].sum(axis=1)
    own = (weight[owner] / total).reshape(N, samples)
    share = weight[others] / total[:, None]
    received, received_square = np.zeros_like(offered), np.zeros_like(offered)
    for k in range(copies):
        for target, values in ((received, share[:, k]), (received_square, share[:, k] ** 2)):
            for label in range(offered.shape[1]):
                given = offered[owner, label] * values / samples
                target[:, label] += np.bincount(others[:, k], given, minlength=N)
    return Shares(own.mean(axis=1), (own**2).mean(axis=1), received, received_square, q)


def answers_norm2(
    counts: npt.ArrayLike,
    offered: npt.ArrayLike,
    copies: int,
    geometry: Geometry,
    *,
    code: str = "equal-split",
    straggler_prob: npt.ArrayLike = 0.5,
) -> FloatArray:
    """E|f_i|^2 of every client over randomised sharing, (N,).

    `counts` and `offered`, shape (N, L): how many examples of each class a client owns and how many
    of these it shares. `offered` need not be integers: the mask is then rounded at random, without
    bias, as `privacy.proportion` does.
    """
    counts = checks.finite("counts", counts, ndim=2)
    offered = checks.finite("offered", offered, shape=counts.shape)
    if (offered < 0).any() or (offered > counts + 1e-9).any():
        raise ArgumentError("offered must be in [0, counts] for every client and class")
    N = len(counts)
    p = checks.straggler_prob(straggler_prob, N)
    b = shares(code, counts, offered, checks.copies(copies, N), p, geometry)
    private = counts - offered
    norm2 = geometry.square(
        private + b.own[:, None] * offered + b.received,
        private + b.own[:, None] ** 2 * offered + b.q * b.received_square,
        private + b.own_square[:, None] * offered + b.received_square,
    )
    fraction = offered - np.floor(offered)
    rounding = fraction * (1 - fraction) * np.diag(geometry.products)
    return norm2 + (1 - b.own) ** 2 * rounding.sum(axis=1)


def expected_variance(
    counts: npt.ArrayLike,
    offered: npt.ArrayLike,
    copies: int,
    geometry: Geometry,
    *,
    straggler_prob: npt.ArrayLike,
    code: str = "equal-split",
) -> float:
    """E|g^ - g|^2 of the coded sum, over stragglers and over randomised sharing."""
    norm2 = answers_norm2(
        counts, offered, copies, geometry, code=code, straggler_prob=straggler_prob
    )
    return float(odds(straggler_prob, len(norm2)) @ norm2)


def gradient_norm2(counts: IntArray | FloatArray, geometry: Geometry) -> float:
    """E|g|^2 of the full gradient, from the examples of each class, (L,)."""
    counts = checks.finite("counts", counts, ndim=1)
    return float(geometry.square(counts, counts, counts))
