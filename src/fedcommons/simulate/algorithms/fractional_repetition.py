"""Exact gradient coding by fractional repetition."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.simulate.algorithms.gradient_code import exact_code


def matrix(n_clients: int, s: int, _rng: np.random.Generator) -> FloatArray:
    """Teams of s + 1 clients; all of a team hold the blocks of all of it, and answer their sum."""
    team = np.arange(n_clients) // (s + 1)
    return (team[:, None] == team).astype(np.float64)


fractional_repetition = exact_code(
    "fractional_repetition",
    "Tandon, Lei, Dimakis, Karampatziakis, ICML 2017 (arXiv 1612.03301)",
    matrix,
)
"""d + 1 must divide N. Exact as long as one of every team answers."""
