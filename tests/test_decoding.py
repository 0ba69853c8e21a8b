"""Decoders that know who is there, against plain loops over all patterns."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedcommons import coding, decoding, sharing
from fedcommons.errors import ArgumentError
from fedcommons.theory import second_moment
from tests.reference import loops
from tests.scenarios import federation

N, M, PARAMS = 5, 14, 3
UNEQUAL = np.array([0.0, 0.3, 0.5, 0.85, 0.6])
EQUAL = np.full(N, 0.4)


def placed(c: float = 0.6, seed: int = 0):
    _, owner, shareable = federation(n_clients=N, n_examples=M, n_classes=3, c=c, seed=seed)
    return sharing.randomised(owner, shareable, 2, n_clients=N, rng=np.random.default_rng(seed))


def estimates(weigh, gradients, p):
    """The mean of the estimate over all patterns, and of its squared distance from the sum."""
    mean, square, full = np.zeros(PARAMS), 0.0, gradients.sum(axis=0)
    for answered, chance in loops.straggler_patterns(p):
        estimate = weigh(answered)
        mean += chance * estimate
        square += chance * ((estimate - full) ** 2).sum()
    return mean, square


@pytest.mark.parametrize("p", [UNEQUAL, EQUAL, np.zeros(N)], ids=["unequal", "equal", "zero"])
def test_the_presence_aware_split_is_unbiased_with_the_variance_that_it_states(p):
    placement, gradients = placed(), np.random.default_rng(1).normal(1, 1, (M, PARAMS))
    holders = loops.holders(placement)

    def by_hand(answered):
        estimate = np.zeros(PARAMS)
        for j in range(M):
            if any(answered[i] for i in holders[j]):
                estimate += gradients[j] / (1 - np.prod([p[i] for i in holders[j]]))
        return estimate

    mean, square = estimates(by_hand, gradients, p)
    assert np.allclose(mean, gradients.sum(axis=0), rtol=0, atol=1e-12)
    H = placement.holdings()
    found = decoding.presence_variance(H, gradients @ gradients.T, p)
    assert found == pytest.approx(square, rel=1e-10, abs=1e-12)
    patterns = np.array([answered for answered, _ in loops.straggler_patterns(p)])
    fast = decoding.presence_split(H, patterns.reshape(4, 8, N), p).reshape(-1, M) @ gradients
    assert np.allclose(fast, [by_hand(answered) for answered in patterns], rtol=0, atol=1e-12)


def test_exactly_one_of_the_holders_there_computes_an_example_and_work_is_spread():
    placement = placed(c=1.0)
    holders = loops.holders(placement)
    for answered, _ in loops.straggler_patterns(EQUAL):
        found = decoding.who_computes(placement.holdings(), answered)
        for j in range(M):
            there = {i for i in holders[j] if answered[i]}
            assert (int(found[j]) in there) if there else found[j] == -1
    everywhere = csr_array(np.ones((3, 9)))
    found = decoding.who_computes(everywhere, np.array([True, False, True]))
    assert np.bincount(found, minlength=3).tolist() == [5, 0, 4]


def test_one_who_may_fail_although_it_was_there_is_divided_by_its_chance_too():
    """Weights over 1 - q of the one who computes keep the mean, whoever that is."""
    placement, gradients, q = placed(), np.random.default_rng(1).normal(size=(M, PARAMS)), 0.3
    mean = np.zeros(PARAMS)
    for present, chance in loops.straggler_patterns(EQUAL):
        computes = decoding.who_computes(placement.holdings(), present)
        weights = decoding.presence_split(placement.holdings(), present, EQUAL)
        for comes, chance_of_these in loops.straggler_patterns(np.full(N, q)):
            counts = weights * (computes >= 0) * comes[computes] / (1 - q)
            mean += chance * chance_of_these * (counts @ gradients)
    assert np.allclose(mean, gradients.sum(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("p", [UNEQUAL, EQUAL], ids=["unequal", "equal"])
def test_optimal_decoding_is_nearest_and_unbiased_client_by_client(p):
    placement, gradients = placed(), np.random.default_rng(1).normal(1, 1, (M, PARAMS))
    shares = coding.equal_split(placement)
    B, answers = shares.toarray(), shares @ gradients
    mean = decoding.mean_weights(shares, p, rng=np.random.default_rng(0))

    def by_hand(answered):
        w = np.zeros(N)
        if answered.any():
            w[answered] = np.linalg.lstsq(B[answered].T, np.ones(M), rcond=None)[0]
        assert np.allclose(w, decoding.optimal_weights(shares, answered), rtol=0, atol=1e-9)
        return w

    got, _ = estimates(
        lambda answered: decoding.unbiased_weights(by_hand(answered), mean) @ answers, gradients, p
    )
    assert np.allclose(got, gradients.sum(axis=0), rtol=0, atol=1e-9)
    one_factor, _ = estimates(
        lambda answered: by_hand(answered) / mean.mean() @ answers, gradients, p
    )
    assert not np.allclose(one_factor, gradients.sum(axis=0), rtol=0, atol=1e-2)


def test_equal_columns_and_idle_clients_do_no_harm():
    """Clients with the same data have one system between them; one without any counts nothing."""
    shares = csr_array(np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0], [0, 0, 0]]))
    w = decoding.optimal_weights(shares, np.array([True, True, True, True]))
    assert w == pytest.approx([1, 1, 1, 0])
    assert decoding.optimal_weights(shares, np.array([True, False, False, True])) == pytest.approx(
        [2, 0, 0, 0]
    )
    mean = decoding.mean_weights(shares, 0.5, rng=np.random.default_rng(0))
    assert decoding.unbiased_weights(w, mean)[3] == 0


def test_many_clients_have_means_by_draws():
    """Within k = 5 standard errors of the exact ones: n = 20,000 draws of weights 0 and 1."""
    mean = decoding.mean_weights(csr_array(np.eye(15)), 0.02, rng=np.random.default_rng(0))
    assert np.abs(mean - 0.98).max() < 5 * np.sqrt(0.02 * 0.98 / 20_000)


@pytest.mark.parametrize(
    ("c", "presence", "optimal"),
    [
        (0.5, (0.64, 0.71, 0.81, 0.94), (0.92, 0.94, 0.96, 0.99)),
        (1.0, (0.02, 0.13, 0.39, 0.78), (0.31, 0.37, 0.51, 0.79)),
    ],
)
def test_variance_beside_equal_split_where_classes_are_orthogonal(c, presence, optimal):
    """One class a client, N = 10, K = 30, d = 3: <g_j, g_k> is 1 in a class and 0 between classes.

    Means over n = 2 draws of the sharing, within .015; p = .3, .5, .7, .9.
    """
    owner = np.repeat(np.arange(10), 30)
    G = np.equal.outer(owner, owner).astype(float)
    found = np.zeros((2, 2, 4))
    answered, _ = decoding.patterns_of(np.full(10, 0.5))
    for seed in range(2):
        rng = np.random.default_rng(seed)
        shareable = np.arange(300) % 30 < 30 * c
        placement = sharing.randomised(owner, shareable, 3, n_clients=10, rng=rng)
        shares = coding.equal_split(placement)
        inner = np.asarray(shares @ (shares @ G).T)
        w = decoding.optimal_weights(shares, answered)
        for k, p in enumerate((0.3, 0.5, 0.7, 0.9)):
            base = second_moment.variance_from_products(shares, G, p)
            _, chance = decoding.patterns_of(np.full(10, p))
            u = decoding.unbiased_weights(w, chance @ w)
            moment = chance @ np.einsum("ri,ij,rj->r", u, inner, u)
            found[seed, 0, k] = decoding.presence_variance(placement.holdings(), G, p) / base
            found[seed, 1, k] = (moment - inner.sum()) / base
    assert np.abs(found[:, 0].mean(axis=0) - presence).max() < 0.015
    assert np.abs(found[:, 1].mean(axis=0) - optimal).max() < 0.015


def test_bad_arguments_are_named():
    H = placed().holdings()
    with pytest.raises(ArgumentError, match="present must be a boolean mask over 5 clients"):
        decoding.presence_split(H, np.ones(4, bool), 0.5)
    with pytest.raises(ArgumentError, match="straggler_prob must be in"):
        decoding.presence_split(H, np.ones(N, bool), 1.0)
