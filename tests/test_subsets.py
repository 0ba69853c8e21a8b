from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcommons import subsets


@pytest.mark.parametrize("fill", [subsets._floyd, subsets._fisher_yates])
@pytest.mark.parametrize(("size", "population"), [(1, 3), (2, 5), (3, 6), (4, 5)])
def test_both_methods_are_uniform_over_all_subsets(fill, size, population):
    # Chi-squared over all C(population, size) subsets, n = 20,000, at the 1e-4 level.
    n = 20_000
    out = np.empty((n, size), np.int32)
    fill(out, population, np.random.default_rng(7))
    out.sort(axis=1)
    code = (out * population ** np.arange(size)).sum(axis=1)
    names = {
        sum(m * population**k for k, m in enumerate(s))
        for s in combinations(range(population), size)
    }
    found, counts = np.unique(code, return_counts=True)
    assert set(found.tolist()) == names
    assert stats.chisquare(counts, np.full(len(names), n / comb(population, size))).pvalue > 1e-4


@pytest.mark.parametrize("fill", [subsets._floyd, subsets._fisher_yates])
def test_rows_are_independent_across_blocks(fill, monkeypatch):
    # Decks are reused between blocks: successive rows of the same deck must stay independent.
    monkeypatch.setattr(subsets, "CELLS_AT_ONCE", 4)
    monkeypatch.setattr(subsets, "ROWS_AT_ONCE", 1)
    n, population = 20_000, 4
    out = np.empty((n, 1), np.int32)
    fill(out, population, np.random.default_rng(3))
    pairs = out[:-1, 0] * population + out[1:, 0]
    counts = np.bincount(pairs, minlength=population**2)
    assert stats.chisquare(counts).pvalue > 1e-4


@given(st.integers(0, 40), st.integers(0, 300), st.integers(0, 50), st.integers(0, 2**20))
def test_rows_are_sorted_and_distinct(n, size, extra, seed):
    population = size + extra
    rows = subsets.random_subsets(n, size, population, rng=np.random.default_rng(seed))
    assert rows.shape == (n, size)
    if size and n:
        assert rows.min() >= 0
        assert rows.max() < population
        assert (np.diff(rows, axis=1) > 0).all()
