"""Codes: how the holders of an example share its gradient (Section III-B).

A code is a matrix of shares b, sparse, shape (N, M), with b_ij = 0 unless client i holds example j
and every column summing to 1. Client i answers f_i = sum_j b_ij g_j, in short `shares @ gradients`;
any code makes the estimate unbiased, better codes make it less noisy. A new code is one rule (the
shares of some clients in examples that they hold) and a record `Code` that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError
from fedcommons.placement import Placement
from fedcommons.registry import Registry

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# (clients, examples that they hold) -> shares
Rule = Callable[[IntArray, npt.NDArray[np.integer]], FloatArray]


@dataclass(frozen=True, slots=True)
class Code:
    """A code, as studies and federations name it.

    Attributes:
        name: how they call it.
        caption: what it is, for the words beside a figure; empty for the paper's.
        rule: (placement, p or None, w or None) -> the rule that gives the shares.
        needs_p: whether it needs the straggler probabilities.
        needs_owner_share: whether it needs w, each owner's share of what it shared
            (`best_owner_share`).
        one_step: whether clients may take one local step only, as negative shares demand.
    """

    name: str
    caption: str
    rule: Callable[[Placement, npt.ArrayLike | None, npt.ArrayLike | None], Rule]
    needs_p: bool = False
    needs_owner_share: bool = False
    one_step: bool = False


def equal_split(placement: Placement) -> csr_array:
    """The paper's code: every holder of example j has the share 1/d_j."""
    return _matrix(placement, _equal_split(placement))


def _equal_split(placement: Placement) -> Rule:
    share = 1 / placement.holder_counts
    return lambda _client, example: share[example]


def reliability_split(placement: Placement, straggler_prob: npt.ArrayLike) -> csr_array:
    """Shares proportional to (1 - p_i)/p_i over the holders: the reliable carry more.

    Holders that never straggle (p = 0) share an example equally and the others get nothing. Equal
    p gives `equal_split`. It minimises the variance if gradients of different examples are
    orthogonal; with lopsided data it can be somewhat worse than `equal_split`.
    """
    return _matrix(placement, _reliability_split(placement, straggler_prob))


def _reliability_split(placement: Placement, straggler_prob: npt.ArrayLike) -> Rule:
    p = checks.straggler_prob(straggler_prob, placement.n_clients)
    copied = np.repeat(np.arange(placement.n_examples), placement.copies)

    def over_holders(weight: FloatArray) -> FloatArray:
        """Each example's sum of its holders' weights: (M,)."""
        elsewhere = np.bincount(copied, weight[placement.recipients], placement.n_examples)
        return weight[placement.owner] + elsewhere

    never = (p == 0).astype(np.float64)
    odds = (1 - p) / np.maximum(p, 1e-100)  # of p = 0 never used
    n_never = over_holders(never)
    total = np.where(n_never > 0, n_never, over_holders(odds))

    def rule(client: IntArray, example: npt.NDArray[np.integer]) -> FloatArray:
        return np.where(n_never[example] > 0, never[client], odds[client]) / total[example]

    return rule


def owner_corrected(placement: Placement, owner_share: npt.ArrayLike) -> csr_array:
    """The owner keeps share w of each example it shared and the recipients split 1 - w equally.

    `owner_share` is w for each owner, shape (N,), or one for all. Any w is unbiased, a negative one
    too: the copies elsewhere then stand in for the private examples of an owner who is missing.
    `best_owner_share` gives the w to use. For full gradients and one local step only.
    """
    return _matrix(placement, _owner_corrected(placement, owner_share))


def _owner_corrected(placement: Placement, owner_share: npt.ArrayLike) -> Rule:
    w = checks.per_entry("owner_share", owner_share, placement.n_clients, "client")
    if not np.isfinite(w).all():
        raise ArgumentError(f"owner_share must be finite, got {w[~np.isfinite(w)][0]}")
    own = np.where(placement.copies > 0, w[placement.owner], 1.0)
    theirs = (1 - w[placement.owner]) / np.maximum(placement.copies, 1)
    return lambda client, example: np.where(
        placement.owner[example] == client, own[example], theirs[example]
    )


def by_name(
    code: str,
    placement: Placement,
    *,
    straggler_prob: npt.ArrayLike | None = None,
    owner_share: npt.ArrayLike | None = None,
) -> csr_array:
    """The shares under the code of this name, one of `CODES`, with what that code needs."""
    return _matrix(placement, _rule(code, placement, straggler_prob, owner_share))


def shares_of(
    client: int,
    code: str,
    placement: Placement,
    *,
    straggler_prob: npt.ArrayLike | None = None,
    owner_share: npt.ArrayLike | None = None,
) -> FloatArray:
    """One client's shares of the examples that it holds, in the order of `held_by`."""
    held = placement.held_by(client)
    rule = _rule(code, placement, straggler_prob, owner_share)
    return rule(np.full(len(held), client), held)


def _rule(
    code: str,
    placement: Placement,
    straggler_prob: npt.ArrayLike | None,
    owner_share: npt.ArrayLike | None,
) -> Rule:
    found = CODES[code]
    if found.needs_p and straggler_prob is None:
        raise ArgumentError(f"straggler_prob must be given for the code {code}, got None")
    if found.needs_owner_share and owner_share is None:
        raise ArgumentError(f"owner_share must be given for the code {code}, got None")
    return found.rule(placement, straggler_prob, owner_share)


CODES = Registry(
    "code",
    Code,
    (
        Code("equal-split", "", lambda placement, _p, _w: _equal_split(placement)),
        Code(
            "reliability-split",
            "reliability split: of an example’s holders the reliable send more of it",
            lambda placement, p, _w: _reliability_split(placement, np.asarray(p)),
            needs_p=True,
        ),
        Code(
            "owner-corrected",
            "owner-corrected code: copies elsewhere stand in for a missing owner’s data",
            lambda placement, _p, w: _owner_corrected(placement, np.asarray(w)),
            needs_owner_share=True,
            one_step=True,
        ),
    ),
)


def loss_weights(shares: npt.ArrayLike) -> tuple[FloatArray, float]:
    """What each example's loss counts in one client's mean, and what the client's answer counts.

    Loss weights are b_ij n / W for n examples whose shares sum to W: the mean over a batch of
    weight times loss is on the scale of any other mean loss, so a step may be of any kind. W times
    how far the client went, over the size of the step, is its answer f_i. One plain step on all
    examples answers sum_j b_ij g_j exactly; the W of all clients sum to M. Dividing by the batch's
    own sum of weights instead would be biased.

    Negative shares have no such mean: their weights are the shares themselves, and the answer
    counts n. Returns weights, shape (n,), and W; both are 0 where all shares are.
    """
    b = np.asarray(shares, np.float64)
    n, W = len(b), float(b.sum())
    if (b < 0).any():
        return b, float(n)
    return (b * (n / W) if W else b), W


def _matrix(placement: Placement, rule: Rule) -> csr_array:
    """The shares of everybody, shape (N, M)."""
    held = placement.holdings()
    client = np.repeat(np.arange(placement.n_clients), np.diff(held.indptr))
    share = rule(client, held.indices)
    return type(held)((share, held.indices, held.indptr), shape=held.shape)


def best_owner_share(
    cross: npt.ArrayLike, shared_norm2: npt.ArrayLike, spread: npt.ArrayLike
) -> FloatArray:
    """The w that minimises |P + w S|^2 + (1 - w)^2 E: each owner's own closed form.

    P and S are the sums of the owner's private and of its shared gradients at the initial model:
    `cross` is <P, S>, `shared_norm2` is |S|^2, and `spread` is E = sum over the shared examples of
    |g_j|^2 / (d_j - 1), what the copies contribute at their recipients. Labels are not needed. An
    owner that shares nothing, or whose shared gradients vanish, keeps w = 1.
    """
    cross = checks.finite("cross", cross)
    shared_norm2 = checks.finite("shared_norm2", shared_norm2, shape=cross.shape)
    spread = checks.finite("spread", spread, shape=cross.shape)
    curvature = shared_norm2 + spread
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(curvature > 0, (spread - cross) / curvature, 1.0)


def owner_share_from_products(placement: Placement, products: npt.ArrayLike) -> FloatArray:
    """`best_owner_share` for all owners from the scalar products <g_j, g_k>, shape (M, M): (N,)."""
    from scipy.sparse import csr_array  # slow to import, and only this needs it

    M, N = placement.n_examples, placement.n_clients
    products = checks.products(products, M)
    copies, owner = placement.copies, placement.owner
    shared = np.flatnonzero(copies > 0)
    own_sums = csr_array((copies == 0, (owner, np.arange(M))), shape=(N, M)).astype(np.float64)
    shared_sums = csr_array((copies > 0, (owner, np.arange(M))), shape=(N, M)).astype(np.float64)

    def with_own_shared(sums: csr_array) -> FloatArray:
        """<the owner's sum, g_k>, summed over the k that it shared: (N,)."""
        onto = (sums @ products)[owner[shared], shared]
        return shared_sums[:, shared] @ onto

    return best_owner_share(
        cross=with_own_shared(own_sums),
        shared_norm2=with_own_shared(shared_sums),
        spread=np.asarray(shared_sums @ (np.diag(products) / np.maximum(copies, 1))),
    )


__all__ = [
    "CODES",
    "Code",
    "Rule",
    "best_owner_share",
    "by_name",
    "equal_split",
    "loss_weights",
    "owner_corrected",
    "owner_share_from_products",
    "reliability_split",
    "shares_of",
]


def __dir__() -> list[str]:
    return __all__
