"""The paper's setup on MNIST: codes, Theorem 1, Theorem 2 as an equality."""

import numpy as np
import pytest

from fedcommons import coding, datasets, sharing
from fedcommons.simulate import draws
from fedcommons.simulate.curves import Curve
from fedcommons.theory import scalar_products, second_moment, variance_reduction

RUNS = 100
SETTINGS = {
    "single-class": Curve("single-class", 0.0, 0.5, 0.2, 3),
    "dirichlet": Curve("dirichlet", 0.1, 0.5, 0.2, 3),
    "iid": Curve("iid", 0.0, 0.5, 0.2, 3),
}


@pytest.fixture(scope="module")
def sets():
    mnist = datasets.mnist()
    return [draws.training_set(mnist, 30, seed=1, run=run) for run in range(RUNS)]


def variances(data, shared, p, code):
    """Relative to no sharing."""
    unshared = coding.equal_split(sharing.none(shared.owner, n_clients=10))
    return second_moment.variance_from_products(
        code, data.products, p
    ) / second_moment.variance_from_products(unshared, data.products, p)


def mean_and_sem(values):
    return np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values))


def expected_variance(data, shared, p, owner_share):
    """Of a code whose owners keep shares w, over the sharing: in example space, by its moments.

    Client i sends its private examples, w_i of its shared ones, and (1 - w_k)/d of each of owner
    k's that it was given, each independently with probability q = d/(N-1).
    """
    N, d = 10, 3
    q, G, owner = d / (N - 1), data.products, shared.owner
    passed_on = shared.shareable * (1 - owner_share[owner]) / d
    kept = np.where(shared.shareable, owner_share[owner], 1.0)
    total = 0.0
    for i in range(N):
        mine = owner == i
        mean = np.where(mine, kept, q * passed_on)
        spread = np.where(mine, 0.0, q * (1 - q) * passed_on**2)
        total += mean @ G @ mean + spread @ np.diagonal(G)
    return p / (1 - p) * total


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("code", ["equal-split", "owner-corrected"])
def test_the_variance_of_a_code_has_its_expectation_over_the_sharing(sets, setting, code):
    # Relative to no sharing: measured minus expected, 4 standard errors over the runs.
    differences = []
    for run, data in enumerate(sets):
        shared = draws.share(SETTINGS[setting], data.labels, 10, seed=1, run=run)
        w = np.full(10, 1 / 4)  # the equal split among d + 1 holders
        if code == "owner-corrected":
            w = coding.owner_share_from_products(shared.placement, data.products)
        shares = coding.owner_corrected(shared.placement, w)
        unshared = coding.equal_split(sharing.none(shared.owner, n_clients=10))
        scale = second_moment.variance_from_products(unshared, data.products, 0.7)
        differences.append(
            variances(data, shared, 0.7, shares) - expected_variance(data, shared, 0.7, w) / scale
        )
    mean, sem = mean_and_sem(differences)
    assert abs(mean) < 4 * sem
    assert sem < 0.005


def test_the_owner_corrected_code_pays_where_data_are_lopsided(sets):
    # An independent implementation found .711 and .165 of the variance without sharing with the
    # paper's code and this one, single-class, and .723 and .293, Dirichlet: less than half.
    for setting in ("single-class", "dirichlet"):
        ratios = []
        for run, data in enumerate(sets):
            shared = draws.share(SETTINGS[setting], data.labels, 10, seed=1, run=run)
            w = coding.owner_share_from_products(shared.placement, data.products)
            corrected = variances(data, shared, 0.7, coding.owner_corrected(shared.placement, w))
            ratios.append(
                corrected / variances(data, shared, 0.7, coding.equal_split(shared.placement))
            )
        mean, sem = mean_and_sem(ratios)
        assert mean + 4 * sem < 0.5


@pytest.mark.parametrize("setting", SETTINGS)
def test_theorem_2_is_an_equality_in_expectation(sets, setting):
    # Measured minus expected reduction over the sharing, 4 standard errors; the bounds hold.
    differences = []
    for run, data in enumerate(sets):
        shared = draws.share(SETTINGS[setting], data.labels, 10, seed=1, run=run)
        measured = 1 - variances(data, shared, 0.5, coding.equal_split(shared.placement))
        unshared = coding.equal_split(sharing.none(shared.owner, n_clients=10))
        scale = second_moment.variance_from_products(unshared, data.products, 0.5)
        pairs = scalar_products.pair_sums_from_products(
            data.products, shared.owner, shared.shareable
        )
        args = dict(copies=3, straggler_prob=0.5)
        expected = variance_reduction.expected_reduction(pairs, n_clients=10, **args)
        differences.append(measured - expected / scale)
        if setting == "single-class":
            assert variance_reduction.assumption1(pairs).holds
            assert variance_reduction.distinct_margin(pairs) > 0
            bound = variance_reduction.theorem2_bound(pairs, **args)
            remark = variance_reduction.remark_bound(pairs, **args)
            assert bound <= remark <= expected
    mean, sem = mean_and_sem(differences)
    assert abs(mean) < 4 * sem


def test_reliability_split_pays_when_reliability_is_spread(sets):
    # With c = 1 and p spread over (.05, .95), at most a third of the equal split's variance.
    p = np.linspace(0.05, 0.95, 10)
    for run, data in enumerate(sets[:20]):
        shared = draws.share(Curve("iid", 0.0, 0.5, 1.0, 3), data.labels, 10, seed=1, run=run)
        equal = variances(data, shared, p, coding.equal_split(shared.placement))
        split = variances(data, shared, p, coding.reliability_split(shared.placement, p))
        assert split < equal / 3


@pytest.mark.parametrize("setting", ["single-class", "dirichlet"])
def test_heterogeneity_has_its_expectation(sets, setting):
    differences = []
    for run, data in enumerate(sets):
        shared = draws.share(SETTINGS[setting], data.labels, 10, seed=1, run=run)
        before, after, expected = draws.heterogeneity_of(shared, data.labels, SETTINGS[setting])
        assert after < before
        differences.append(after - expected)
    mean, sem = mean_and_sem(differences)
    assert abs(mean) < 4 * sem
    assert sem < 0.02 * np.mean(expected)
