"""Uniformly random subsets, many at once.

Randomised sharing needs one for every shareable example. Both methods here are exact and neither
costs more with a larger population; they differ in how the cost grows with the size of the subset.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Floyd's comparisons cost size/2 a member, the swaps of Fisher-Yates a constant: they break even at
# subsets of about 100 (benchmarks/placement.py).
FLOYD_UP_TO = 96
ROWS_AT_ONCE = 1 << 15
CELLS_AT_ONCE = 1 << 21


def random_subsets(
    n_subsets: int, size: int, population: int, *, rng: np.random.Generator
) -> npt.NDArray[np.int32]:
    """Independent uniform subsets of {0, ..., population-1}: (n_subsets, size), rows sorted."""
    subsets = np.empty((n_subsets, size), np.int32)
    if size == 0 or n_subsets == 0:
        return subsets
    if size == population:
        subsets[:] = np.arange(population, dtype=np.int32)
        return subsets
    fill = _floyd if size <= FLOYD_UP_TO else _fisher_yates
    fill(subsets, population, rng)
    subsets.sort(axis=1)
    return subsets


def _floyd(out: npt.NDArray[np.int32], population: int, rng: np.random.Generator) -> None:
    """Floyd's algorithm, the same step for many rows at once: no row is ever drawn again."""
    n_subsets, size = out.shape
    for start in range(0, n_subsets, ROWS_AT_ONCE):
        rows = out[start : start + ROWS_AT_ONCE]
        members: list[npt.NDArray[np.int32]] = []
        for newest in range(population - size, population):
            pick = rng.integers(0, newest + 1, size=len(rows), dtype=np.int32)
            taken = np.zeros(len(rows), np.bool_)
            for member in members:
                taken |= member == pick
            pick[taken] = newest
            members.append(pick)
        for column, member in enumerate(members):
            rows[:, column] = member


def _fisher_yates(out: npt.NDArray[np.int32], population: int, rng: np.random.Generator) -> None:
    """The first `size` steps of a shuffle, for many rows at once.

    A shuffle is uniform whatever order it starts from, so the decks are never put back in order:
    a row costs `size` swaps, not `population` writes.
    """
    n_subsets, size = out.shape
    n_decks = max(1, min(n_subsets, CELLS_AT_ONCE // population))
    decks = np.tile(np.arange(population, dtype=np.int32), n_decks)
    for start in range(0, n_subsets, n_decks):
        rows = out[start : start + n_decks]
        top = np.arange(len(rows)) * population
        for step in range(size):
            pick = top + rng.integers(step, population, size=len(rows))
            rows[:, step] = decks[pick]
            decks[pick] = decks[top + step]
            decks[top + step] = rows[:, step]
