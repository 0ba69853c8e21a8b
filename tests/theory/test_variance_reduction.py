import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcommons import coding, datasets, sharing
from fedcommons.simulate import draws
from fedcommons.theory import scalar_products, second_moment, variance_reduction
from fedcommons.theory.scalar_products import PairSums
from tests.reference import loops
from tests.scenarios import federation


@pytest.mark.parametrize("p", [0.0, 0.4, 0.8])
@pytest.mark.parametrize(("N", "d"), [(2, 1), (3, 0), (3, 1), (3, 2), (4, 2), (4, 3)])
def test_expected_second_moment_is_the_mean_over_every_outcome(N, d, p):
    # Any partition, clients with nothing included: exact, with groups = owners.
    for seed in range(3):
        _, owner, shareable = federation(n_clients=N, n_examples=7, n_classes=2, c=0.5, seed=seed)
        gradients = np.random.default_rng(seed).normal(size=(7, 3))
        moments = [
            second_moment.second_moment(coding.equal_split(placement) @ gradients, p)
            for placement in loops.sharing_outcomes(owner, shareable, d, N)
        ]
        pairs = scalar_products.pair_sums(gradients, owner, shareable)
        args = dict(n_clients=N, copies=d, straggler_prob=p)
        expected = variance_reduction.expected_second_moment(pairs, **args)
        assert expected == pytest.approx(np.mean(moments), rel=1e-12)
        unshared = second_moment.second_moment(
            coding.equal_split(sharing.none(owner, n_clients=N)) @ gradients, p
        )
        reduction = variance_reduction.expected_reduction(pairs, **args)
        assert reduction == pytest.approx(unshared - np.mean(moments), abs=1e-10)


pair_sums = st.builds(
    PairSums,
    same_private=st.floats(0, 10),
    diff_private=st.floats(-10, 10),
    same_mixed=st.floats(-10, 10),
    diff_mixed=st.floats(-10, 10),
    self_shared=st.floats(0, 10),
    same_shared=st.floats(0, 10),
    diff_shared=st.floats(-10, 10),
)


@given(pair_sums, st.integers(2, 20), st.integers(1, 19), st.floats(0, 0.95))
def test_the_bounds_hold_under_their_assumptions(pairs, N, d, p):
    d = min(d, N - 1)
    exact = variance_reduction.expected_reduction(pairs, n_clients=N, copies=d, straggler_prob=p)
    theorem = variance_reduction.theorem2_bound(pairs, copies=d, straggler_prob=p)
    remark = variance_reduction.remark_bound(pairs, copies=d, straggler_prob=p)
    slack = 1e-9 / (1 - p)
    if (
        variance_reduction.assumption1(pairs).holds
        and variance_reduction.distinct_margin(pairs) >= 0
    ):
        assert theorem <= exact + slack
        assert theorem <= remark + slack
        if variance_reduction.remark_premise(pairs):
            assert remark <= exact + slack


@given(pair_sums, st.integers(1, 19))
def test_bounds_vanish_without_stragglers(pairs, d):
    assert variance_reduction.theorem2_bound(pairs, copies=d, straggler_prob=0) == 0
    assert variance_reduction.remark_bound(pairs, copies=d, straggler_prob=0) == 0
    assert variance_reduction.expected_reduction(
        pairs, n_clients=20, copies=d, straggler_prob=0
    ) == pytest.approx(0, abs=1e-9)


def test_bounds_at_one_and_no_copies():
    pairs = PairSums(1, 1, 2.0, 1, 1, 3.0, 1)
    assert variance_reduction.theorem2_bound(pairs, copies=1, straggler_prob=0.5) == 0
    assert variance_reduction.theorem2_bound(pairs, copies=0, straggler_prob=0.5) == -5
    assert variance_reduction.remark_bound(pairs, copies=0, straggler_prob=0.5) == 0
    assert variance_reduction.remark_bound(pairs, copies=1, straggler_prob=0.5) == 2.5


@pytest.mark.parametrize(("second", "bound"), [(-1.0, 0.0), (-0.8, 4 * 0.04 / 3)])
def test_assumption_1_alone_does_not_give_theorem_2(second, bound):
    # docs/deviations.md, 12: each of four clients shares e_i and `second` e_i. The scalar products
    # of distinct examples are negative, those of an example with itself count more than they.
    gradients = np.concatenate([np.eye(4), second * np.eye(4)])
    owner, shareable = np.tile(np.arange(4), 2), np.ones(8, bool)
    pairs = scalar_products.pair_sums(gradients, owner, shareable)
    assert variance_reduction.assumption1(pairs).holds
    assert variance_reduction.remark_premise(pairs)
    assert variance_reduction.distinct_margin(pairs) < 0
    exact = variance_reduction.expected_reduction(pairs, n_clients=4, copies=2, straggler_prob=0.5)
    theorem = variance_reduction.theorem2_bound(pairs, copies=2, straggler_prob=0.5)
    assert theorem == pytest.approx(bound)
    assert exact < theorem - 0.3


def test_theorem2_bound_by_hand():
    pairs = PairSums(0, 0, same_mixed=2, diff_mixed=0, self_shared=0, same_shared=3, diff_shared=0)
    # p/(1-p) (d-1)/(d+1) (2 + 3) at p = 0.75, d = 3.
    assert variance_reduction.theorem2_bound(pairs, copies=3, straggler_prob=0.75) == 7.5


def test_assumption1_names_the_part_that_fails():
    fine = PairSums(0, 0, same_mixed=2, diff_mixed=1, self_shared=0, same_shared=3, diff_shared=3)
    assert variance_reduction.assumption1(fine).holds
    mixed = PairSums(0, 0, same_mixed=2, diff_mixed=3, self_shared=0, same_shared=3, diff_shared=3)
    result = variance_reduction.assumption1(mixed)
    assert (result.holds, result.mixed_margin, result.shared_margin) == (False, -1, 0)
    shared = PairSums(
        0, 0, same_mixed=1, diff_mixed=0, self_shared=0, same_shared=-3, diff_shared=-5
    )
    assert variance_reduction.assumption1(shared).shared_margin == -3
    negative = PairSums(0, 0, -2, -5, 0, 3, -1)
    assert variance_reduction.assumption1(negative).mixed_margin == -2
    assert variance_reduction.remark_premise(negative)
    assert not variance_reduction.remark_premise(fine)


def test_at_fixed_dc_the_bound_does_not_grow_with_c_but_the_exact_reduction_on_mnist_does():
    # docs/deviations.md, 8. One draw of the paper's training set at the initial model.
    K = 30
    data = draws.training_set(datasets.mnist(), K, seed=0, run=0)
    labels, products = data.labels, data.products
    coefficient, exact = [], []
    for c, d in ((0.1, 6), (0.2, 3), (0.3, 2)):
        coefficient.append((d - 1) / (d + 1) * c * (2 - c))
        shareable = np.tile(np.arange(K) < round(c * K), 10)
        pairs = scalar_products.pair_sums_from_products(products, labels, shareable)
        exact.append(
            variance_reduction.expected_reduction(pairs, n_clients=10, copies=d, straggler_prob=0.5)
        )
        ones = scalar_products.pair_sums_from_products(np.ones((300, 300)), labels, shareable)
        bound = variance_reduction.theorem2_bound(ones, copies=d, straggler_prob=0.5)
        assert bound == pytest.approx(coefficient[-1] * 300 * K)
    assert coefficient == pytest.approx([0.136, 0.180, 0.170], abs=5e-4)
    assert exact == sorted(exact)
