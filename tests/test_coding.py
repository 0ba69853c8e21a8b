import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcommons import coding, sharing
from fedcommons.placement import Placement
from tests.reference import loops
from tests.scenarios import CODES, SCHEMES, federation, federations


def make(case: dict, scheme: str = "optimal") -> tuple[Placement, np.ndarray, np.ndarray]:
    """A placement with unequal d_j, and a p and a w for every client."""
    case = dict(case)
    d, seed, n = case.pop("copies"), case["seed"], case["n_clients"]
    rng = np.random.default_rng(seed)
    placement = SCHEMES[scheme](*federation(**case), d, n, rng)
    p = rng.uniform(0, 0.95, n) * (rng.random(n) < 0.8)  # some never straggle
    return placement, p, rng.normal(-1, 2, n)


@pytest.mark.parametrize("name", CODES)
class TestContract:
    @given(case=federations())
    def test_shares_of_every_example_sum_to_one_over_its_holders(self, name, case):
        placement, p, w = make(case)
        shares = CODES[name](placement, p, w)
        assert shares.shape == (placement.n_clients, placement.n_examples)
        assert np.allclose(shares.sum(axis=0), 1, rtol=0, atol=1e-12)
        assert not shares.toarray()[loops.dense_holdings(placement) == 0].any()

    @given(case=federations())
    def test_permuting_the_clients_permutes_the_shares(self, name, case):
        placement, p, w = make(case)
        new_name = np.random.default_rng(1).permutation(placement.n_clients)
        inverse = np.argsort(new_name)
        renamed = CODES[name](placement.relabel(new_name), p[inverse], w[inverse])
        original = CODES[name](placement, p, w).toarray()
        assert np.allclose(renamed.toarray()[new_name], original, rtol=1e-12, atol=0)


@pytest.mark.parametrize("code", coding.CODES)
@given(case=federations())
def test_one_clients_shares_are_its_row(code, case):
    placement, p, w = make(case)
    needs = {"straggler_prob": p, "owner_share": w}
    everybody = coding.by_name(code, placement, **needs).toarray()
    for client in range(placement.n_clients):
        held = placement.held_by(client)
        row = coding.shares_of(client, code, placement, **needs)
        assert np.array_equal(row, everybody[client, held])


@given(case=federations())
def test_equal_split_is_one_over_the_number_of_holders(case):
    placement, _, _ = make(case)
    H = loops.dense_holdings(placement)
    assert np.allclose(coding.equal_split(placement).toarray(), H / H.sum(axis=0))


@given(case=federations(), p=st.floats(0, 0.99))
def test_equal_reliability_gives_the_equal_split(case, p):
    placement, _, _ = make(case)
    split = coding.reliability_split(placement, p).toarray()
    assert np.allclose(split, coding.equal_split(placement).toarray(), rtol=1e-12)


def test_reliability_split_by_hand():
    placement = Placement.from_copies([0, 1], [0, 0, 1], [1, 2, 2], n_clients=3)
    shares = coding.reliability_split(placement, [0.5, 0.0, 0.2]).toarray()
    assert shares.tolist() == [[0, 0], [1, 1], [0, 0]]  # client 1 never straggles
    shares = coding.reliability_split(placement, [0.5, 1 / 3, 0.2]).toarray()
    assert np.allclose(shares, [[1 / 7, 0], [2 / 7, 2 / 6], [4 / 7, 4 / 6]])
    shares = coding.reliability_split(placement, [0.5, 1e-320, 0.0]).toarray()
    assert np.isfinite(shares).all()
    shares = coding.reliability_split(placement, [0.5, 1e-6, 2e-6]).toarray()
    assert np.allclose(shares[:, 1], [0, 2 / 3, 1 / 3], rtol=1e-5)


@given(st.integers(0, 2**20))
def test_reliability_split_is_optimal_for_orthogonal_gradients(seed):
    # Sum over examples of sum_i r_i b_ij^2: no other shares with the same sums are better.
    rng = np.random.default_rng(seed)
    placement, _, _ = make(
        dict(n_clients=5, n_examples=8, n_classes=2, c=1.0, copies=3, seed=seed), "randomised"
    )
    p = rng.uniform(0.05, 0.95, 5)
    best = coding.reliability_split(placement, p).toarray()
    move = rng.normal(size=best.shape) * loops.dense_holdings(placement)
    move -= loops.dense_holdings(placement) * move.sum(axis=0) / placement.holder_counts

    def cost(b: np.ndarray) -> float:
        return float(((p / (1 - p))[:, None] * b**2).sum())

    assert cost(best) <= min(cost(best + 0.01 * move), cost(best - 0.01 * move)) + 1e-12


def test_owner_corrected_by_hand():
    placement = Placement.from_copies([0, 0, 1], [0, 0, 2], [1, 2, 0], n_clients=3)
    shares = coding.owner_corrected(placement, [-2, 0.25, 9]).toarray()
    assert shares.tolist() == [[-2, 1, 0.75], [1.5, 0, 0.25], [1.5, 0, 0]]


@given(case=federations())
def test_the_right_owner_share_gives_back_the_equal_split(case):
    placement, _, _ = make(case, "randomised")
    shares = coding.owner_corrected(placement, 1 / (1 + case["copies"]))
    assert np.allclose(shares.toarray(), coding.equal_split(placement).toarray())


@given(st.integers(0, 2**20))
def test_best_owner_share_minimises_its_objective(seed):
    rng = np.random.default_rng(seed)
    P, S, E = rng.normal(size=4), rng.normal(size=4), rng.uniform(0.1, 2)
    w = coding.best_owner_share(P @ S, S @ S, E)

    def objective(w: float) -> float:
        return float(((P + w * S) ** 2).sum() + (1 - w) ** 2 * E)

    assert objective(w) <= min(objective(w + 1e-3), objective(w - 1e-3))


def test_best_owner_share_of_an_owner_that_shares_nothing_or_feels_nothing():
    assert coding.best_owner_share([0, 0], [0, 1], [0, 0]).tolist() == [1, 0]


def test_owner_share_from_products_is_the_local_formula():
    rng = np.random.default_rng(0)
    owner = rng.integers(0, 3, 15)  # client 3 owns nothing
    placement = Placement.from_copies(
        owner,
        np.repeat([0, 1, 2, 3, 4, 5], [1, 2, 3, 1, 2, 3]),
        np.concatenate([(owner[j] + 1 + np.arange(k)) % 4 for j, k in enumerate([1, 2, 3] * 2)]),
        n_clients=4,
    )
    gradients = rng.normal(size=(15, 6))
    expected = []
    for i in range(4):
        own = np.flatnonzero(placement.owner == i)
        shared = [j for j in own if placement.copies[j] > 0]
        private = [j for j in own if placement.copies[j] == 0]
        P, S = gradients[private].sum(axis=0), gradients[shared].sum(axis=0)
        E = sum(gradients[j] @ gradients[j] / placement.copies[j] for j in shared)
        expected.append((E - P @ S) / (S @ S + E) if shared else 1.0)
    got = coding.owner_share_from_products(placement, gradients @ gradients.T)
    assert np.allclose(got, expected)


def test_codes_without_sharing_are_all_the_same():
    placement = sharing.none([0, 1, 1], n_clients=3)
    for name in CODES:
        shares = CODES[name](placement, np.array([0.5, 0.1, 0]), np.array([-3.0, 2, 1]))
        assert shares.toarray().tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]


# Losses


def test_loss_weights_keep_one_full_step_and_the_number_of_examples():
    rng = np.random.default_rng(0)
    shares = np.array([1.0, 0.25, 0.5, 0.5])
    gradients = rng.normal(size=(4, 3))
    weight, W = coding.loss_weights(shares)
    assert weight.mean() == 1
    assert shares.sum() == W
    np.testing.assert_allclose(W * (weight[:, None] * gradients).mean(axis=0), shares @ gradients)


def test_loss_weights_of_whole_examples_change_nothing():
    """To the bit, so that an algorithm without sharing is what it is elsewhere."""
    for n in (1, 3, 49, 1000):
        weight, W = coding.loss_weights(np.ones(n))
        assert (weight == 1).all()
        assert n == W


@given(case=federations())
def test_what_answers_count_sums_to_the_number_of_examples(case):
    placement, p, _ = make(case)
    for shares in (coding.equal_split(placement), coding.reliability_split(placement, p)):
        counts = [coding.loss_weights(shares[[i]].data)[1] for i in range(placement.n_clients)]
        assert sum(counts) == pytest.approx(placement.n_examples)


def test_a_mean_over_any_batch_is_unbiased_and_one_by_its_own_weights_is_not():
    shares, gradients = np.array([1, 1, 0.25, 0.25]), np.array([1.0, 1.0, -1.0, -1.0])
    weight, _ = coding.loss_weights(shares)
    means, by_own_sum = {}, {}
    for size in (1, 2, 3, 4):
        batches = [list(rows) for rows in itertools.combinations(range(4), size)]
        means[size] = np.mean([(weight * gradients)[rows].mean() for rows in batches])
        by_own_sum[size] = np.mean(
            [(weight * gradients)[rows].sum() / weight[rows].sum() for rows in batches]
        )
    assert means == pytest.approx(dict.fromkeys((1, 2, 3, 4), 0.6))
    assert by_own_sum == pytest.approx({1: 0, 2: 0.4, 3: by_own_sum[3], 4: 0.6})


def test_shares_without_a_mean_are_their_own_weights():
    weight, counts = coding.loss_weights(np.array([-2.0, 1.0, 0.5]))
    assert weight.tolist() == [-2.0, 1.0, 0.5]
    assert counts == 3
    for nothing in (np.zeros(2), np.zeros(0)):
        weight, counts = coding.loss_weights(nothing)
        assert (weight.tolist(), counts) == (nothing.tolist(), 0.0)
