"""Sums of scalar products of gradients, by kind of pair: no pairwise loop is needed.

A sum over all pairs within a group is the squared norm of the group's sum, so sums of gradients per
group are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import checks
from fedcommons.checks import FloatArray, IntArray

Sum = float | FloatArray


def type_sums(gradients: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[float, float]:
    """Type I and Type II of Figure 3: sums over pairs of the same class, and of different classes.

    Type I = sum over classes of |sum of that class's gradients|^2; Type II = |g|^2 - Type I.
    """
    gradients = checks.finite("gradients", gradients, ndim=2)
    labels, n_classes = checks.labels(labels)
    checks.same_length("labels", labels, len(gradients))
    per_class = membership(labels, n_classes) @ gradients
    same = float((per_class**2).sum())
    return same, float((per_class.sum(axis=0) ** 2).sum()) - same


@dataclass(frozen=True, slots=True)
class PairSums:
    """Sums of <g_j, g_k> over ordered pairs of each kind (the paper's J sets).

    The kinds are those of `fedcommons.theory.lambdas.Lambdas`, except that `same_shared` contains
    the pairs of an example with itself, as in the paper; `self_shared` is that part of it. Each is
    a number, or an array over models (rounds, for instance): every formula holds for both.
    """

    same_private: Sum
    diff_private: Sum
    same_mixed: Sum
    diff_mixed: Sum
    self_shared: Sum
    same_shared: Sum
    diff_shared: Sum

    @property
    def total(self) -> Sum:
        """|g|^2."""
        return (
            self.same_private
            + self.diff_private
            + self.same_mixed
            + self.diff_mixed
            + self.same_shared
            + self.diff_shared
        )

    @property
    def same(self) -> Sum:
        """Over all pairs of the same group: the sum of the groups' squared norms."""
        return self.same_private + self.same_mixed + self.same_shared

    @property
    def same_shareable(self) -> Sum:
        """Over pairs of the same group of which at least one is shareable: the sum in Theorem 2."""
        return self.same_mixed + self.same_shared


def pair_sums(
    gradients: npt.ArrayLike, groups: npt.ArrayLike, shareable: npt.ArrayLike
) -> PairSums:
    """Pair sums from gradients (M, P). `groups`, (M,), says what "same" means: owner or class."""
    gradients = checks.finite("gradients", gradients, ndim=2)
    member = block_membership(groups, shareable, len(gradients))
    sums = member @ gradients
    return pair_sums_from_blocks(
        sums @ sums.T, float((gradients[np.asarray(shareable)] ** 2).sum())
    )


def pair_sums_from_products(
    products: npt.ArrayLike, groups: npt.ArrayLike, shareable: npt.ArrayLike
) -> PairSums:
    """`pair_sums` in example space, from the scalar products <g_j, g_k>, shape (M, M)."""
    products = checks.products(products)
    member = block_membership(groups, shareable, len(products))
    self_shared = float(np.diag(products)[np.asarray(shareable)].sum())
    return pair_sums_from_blocks(member @ (member @ products).T, self_shared)


def membership(groups: IntArray, n_groups: int) -> csr_array:
    """The 0/1 matrix whose product with gradients sums them by group: sparse, (n_groups, M)."""
    entries = (np.ones(len(groups)), (groups, np.arange(len(groups))))
    return csr_array(entries, shape=(n_groups, len(groups)))


def block_membership(groups: npt.ArrayLike, shareable: npt.ArrayLike, length: int) -> csr_array:
    """Membership in 2 G blocks: each group's private examples, then each group's shareable ones."""
    groups = checks.indices("groups", groups, length=length)
    shareable = checks.mask("shareable", shareable, length)
    n_groups = int(groups.max()) + 1 if groups.size else 1
    return membership(groups + n_groups * shareable, 2 * n_groups)


def pair_sums_from_blocks(block_products: FloatArray, self_shared: Sum) -> PairSums:
    """From the scalar products of the 2 G block sums, and sum |g_j|^2 over the shareable.

    `block_products` has shape (..., 2 G, 2 G) and `self_shared` shape (...), as the sums then have.
    """
    G = block_products.shape[-1] // 2
    private, shared = block_products[..., :G, :G], block_products[..., G:, G:]
    mixed = 2 * block_products[..., :G, G:]  # ordered pairs: both ways round

    def same(products: FloatArray) -> FloatArray:
        return np.trace(products, axis1=-2, axis2=-1, dtype=np.float64)

    def diff(products: FloatArray) -> FloatArray:
        return products.sum(axis=(-2, -1), dtype=np.float64) - same(products)

    return PairSums(
        same_private=same(private),
        diff_private=diff(private),
        same_mixed=same(mixed),
        diff_mixed=diff(mixed),
        self_shared=self_shared,
        same_shared=same(shared),
        diff_shared=diff(shared),
    )


__all__ = [
    "PairSums",
    "block_membership",
    "membership",
    "pair_sums",
    "pair_sums_from_blocks",
    "pair_sums_from_products",
    "type_sums",
]


def __dir__() -> list[str]:
    return __all__
