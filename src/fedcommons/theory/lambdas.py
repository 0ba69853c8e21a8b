"""Proposition 1: how much each pair of examples adds to the second moment.

E|g^|^2 = sum over pairs (j, k) of lambda_jk <g_j, g_k>. For a code b and independent stragglers,
lambda_jk = 1 + sum_i r_i b_ij b_ik with r = p/(1-p). Under randomised sharing and the paper's code
its expectation depends only on what kind of pair it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.stragglers import odds


@dataclass(frozen=True, slots=True)
class Lambdas:
    """One factor for each kind of pair.

    `same` and `diff` say whether the two examples have the same owner; in the paper's single-class
    setting with N = L that is the same class. `private`: both are private (the paper's p-p);
    `mixed`: one is shareable (np-p); `shared`: both are (np-np). `self_shared` is a shareable
    example paired with itself, which the paper counts in its same np-np.
    """

    same_private: float
    diff_private: float
    same_mixed: float
    diff_mixed: float
    self_shared: float
    same_shared: float
    diff_shared: float


def expected(*, n_clients: int, copies: int, straggler_prob: float) -> Lambdas:
    """The exact expectations over randomised sharing with the paper's code and equal p."""
    N = checks.n_clients(n_clients)
    d = checks.copies(copies, N)
    r = float(odds(checks.real("straggler_prob", straggler_prob, low=0), 1)[0])
    q = d / (N - 1) if N > 1 else 0.0  # a given other client holds a given shareable example
    both = {  # expected number of clients that hold both, times the shares 1/(d_j d_k)
        "same_private": 1.0,
        "diff_private": 0.0,
        "same_mixed": 1 / (d + 1),
        "diff_mixed": q / (d + 1),
        "self_shared": 1 / (d + 1),
        "same_shared": (1 + d * q) / (d + 1) ** 2,
        "diff_shared": (2 * q + (N - 2) * q**2) / (d + 1) ** 2,
    }
    return Lambdas(**{kind: 1 + r * value for kind, value in both.items()})


def bounds(*, copies: int, straggler_prob: float) -> tuple[Lambdas, Lambdas]:
    """Proposition 1's lower and upper bounds, equal where it gives a value.

    The upper bound of every pair with a shareable example is (1 + d(1-p)) / ((1-p)(d+1)); these
    bounds hold for every placement, since two examples have at most d + 1 holders in common. The
    proposition's finer statement, that a pair of different owners counts no more than one of the
    same owner, holds in expectation over the sharing only (docs/deviations.md, 6).
    """
    d = checks.integer("copies", copies, low=0)
    p = checks.real("straggler_prob", straggler_prob, low=0)
    r = float(odds(p, 1)[0])
    mixed = (1 + d * (1 - p)) / ((1 - p) * (d + 1))
    lower = Lambdas(1 + r, 1.0, mixed, 1.0, 1.0, 1.0, 1.0)
    upper = Lambdas(1 + r, 1.0, mixed, mixed, mixed, mixed, mixed)
    return lower, upper


def realised(shares: csr_array, straggler_prob: npt.ArrayLike) -> FloatArray:
    """lambda_jk of one code on one placement: shape (M, M). Any code, any p_i."""
    shares = csr_array(shares)
    scaled = shares.multiply(np.sqrt(odds(straggler_prob, shares.shape[0]))[:, None]).tocsr()
    return 1 + (scaled.T @ scaled).toarray()
