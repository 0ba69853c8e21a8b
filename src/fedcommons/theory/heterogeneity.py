"""Theorem 1: how much randomised sharing evens out a label (arXiv 2404.03524v1, Appendix A)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError


def theorem1(
    distance: npt.ArrayLike, *, n_clients: int, class_size: int, proportion: float, copies: int
) -> FloatArray:
    """Theorem 1: E|Y - Theta*|^2 from `distance` = |X - Theta*|^2.

    Exact if c X_i K are integers for all clients. Where they are not, use `expected`.
    """
    class_size = checks.integer("class_size", class_size, low=1)
    large = theorem1_large(distance, n_clients=n_clients, proportion=proportion, copies=copies)
    N, d, dc = n_clients, copies, copies * proportion
    noise = dc * (N - 1 - d) / ((1 + dc) ** 2 * (N - 1) * class_size) if N > 1 else 0.0
    return large + noise


def theorem1_large(
    distance: npt.ArrayLike, *, n_clients: int, proportion: float, copies: int
) -> FloatArray:
    """Theorem 1 for K >> 1: E|Y - Theta*|^2 without the sampling noise of order 1/K."""
    N = checks.n_clients(n_clients)
    dc = checks.copies(copies, N) * checks.real("proportion", proportion, low=0, high=1)
    distance = checks.finite("distance", distance)
    farthest = (N - 1) / N  # everything at one client
    bad = (distance < 0) | (distance > farthest + 1e-9)
    if bad.any():
        raise ArgumentError(
            f"distance must be in [0, (N-1)/N = {farthest:g}], got {distance[bad].flat[0]:g}"
        )
    if N == 1:
        return distance
    return (N - 1 - dc) ** 2 / ((1 + dc) ** 2 * (N - 1) ** 2) * distance


def expected(counts: npt.ArrayLike, shareable_counts: npt.ArrayLike, copies: int) -> FloatArray:
    """E|Y - Theta*|^2 of each label under randomised sharing, exact for any integer counts: (L,).

    `counts` and `shareable_counts`, shape (N, L), are how many examples of each label a client owns
    and how many of these it may share. With n_i shareable of X_i K, n = sum n_i, q = d/(N-1) and
    T = K + dn, it is

        sum_i ((X_i K + q (n - n_i)) / T - 1/N)^2 + d n (1 - q) / T^2,

    of which Theorem 1 is the case n_i = c X_i K. A class without examples gives NaN.
    """
    counts, offered = checks.counts(counts, shareable_counts)
    return expected_real(counts, offered, checks.copies(copies, len(counts)))


def expected_real(
    counts: FloatArray | IntArray, offered: FloatArray | IntArray, d: int
) -> FloatArray:
    """`expected` for counts that are means and need not be integers, shape (N, L)."""
    N = len(counts)
    q = d / (N - 1) if N > 1 else 0.0
    n = offered.sum(axis=0)
    with np.errstate(invalid="ignore"):
        total = counts.sum(axis=0) + d * n
        mean = (counts + q * (n - offered)) / total
        return ((mean - 1 / N) ** 2).sum(axis=0) + d * n * (1 - q) / total**2


def expected_rounded(counts: FloatArray, offered: FloatArray, d: int) -> FloatArray:
    """`expected_real` where offers are rounded up with the probability of their fraction: (L,).

    All that matters of a label's roundings is how many are up, and what these add to
    sum_i (X_i K - q n_i)^2: the distribution of both follows client by client.
    """
    N, L = counts.shape
    q = d / (N - 1) if N > 1 else 0.0
    down = np.floor(offered + 1e-9)
    fraction = np.maximum(offered - down, 0)
    adds = q**2 * (2 * down + 1) - 2 * q * counts
    chance, added = np.zeros((2, N + 1, L))  # that so many are up, and E of what they add then
    chance[0] = 1
    for up, more in zip(fraction, adds, strict=True):
        added[1:] = (1 - up) * added[1:] + up * (added[:-1] + more * chance[:-1])
        chance[1:] = (1 - up) * chance[1:] + up * chance[:-1]
        chance[0] *= 1 - up
    K, n = counts.sum(axis=0), down.sum(axis=0) + np.arange(N + 1)[:, None]
    squares = ((counts - q * down) ** 2).sum(axis=0) + 2 * q * n * (K - q * n) + N * (q * n) ** 2
    with np.errstate(invalid="ignore"):
        each = (chance * (squares + d * n * (1 - q)) + added) / (K + d * n) ** 2
    return each.sum(axis=0) - 1 / N


__all__ = ["expected", "expected_real", "expected_rounded", "theorem1", "theorem1_large"]


def __dir__() -> list[str]:
    return __all__
