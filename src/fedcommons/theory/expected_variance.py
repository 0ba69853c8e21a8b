"""The variance of the estimate before anything is drawn: its expectation over randomised sharing.

A placement needs to be known for `second_moment`; for a decision only the label counts are, and how
alike gradients are within and between classes. E|f_i|^2 then follows from the first two moments of
the shares (`share_moments`), if the scalar products are the same for all pairs of two classes, else
up to the sampling of examples.

What is offered need not be whole examples. The mask then rounds each client's and class's number up
with the probability of its fraction (`privacy.proportion`); both roundings and subsets are averaged
over. The owner-corrected code's w depends on how the mask was rounded: only there roundings are
drawn, some for each client, and with whole numbers none are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import checks, coding
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError
from fedcommons.placement import Placement
from fedcommons.stragglers import odds
from fedcommons.theory import share_moments
from fedcommons.theory.share_moments import Moments, ReliabilitySplit

MASKS_UP_TO = 100  # roundings that are drawn, fewer for many clients


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

    def cross(self, weights: FloatArray, others: FloatArray) -> FloatArray:
        """<sum_j b_j g_j, sum_k c_k g_k> over different examples, from sums of b and c: (...)."""
        # Small products, many times: handing them to BLAS's threads costs more than it saves.
        seen = np.einsum("...l,lk->...k", weights, self.products)
        return np.einsum("...l,...l->...", seen, others)

    def square(
        self,
        weights: FloatArray,
        squares: FloatArray,
        own: FloatArray,
        *,
        again: FloatArray | None = None,
    ) -> FloatArray:
        """E|sum_j b_j g_j|^2 from sums over each class: E b, (E b)^2 and E b^2: (..., L) each.

        `again`, where the weights are an estimate, is an independent one of the same.
        """
        pairs = self.cross(weights, weights if again is None else again)
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


def expected_variance(
    counts: npt.ArrayLike,
    offered: npt.ArrayLike,
    copies: int,
    geometry: Geometry,
    *,
    straggler_prob: npt.ArrayLike,
    code: str = "equal-split",
) -> float:
    """E|g^ - g|^2 of the coded sum, over stragglers, randomised sharing and the rounding of masks.

    `counts` and `offered`, shape (N, L): how many examples of each class a client owns and how many
    of these it shares.
    """
    norm2 = answers_norm2(
        counts, offered, copies, geometry, code=code, straggler_prob=straggler_prob
    )
    return float(odds(straggler_prob, len(norm2)) @ norm2)


def answers_norm2(
    counts: npt.ArrayLike,
    offered: npt.ArrayLike,
    copies: int,
    geometry: Geometry,
    *,
    code: str = "equal-split",
    straggler_prob: npt.ArrayLike = 0.5,
) -> FloatArray:
    """E|f_i|^2 of every client, (N,); arguments as in `expected_variance`."""
    counts = checks.finite("counts", counts, ndim=2)
    offered = checks.finite("offered", offered, shape=counts.shape)
    return _answers_norm2(
        counts[None], offered[None], (1.0,), copies, geometry, code, straggler_prob
    )[0, 0]


def variance_of_parts(
    counts: npt.ArrayLike,
    offered: npt.ArrayLike,
    parts: Sequence[float],
    copies: int,
    geometry: Geometry,
    *,
    straggler_prob: npt.ArrayLike,
    code: str = "equal-split",
) -> FloatArray:
    """`expected_variance` if only a part of `offered` is, for several parts: (parts, draws).

    `counts` and `offered` have several possible partitions, (draws, N, L). What depends on neither
    part nor partition is computed once.
    """
    counts = checks.finite("counts", counts, ndim=3)
    offered = checks.finite("offered", offered, shape=counts.shape)
    norm2 = _answers_norm2(counts, offered, parts, copies, geometry, code, straggler_prob)
    return norm2 @ odds(straggler_prob, counts.shape[1])


def _answers_norm2(
    counts: FloatArray,
    offered: FloatArray,
    parts: Sequence[float],
    copies: int,
    geometry: Geometry,
    code: str,
    straggler_prob: npt.ArrayLike,
) -> FloatArray:
    """E|f_i|^2: (parts, draws, N)."""
    if (offered < 0).any() or (offered > counts + 1e-9).any():
        raise ArgumentError("offered must be in [0, counts] for every client and class")
    if code not in coding.CODES:
        raise ArgumentError(f"code must be one of {', '.join(coding.CODES)}, got {code!r}")
    N = counts.shape[1]
    d = checks.copies(copies, N)
    p = checks.straggler_prob(straggler_prob, N)
    norm2 = np.empty((len(parts), len(counts), N))
    if code == "reliability-split" and d and np.ptp(p) > 0:
        split = ReliabilitySplit(p, d)
        for draw, (count, offer) in enumerate(zip(counts, offered, strict=True)):
            whole = split.moments(offer)
            for k, part in enumerate(parts):
                norm2[k, draw] = _norm2(count, part * offer, whole.of_part(part), geometry)
        return norm2
    for draw, (count, offer) in enumerate(zip(counts, offered, strict=True)):
        for k, part in enumerate(parts):
            if code == "owner-corrected" and d:
                norm2[k, draw] = _owner_corrected_norm2(count, part * offer, d, geometry)
            else:
                even = share_moments.even_recipients(np.full(N, 1 / (d + 1)), part * offer, d)
                norm2[k, draw] = _norm2(count, part * offer, even, geometry)
    return norm2


def _norm2(
    counts: FloatArray, offered: FloatArray, moments: Moments, geometry: Geometry
) -> FloatArray:
    """E|f_i|^2 for counts (N, L) and offers (..., N, L) that are rounded at random: (..., N)."""
    private = counts - offered
    own = moments.own[..., None]
    weights = private + own * offered + moments.received
    # A class's sum of weights varies with the rounding, by its owner's and by what others receive.
    fraction = offered - np.floor(offered)
    rounding = fraction * (1 - fraction)
    squares = (
        private
        + own[0] * own[-1] * offered
        - (1 - own[0]) * (1 - own[-1]) * rounding
        + moments.squared_means(offered - rounding)
    )
    return geometry.square(
        weights[0],
        squares,
        private + moments.own_square[..., None] * offered + moments.received_square,
        again=weights[-1],
    )


def _owner_corrected_norm2(
    counts: FloatArray, offered: FloatArray, copies: int, geometry: Geometry
) -> FloatArray:
    """The same with each owner's best w, which depends on what it offers: the mean over masks."""
    masks = rounded(offered)
    own = _owner_shares(counts, masks, copies, geometry)
    moments = share_moments.even_recipients(own, masks, copies)
    return _norm2(counts, masks, moments, geometry).mean(axis=0)


def _owner_shares(
    counts: FloatArray, offered: FloatArray, copies: int, geometry: Geometry
) -> FloatArray:
    """Each owner's best w, as `coding.best_owner_share` has it, from the mean products."""
    private = counts - offered
    return coding.best_owner_share(
        geometry.cross(private, offered),
        geometry.square(offered, offered, offered),
        offered @ geometry.norm2 / copies,
    )


def rounded(offered: FloatArray) -> FloatArray:
    """Whole numbers that a mask may have for these offers, (N, L): (masks, N, L), one if whole.

    Each has the right distribution, and between them every number is rounded up as often as its
    fraction says (Latin hypercube sampling). The same every time.
    """
    nearest = np.rint(offered)
    if np.abs(offered - nearest).max(initial=0) < 1e-9:
        return nearest[None]
    n_masks = min(max(1, 2000 // len(offered)), MASKS_UP_TO)
    return np.floor(offered + _strata(n_masks, offered.shape))


@lru_cache(maxsize=1)
def _strata(n_draws: int, shape: tuple[int, ...]) -> FloatArray:
    """Numbers in [0, 1), evenly spread over the draws for each entry: (draws, *shape)."""
    rng = np.random.default_rng(0)
    strata = rng.permuted(np.arange(n_draws)[:, None].repeat(np.prod(shape), axis=1), axis=0)
    found = (strata + rng.random(strata.shape)) / n_draws
    return found.reshape(n_draws, *shape)


def placement_variance(
    placement: Placement,
    labels: npt.ArrayLike,
    geometry: Geometry,
    *,
    straggler_prob: npt.ArrayLike,
    code: str = "equal-split",
) -> float:
    """E|g^ - g|^2 of the coded sum over stragglers, for a placement that is there."""
    labels, L = checks.labels(labels, len(geometry.norm2))
    N, M = placement.n_clients, placement.n_examples
    checks.same_length("labels", labels, M)
    copies = placement.copies

    cells = placement.owner * np.int64(L) + labels

    def by_owner(weights: npt.ArrayLike) -> FloatArray:
        sums = np.bincount(cells, np.asarray(weights, np.float64), minlength=N * L)
        return sums.reshape(N, L).astype(np.float64)

    private, shared = by_owner(copies == 0), by_owner(copies > 0)
    owner_share = coding.best_owner_share(
        geometry.cross(private, shared),
        geometry.square(shared, shared, shared),
        by_owner((copies > 0) / np.maximum(copies, 1)) @ geometry.norm2,
    )
    b = coding.by_name(code, placement, straggler_prob=straggler_prob, owner_share=owner_share)
    members = csr_array((np.ones(M), labels, np.arange(M + 1)), shape=(M, L))
    squares = (b.multiply(b) @ members).toarray()
    norm2 = geometry.square((b @ members).toarray(), squares, squares)
    return float(odds(straggler_prob, N) @ norm2)


def gradient_norm2(counts: IntArray | FloatArray, geometry: Geometry) -> float:
    """E|g|^2 of the full gradient, from the examples of each class, (L,)."""
    counts = checks.finite("counts", counts, ndim=1)
    return float(geometry.square(counts, counts, counts))
