import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcommons import partition, privacy, sharing
from fedcommons.theory import heterogeneity
from tests.reference import loops
from tests.scenarios import federation


def counts_of(labels, owner, mask, n_clients, n_classes):
    return partition.label_counts(labels[mask], owner[mask], n_clients, n_classes=n_classes)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("n_clients", "copies"), [(2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3)])
def test_general_formula_is_the_mean_over_every_outcome(n_clients, copies, seed):
    labels, owner, shareable = federation(
        n_clients=n_clients, n_examples=7, n_classes=2, c=0.5, seed=seed
    )
    L = int(labels.max()) + 1
    everything = np.ones(7, bool)
    theory = heterogeneity.expected(
        counts_of(labels, owner, everything, n_clients, L),
        counts_of(labels, owner, shareable, n_clients, L),
        copies,
    )
    outcomes = [
        loops.distance(loops.label_proportions(placement, labels, L))
        for placement in loops.sharing_outcomes(owner, shareable, copies, n_clients)
    ]
    assert np.allclose(theory, np.mean(outcomes, axis=0), rtol=0, atol=1e-13, equal_nan=True)


@pytest.mark.parametrize("c", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("d", [1, 3, 4])
@pytest.mark.parametrize(("N", "K"), [(5, 20), (5, 60), (8, 20)])
def test_theorem1_against_monte_carlo(N, K, c, d):
    # c X_i K are integers: 10 examples at two clients each (and K - 20 more at a third).
    # n = 4000 placements of one label at once, as labels of their own; 4 standard errors.
    n = 4000
    owner = np.concatenate([np.repeat([0, 1], 10), np.full(K - 20, 2)])
    labels = np.repeat(np.arange(n), K)
    owner = np.tile(owner, n)
    rng = np.random.default_rng([N, K, d, int(10 * c)])
    shareable = privacy.proportion(labels, owner, c, n_clients=N, rng=rng)
    placement = sharing.randomised(owner, shareable, d, n_clients=N, rng=rng)
    before = partition.heterogeneity(partition.label_counts(labels, owner, N))
    after = partition.heterogeneity(placement.label_counts(labels))
    theory = heterogeneity.theorem1(before[0], n_clients=N, class_size=K, proportion=c, copies=d)
    sem = after.std(ddof=1) / np.sqrt(n)
    assert abs(after.mean() - theory) <= 4 * sem + 1e-12


@pytest.mark.parametrize("c", [0.13, 0.5])
@pytest.mark.parametrize("d", [1, 2, 9])
@pytest.mark.parametrize(("N", "K"), [(10, 30), (10, 7), (12, 1)])
def test_general_formula_against_monte_carlo_with_dirichlet_data(N, K, c, d):
    # Counts that are not multiples of 1/c; the formula is averaged over the same drawn counts, so
    # the differences have mean 0: n = 4000 labels, 4 standard errors.
    n = 4000
    labels = np.repeat(np.arange(n), K)
    rng = np.random.default_rng([N, K, d, int(100 * c)])
    owner = partition.dirichlet(labels, N, 0.1, rng=rng)
    shareable = privacy.proportion(labels, owner, c, n_clients=N, rng=rng)
    placement = sharing.randomised(owner, shareable, d, n_clients=N, rng=rng)
    theory = heterogeneity.expected(
        partition.label_counts(labels, owner, N, n_classes=n),
        counts_of(labels, owner, shareable, N, n),
        d,
    )
    difference = partition.heterogeneity(placement.label_counts(labels)) - theory
    sem = difference.std(ddof=1) / np.sqrt(n)
    assert abs(difference.mean()) <= 4 * sem + 1e-12


@given(st.integers(2, 12), st.integers(1, 4), st.sampled_from([0, 1, 2, 4]), st.integers(0, 2**20))
def test_theorem1_is_the_general_formula_where_counts_are_integers(N, unit, quarter, seed):
    rng = np.random.default_rng(seed)
    counts = 4 * unit * rng.integers(0, 4, (N, 1))
    counts[0] += 4
    c, d = quarter / 4, int(rng.integers(0, N))
    offered = counts * quarter // 4
    exact = heterogeneity.expected(counts, offered, d)
    theorem = heterogeneity.theorem1(
        partition.heterogeneity(counts),
        n_clients=N,
        class_size=int(counts.sum()),
        proportion=c,
        copies=d,
    )
    assert theorem == pytest.approx(exact, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("c", "d"), [(0.0, 4), (0.7, 0), (1.0, 9)])
def test_special_cases_collapse(c, d):
    args = dict(n_clients=10, proportion=c, copies=d)
    before = 0.37
    after = heterogeneity.theorem1(before, class_size=30, **args)
    # Nothing shared: nothing changes. Everything to everybody: perfectly even.
    assert after == pytest.approx(0.0 if c == 1 else before, abs=1e-15)
    assert heterogeneity.theorem1_large(before, **args) == pytest.approx(after, abs=1e-15)


@given(st.integers(2, 30), st.floats(0, 1), st.integers(0, 29), st.floats(0, 1))
def test_large_class_form_is_the_limit_and_a_lower_bound(N, c, d, part):
    args = dict(n_clients=N, proportion=c, copies=d % N)
    distance = part * (N - 1) / N
    large = heterogeneity.theorem1_large(distance, **args)
    assert heterogeneity.theorem1(distance, class_size=10**12, **args) == pytest.approx(
        large, abs=1e-9
    )
    assert heterogeneity.theorem1(distance, class_size=3, **args) >= large


def test_at_least_a_factor_of_one_plus_dc_squared_holds_for_large_classes_only():
    # docs/deviations.md, 4.
    args = dict(n_clients=10, proportion=0.2, copies=3)
    factor = (1 + 0.6) ** 2
    assert heterogeneity.theorem1_large(0.1, **args) <= 0.1 / factor
    assert heterogeneity.theorem1(0.001, class_size=30, **args) > 0.001


def test_awkward_places():
    nobody = heterogeneity.expected([[2, 0], [1, 0]], [[1, 0], [0, 0]], 1)
    assert np.isnan(nobody[1])
    assert nobody[0] == pytest.approx((2 / 4 - 1 / 2) ** 2 * 2)  # N = 2: certain to go to the other
    alone = heterogeneity.expected([[5]], [[5]], 0)
    assert alone.tolist() == [0]
    assert heterogeneity.theorem1(0.0, n_clients=1, class_size=5, proportion=1, copies=0) == 0
    single = heterogeneity.expected([[1], [0], [0]], [[1], [0], [0]], 1)  # a class of one example
    assert single == pytest.approx((0.5 - 1 / 3) ** 2 * 2 + 1 / 9)
