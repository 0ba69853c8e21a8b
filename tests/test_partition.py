import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcommons import partition
from tests.scenarios import PARTITIONS

LABELS = np.repeat(np.arange(10), 30)


def test_iid_sizes_are_even_and_extras_fall_on_anybody():
    lucky = np.zeros(4)
    for seed in range(400):
        owner = partition.iid(np.zeros(9, int), 4, rng=np.random.default_rng(seed))
        sizes = np.bincount(owner, minlength=4)
        assert sorted(sizes) == [2, 2, 2, 3]
        lucky[sizes == 3] += 1
    # Binomial(400, 1/4): four standard errors are 4 * sqrt(400 * 3 / 16) = 34.6.
    assert np.abs(lucky - 100).max() < 34.6


def test_single_class_with_as_many_clients_as_classes_is_the_unit_vector_of_the_paper():
    owner = partition.single_class(LABELS, 10, rng=np.random.default_rng(0))
    assert np.array_equal(owner, LABELS)
    counts = partition.label_counts(LABELS, owner, 10)
    assert partition.heterogeneity(counts) == pytest.approx(np.full(10, 9 / 10))


@pytest.mark.parametrize("n_clients", [1, 2, 3, 7, 9, 10, 11, 19, 20, 25, 40])
def test_single_class_spreads_clients_over_classes_evenly(n_clients):
    owner = partition.single_class(LABELS, n_clients, rng=np.random.default_rng(1))
    counts = partition.label_counts(LABELS, owner, n_clients)
    clients_per_class = (counts > 0).sum(axis=0)
    classes_per_client = (counts > 0).sum(axis=1)
    if n_clients >= 10:
        assert (classes_per_client == 1).all()
        assert np.ptp(clients_per_class) <= 1
        for column in counts.T:
            assert np.ptp(column[column > 0]) <= 1
    else:
        assert (clients_per_class == 1).all()
        assert np.ptp(classes_per_client) <= 1


def test_single_class_splits_a_class_at_random():
    draws = [partition.single_class(LABELS, 20, rng=np.random.default_rng(s)) for s in (0, 1)]
    assert not np.array_equal(*draws)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda x: sum(x) > 0),
    st.integers(0, 200),
)
def test_rounding_is_exact_in_sum_and_nearest(weights, total):
    X = np.array(weights) / np.sum(weights)
    counts = partition.round_to_sum(X, total)
    assert counts.sum() == total
    assert (counts >= 0).all()
    assert (np.abs(counts - X * total) < 1 + 1e-9).all()
    # Moving one example between any two clients never comes nearer to the proportions.
    gap = counts - X * total
    up, down = 2 * gap + 1, np.where(counts > 0, -2 * gap + 1, np.inf)
    assert up.min() + down.min() >= -1e-9


def test_dirichlet_counts_have_the_dirichlet_mean_and_heterogeneity():
    # E|X - Theta*|^2 = (1 - 1/N) / (N alpha + 1) for a symmetric Dirichlet; a large class makes
    # rounding negligible. n = 600 labels, tolerance 4 standard errors.
    N, alpha, K = 5, 0.3, 2000
    labels = np.repeat(np.arange(600), K)
    owner = partition.dirichlet(labels, N, alpha, rng=np.random.default_rng(3))
    counts = partition.label_counts(labels, owner, N)
    values = partition.heterogeneity(counts)
    sem = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - (1 - 1 / N) / (N * alpha + 1)) < 4 * sem
    shares = counts / K
    sems = shares.std(axis=1, ddof=1) / np.sqrt(len(values))
    assert (np.abs(shares.mean(axis=1) - 1 / N) < 4 * sems).all()


@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 1e6])
def test_dirichlet_survives_extreme_concentration(alpha):
    owner = partition.dirichlet(LABELS, 10, alpha, rng=np.random.default_rng(0))
    het = partition.mean_heterogeneity(partition.label_counts(LABELS, owner, 10))
    assert het == pytest.approx(0.9 if alpha < 1 else 0.0, abs=0.03)


def test_heterogeneity_of_a_class_with_nobody_is_nan_and_left_out_of_the_mean():
    counts = np.array([[2, 0, 1], [2, 0, 0]])
    values = partition.heterogeneity(counts)
    assert values[0] == 0
    assert np.isnan(values[1])
    assert values[2] == pytest.approx(0.5)
    assert partition.mean_heterogeneity(counts) == pytest.approx(0.25)
    assert np.isnan(partition.mean_heterogeneity(np.zeros((2, 1), int)))


def test_single_class_counts_only_classes_that_have_examples():
    labels = np.repeat([1, 3], 6)
    owner = partition.single_class(labels, 6, rng=np.random.default_rng(0))
    assert np.bincount(owner, minlength=6).tolist() == [2] * 6


@pytest.mark.parametrize("name", PARTITIONS)
class TestContract:
    def test_clients_are_exchangeable(self, name):
        # One class, so that every partition treats all clients alike: the counts of each client
        # have the same mean and the same mean square. n = 3000 draws, 4.5 standard errors.
        n, rng = 3000, np.random.default_rng(2)
        counts = np.array(
            [np.bincount(PARTITIONS[name](np.zeros(8, int), 3, rng), minlength=3) for _ in range(n)]
        )
        for values in (counts, counts**2):
            for i, k in ((0, 1), (1, 2)):
                difference = values[:, i] - values[:, k]
                sem = difference.std(ddof=1) / np.sqrt(n)
                assert abs(difference.mean()) <= 4.5 * sem

    def test_everybody_has_an_owner_among_the_clients(self, name):
        for n_clients in (1, 2, 3, 10, 13, 50):
            for labels in (LABELS, LABELS[:1], LABELS[:0], np.array([2, 2, 5])):
                owner = PARTITIONS[name](labels, n_clients, np.random.default_rng(0))
                assert owner.shape == labels.shape
                assert ((owner >= 0) & (owner < n_clients)).all()

    def test_same_seed_same_result(self, name):
        a, b = (PARTITIONS[name](LABELS, 20, np.random.default_rng(5)) for _ in range(2))
        assert np.array_equal(a, b)

    def test_other_seed_other_result(self, name):
        a, b = (PARTITIONS[name](LABELS, 20, np.random.default_rng(s)) for s in (5, 6))
        assert not np.array_equal(a, b)

    def test_examples_of_a_class_are_exchangeable(self, name):
        # With K not divisible by the number of clients: every example of a class is equally likely
        # to fall to a given client. n = 2000 draws, 4.5 standard errors over 7 x 3 comparisons.
        n, rng = 2000, np.random.default_rng(11)
        hits = np.zeros((7, 3))
        for _ in range(n):
            owner = PARTITIONS[name](np.zeros(7, int), 3, rng)
            hits[np.arange(7), owner] += 1
        assert np.abs(hits / n - 1 / 3).max() < 4.5 * np.sqrt(2 / 9 / n)


@pytest.mark.parametrize("n_clients", [2, 3, 7])
def test_counts_alone_have_the_distribution_of_a_partition(n_clients):
    """2,000 draws of each; means within 5 standard errors, and so are mean squares."""
    sizes, draws = (5, 5, 5), 2000
    labels = np.repeat(np.arange(3), sizes)
    rng = np.random.default_rng(0)
    for counted, dealt in (
        (partition.single_class_counts, partition.single_class),
        (
            functools.partial(partition.dirichlet_counts, alpha=0.5),
            functools.partial(partition.dirichlet, alpha=0.5),
        ),
    ):
        ours = np.array([counted(sizes, n_clients, rng=rng) for _ in range(draws)], float)
        owners = [dealt(labels, n_clients, rng=rng) for _ in range(draws)]
        theirs = np.array(
            [partition.label_counts(labels, owner, n_clients) for owner in owners], float
        )
        np.testing.assert_array_equal(ours.sum(axis=1), 5)
        for power in (1, 2):
            a, b = ours**power, theirs**power
            error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / draws)
            assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) <= 5 * error + 1e-12).all()
