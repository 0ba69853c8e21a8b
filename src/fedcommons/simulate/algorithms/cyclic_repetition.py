"""Exact gradient coding by cyclic repetition."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.simulate.algorithms.gradient_code import exact_code


def matrix(n_clients: int, s: int, rng: np.random.Generator) -> FloatArray:
    """Client i holds the blocks i, ..., i + s.

    Every row lies in the kernel of a random H, (s, N), whose rows sum to 0: an (N - s)-dimensional
    space that contains 1, and that almost surely any N - s rows span.
    """
    N = n_clients
    if s == 0:
        return np.eye(N)
    H = rng.normal(size=(s, N))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    B = np.zeros((N, N))
    for i in range(N):
        blocks = np.arange(i, i + s + 1) % N
        B[i, blocks[0]] = 1
        B[i, blocks[1:]] = -np.linalg.solve(H[:, blocks[1:]], H[:, blocks[0]])
    return B


cyclic_repetition = exact_code(
    "cyclic_repetition",
    "Tandon, Lei, Dimakis, Karampatziakis, ICML 2017 (arXiv 1612.03301)",
    matrix,
)
"""For every N and d < N. Exact as long as at most d are missing."""
