"""Decoders: what the server makes of who is there, where it may use that as a whole.

An estimator weighs each client's answer by that client alone. Here the weights depend on R, the set
of all who are there:

- presence-aware split: R is known when the round begins. Of the holders that are there exactly one
  computes an example, so that each is computed once instead of d_j times.
- optimal decoding: clients answer by their code, and the server takes the combination of the
  answers in R that is nearest to the sum.

Both are unbiased for known p_i and independent absences.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.errors import ArgumentError

MOST_ENUMERATED = 14  # clients, whose 2^N patterns are gone through
DRAWN = 20_000  # patterns, for more clients
NEVER = 1e-300  # stands for p = 0 in a logarithm


def presence_split(
    holdings: csr_array,
    present: npt.ArrayLike,
    straggler_prob: npt.ArrayLike,
) -> FloatArray:
    """What each example's gradient counts: 1/(1 - prod_i p_i over its holders), or 0.

    An example of which no holder is there counts 0.

    Args:
        holdings: (N, M) with an entry where a client holds an example.
        present: (..., N).
        straggler_prob: p for all clients or p_i for each, the probability of not being there.

    Returns:
        (..., M).
    """
    N = holdings.shape[0]
    p = checks.straggler_prob(straggler_prob, N)
    present = np.asarray(present)
    if present.dtype != np.bool_ or present.shape[-1:] != (N,):
        raise ArgumentError(f"present must be a boolean mask over {N} clients, got {present!r}")
    held = _ones(holdings)
    there = np.asarray(present.reshape(-1, N).astype(np.float64) @ held) > 0
    return (there / (1 - _nobody(held, p))).reshape(*present.shape[:-1], held.shape[1])


def who_computes(holdings: csr_array, present: BoolArray) -> IntArray:
    """Of each example the holder that computes it when these are there, (N,): (M,), -1 for nobody.

    The k-th example that some of them hold takes the k-th of its holders, counted around, so that
    the work is spread.
    """
    by_example = _ones(holdings)[present].tocsc()
    by_example.sort_indices()
    clients = np.flatnonzero(present)
    counts = np.diff(by_example.indptr)
    found = np.full(holdings.shape[1], -1)
    some = np.flatnonzero(counts)
    place = by_example.indptr[some] + np.arange(len(some)) % counts[some]
    found[some] = clients[by_example.indices[place]]
    return found


def presence_variance(
    holdings: csr_array, products: npt.ArrayLike, straggler_prob: npt.ArrayLike
) -> float:
    """E|g^ - g|^2 of the presence-aware split, exactly, from the products <g_j, g_k>, (M, M).

    With P_j the product of p_i over the holders of j and P_jk over those of j or of k, it is
    sum_jk <g_j, g_k> (P_jk - P_j P_k) / ((1 - P_j)(1 - P_k)).
    """
    held = _ones(holdings)
    G = checks.products(products, held.shape[1])
    p = checks.straggler_prob(straggler_prob, held.shape[0])
    nobody = _nobody(held, p)
    both = (held.T @ held.multiply(np.log(np.maximum(p, NEVER))[:, None])).toarray()
    lone = np.outer(nobody, nobody)
    with np.errstate(over="ignore", invalid="ignore"):  # where some p_i = 0: lone is 0 there
        factor = np.where(lone > 0, lone * np.expm1(-both), 0)  # P_jk - P_j P_k
    return float((G * factor / np.outer(1 - nobody, 1 - nobody)).sum())


def _ones(holdings: csr_array) -> csr_array:
    held = csr_array(holdings)
    return csr_array((np.ones(held.nnz), held.indices, held.indptr), shape=held.shape)


def _nobody(held: csr_array, p: FloatArray) -> FloatArray:
    """The probability that no holder of an example is there: (M,)."""
    return np.exp(np.log(np.maximum(p, NEVER)) @ held)


def optimal_weights(shares: csr_array, answered: BoolArray) -> FloatArray:
    """w(R) = argmin |B_R^T w - 1|^2, of the shortest such w, 0 outside R: (..., N).

    Glasgow and Wootters, Approximate Gradient Coding with Optimal Decoding, IEEE JSAIT 2(3), 2021.
    With the products K = B B^T that is the least-squares solution of K_RR w = (K restricted to R
    of the sums of shares): no system of the size of the data is solved.

    Args:
        shares: B, (N, M).
        answered: R, (..., N).
    """
    B = csr_array(shares)
    K, sums = (B @ B.T).toarray(), np.asarray(B.sum(axis=1), np.float64).ravel()
    answered = np.asarray(answered, np.bool_)
    patterns, which = np.unique(answered.reshape(-1, len(K)), axis=0, return_inverse=True)
    found = np.zeros(patterns.shape)
    for weights, pattern in zip(found, patterns, strict=True):
        if pattern.any():
            system = K[np.ix_(pattern, pattern)]
            weights[pattern] = np.linalg.pinv(system, hermitian=True) @ sums[pattern]
    return found[which.ravel()].reshape(answered.shape)


def mean_weights(
    shares: csr_array, straggler_prob: npt.ArrayLike, *, rng: np.random.Generator
) -> FloatArray:
    """E[w_i I_i] of `optimal_weights` for each client: (N,).

    Exact for up to 14 clients, otherwise the mean of 20,000 draws.
    """
    N = shares.shape[0]
    p = checks.straggler_prob(straggler_prob, N)
    if N > MOST_ENUMERATED:
        return optimal_weights(shares, rng.random((DRAWN, N)) >= p).mean(axis=0)
    answered, chance = patterns_of(p)
    return np.asarray(chance @ optimal_weights(shares, answered))


def patterns_of(p: FloatArray) -> tuple[BoolArray, FloatArray]:
    """All 2^N patterns of who answers, (2^N, N), and their probabilities."""
    answered = (np.arange(2 ** len(p))[:, None] >> np.arange(len(p))) % 2 == 1
    return answered, np.where(answered, 1 - p, p).prod(axis=1)


def unbiased_weights(weights: FloatArray, mean: FloatArray) -> FloatArray:
    """w_i / E[w_i I_i], for each client by itself: one constant for all would be biased.

    0 for a client whose weight is always 0: it holds nothing.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mean != 0, weights / mean, 0.0)


__all__ = [
    "mean_weights",
    "optimal_weights",
    "patterns_of",
    "presence_split",
    "presence_variance",
    "unbiased_weights",
    "who_computes",
]


def __dir__() -> list[str]:
    return __all__
