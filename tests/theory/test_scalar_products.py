from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcommons.theory import scalar_products
from tests.reference import loops


@given(st.integers(1, 12), st.integers(0, 2**20))
def test_pair_sums_agree_with_the_pairwise_loop(M, seed):
    rng = np.random.default_rng(seed)
    gradients, groups = rng.normal(size=(M, 3)), rng.integers(0, 3, M)
    shareable = rng.random(M) < 0.5
    expected = loops.pair_sums(gradients, groups, shareable)
    from_gradients = scalar_products.pair_sums(gradients, groups, shareable)
    from_products = scalar_products.pair_sums_from_products(
        gradients @ gradients.T, groups, shareable
    )
    assert asdict(from_gradients) == pytest.approx(expected, abs=1e-10)
    assert asdict(from_products) == pytest.approx(expected, abs=1e-10)
    g = gradients.sum(axis=0)
    assert from_gradients.total == pytest.approx(g @ g, abs=1e-10)


@given(st.integers(1, 12), st.integers(0, 2**20))
def test_types_agree_with_the_pairwise_loop(M, seed):
    rng = np.random.default_rng(seed)
    gradients, labels = rng.normal(size=(M, 3)), rng.integers(0, 3, M)
    sums = loops.pair_sums(gradients, labels, np.zeros(M, bool))
    same, diff = scalar_products.type_sums(gradients, labels)
    assert same == pytest.approx(sums["same_private"], abs=1e-10)
    assert diff == pytest.approx(sums["diff_private"], abs=1e-10)


def test_number_of_pairs_in_theorem_2():
    # With all scalar products 1, the sums count pairs: |J_same^non-priv| = M K c (2 - c).
    K, L, c = 30, 10, 0.2
    labels = np.repeat(np.arange(L), K)
    shareable = np.tile(np.arange(K) < c * K, L)
    pairs = scalar_products.pair_sums(np.ones((K * L, 1)), labels, shareable)
    assert pairs.same_shareable == pytest.approx(K * L * K * c * (2 - c))
