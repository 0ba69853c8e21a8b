import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcommons import partition, privacy

LABELS = np.repeat(np.arange(3), [7, 1, 4])
OWNER = np.array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 1])


def cells(mask: np.ndarray) -> np.ndarray:
    return partition.label_counts(LABELS[mask], OWNER[mask], 3, n_classes=3)


@given(st.floats(0, 1), st.integers(0, 2**20))
def test_every_cell_is_rounded_to_a_neighbour(c, seed):
    mask = privacy.proportion(LABELS, OWNER, c, n_clients=3, rng=np.random.default_rng(seed))
    target = c * partition.label_counts(LABELS, OWNER, 3)
    assert (np.abs(cells(mask) - target) < 1 + 1e-9).all()
    whole = np.isclose(target, np.rint(target), rtol=1e-14, atol=0)
    assert np.array_equal(cells(mask)[whole], np.rint(target[whole]))


def test_every_example_is_shareable_with_probability_exactly_c():
    # n = 8000 draws of 12 examples: 4.5 standard errors of a Bernoulli mean.
    n, c, rng = 8000, 0.37, np.random.default_rng(0)
    hits = sum(
        privacy.proportion(LABELS, OWNER, c, n_clients=3, rng=rng).astype(int) for _ in range(n)
    )
    assert np.abs(hits / n - c).max() < 4.5 * np.sqrt(c * (1 - c) / n)


def test_products_near_an_integer_are_still_rounded_without_bias():
    # c n = 2 + 1e-3 in each of 40,000 cells: 40 cells in the mean have 3; Poisson, 4.5 deviations.
    cells, c = 40_000, (2 + 1e-3) / 4
    owner = np.repeat(np.arange(cells), 4)
    rng = np.random.default_rng(0)
    mask = privacy.proportion(np.zeros(4 * cells, int), owner, c, n_clients=cells, rng=rng)
    assert abs(mask.sum() - 2 * cells - 40) < 4.5 * np.sqrt(40)


def test_cells_are_rounded_independently():
    # 200 cells of one example at c = 1/2: the total is Binomial(200, 1/2), variance 50. The sample
    # variance of n = 2000 totals has a standard error of 50 sqrt(2/n) = 1.58; 4.5 of them.
    n, rng, owner = 2000, np.random.default_rng(1), np.arange(200)
    totals = [
        privacy.proportion(np.zeros(200, int), owner, 0.5, n_clients=200, rng=rng).sum()
        for _ in range(n)
    ]
    assert abs(np.var(totals, ddof=1) - 50) < 4.5 * 50 * np.sqrt(2 / n)


def test_a_class_that_nobody_has_keeps_its_proportion():
    mask = privacy.proportion_per_class(
        [0, 0], [0, 1], [1, 0, 0.5], n_clients=2, n_classes=3, rng=np.random.default_rng(0)
    )
    assert mask.all()


def test_products_that_are_integers_are_never_rounded():
    labels, owner = np.zeros(30, int), np.zeros(30, int)
    rng = np.random.default_rng(0)
    for tenth in range(11):
        counts = {
            privacy.proportion(labels, owner, tenth / 10, n_clients=1, rng=rng).sum()
            for _ in range(20)
        }
        assert counts == {3 * tenth}


def test_proportions_per_client_and_per_class():
    rng = np.random.default_rng(0)
    by_client = privacy.proportion(LABELS, OWNER, [0, 1, 0], n_clients=3, rng=rng)
    assert np.array_equal(by_client, OWNER == 1)
    by_class = privacy.proportion_per_class(LABELS, OWNER, [0, 0, 1], n_clients=3, rng=rng)
    assert np.array_equal(by_class, LABELS == 2)


def test_extremes_and_the_users_own_mask():
    rng = np.random.default_rng(0)
    assert not privacy.proportion(LABELS, OWNER, 0, n_clients=3, rng=rng).any()
    assert privacy.proportion(LABELS, OWNER, 1, n_clients=3, rng=rng).all()
    assert privacy.proportion([], [], 0.5, n_clients=3, rng=rng).shape == (0,)
    assert privacy.given([True, False], 2).tolist() == [True, False]


def test_seed_decides():
    labels, owner = np.zeros(100, int), np.zeros(100, int)
    masks = [
        privacy.proportion(labels, owner, 0.5, n_clients=1, rng=np.random.default_rng(s))
        for s in (1, 1, 2)
    ]
    assert np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2])


def test_tiny_proportions_are_not_rounded_away():
    # c n = 1e-3: shareable in about n c of the draws; Poisson(20) within 4.5 standard deviations.
    rng = np.random.default_rng(0)
    hits = sum(
        privacy.proportion(np.zeros(1, int), np.zeros(1, int), 1e-3, n_clients=1, rng=rng).sum()
        for _ in range(20000)
    )
    assert hits == pytest.approx(20, abs=4.5 * np.sqrt(20))
