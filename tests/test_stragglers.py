import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcommons.errors import ArgumentError
from fedcommons.stragglers import Bernoulli, Markov, Trace

RECORDED = np.random.default_rng(0).random((40, 3)) < 0.6
MODELS = {
    "bernoulli": Bernoulli(0.4),
    "bernoulli_per_client": Bernoulli([0.0, 0.3, 0.9]),
    "markov": Markov(0.4, 5),
    "markov_per_client": Markov([0.0, 0.3, 0.9], [1, 4, 12]),
    "trace": Trace(RECORDED, random_start=True),
    "trace_from_the_start": Trace(RECORDED),
}


@pytest.mark.parametrize("name", MODELS)
class TestContract:
    def test_mask_has_its_shape_and_type(self, name):
        for n_rounds in (0, 1, 40):
            mask = MODELS[name].answered(n_rounds, 3, rng=np.random.default_rng(0))
            assert mask.shape == (n_rounds, 3)
            assert mask.dtype == np.bool_

    def test_every_round_has_the_stated_probability(self, name):
        # n = 4000 draws: 4.5 standard errors in each of the rounds 0, 7, 30 for each client.
        if name == "trace_from_the_start":
            assert np.allclose(MODELS[name].straggler_prob(3), 1 - RECORDED.mean(axis=0))
            return
        n, rng = 4000, np.random.default_rng(1)
        hits = np.zeros((31, 3))
        for _ in range(n):
            hits += ~MODELS[name].answered(31, 3, rng=rng)
        p = MODELS[name].straggler_prob(3)
        error = np.abs(hits[[0, 7, 30]] / n - p)
        assert (error <= 4.5 * np.sqrt(p * (1 - p) / n)).all()

    def test_clients_straggle_independently(self, name):
        # Joint law of two clients in a round against the product of their own: n = 4000, 4.5
        # standard errors of the covariance.
        if name.startswith("trace"):
            return
        n, rng = 4000, np.random.default_rng(3)
        rows = np.array([MODELS[name].answered(8, 3, rng=rng)[7] for _ in range(n)])
        p = MODELS[name].straggler_prob(3)
        for i, k in ((0, 1), (1, 2), (0, 2)):
            joint = (~rows[:, i] & ~rows[:, k]).mean()
            sem = np.sqrt(p[i] * p[k] / n)
            assert abs(joint - p[i] * p[k]) <= 4.5 * sem

    def test_permuting_the_clients_permutes_the_model(self, name):
        order = np.array([2, 0, 1])
        model = MODELS[name]
        if isinstance(model, Trace):
            moved = Trace(RECORDED[:, order], model.random_start)
            a, b = (m.answered(30, 3, rng=np.random.default_rng(1)) for m in (model, moved))
            assert np.array_equal(a[:, order], b)
            return
        fields = {
            f: v if np.ndim(v) == 0 else np.array(v)[order]
            for f, v in ((f, getattr(model, f)) for f in type(model).__dataclass_fields__)
        }
        moved = type(model)(**fields)
        assert np.array_equal(moved.straggler_prob(3), model.straggler_prob(3)[order])
        n, rng = 3000, np.random.default_rng(5)
        pairs = [  # being missing in rounds 3 and 4: level and correlation of each client
            sum((~m.answered(5, 3, rng=rng)[3:]).all(axis=0).astype(int) for _ in range(n)) / n
            for m in (model, moved)
        ]
        assert np.abs(pairs[0][order] - pairs[1]).max() <= 4.5 * np.sqrt(2 * 0.25 / n)

    def test_same_seed_same_result(self, name):
        a, b = (MODELS[name].answered(30, 3, rng=np.random.default_rng(4)) for _ in range(2))
        assert np.array_equal(a, b)

    def test_other_seed_other_result(self, name):
        a, b = (MODELS[name].answered(30, 3, rng=np.random.default_rng(s)) for s in (4, 5))
        assert np.array_equal(a, b) == (name == "trace_from_the_start")

    def test_the_users_mask_is_not_handed_out(self, name):
        mask = MODELS[name].answered(30, 3, rng=np.random.default_rng(4))
        before = RECORDED.copy()
        mask[:] = False
        assert np.array_equal(RECORDED, before)


@given(st.floats(0, 0.99), st.floats(0, 0.99), st.integers(0, 2**20))
def test_bernoulli_draws_are_nested_in_p(p, q, seed):
    low, high = sorted((p, q))
    a, b = (Bernoulli(x).answered(20, 4, rng=np.random.default_rng(seed)) for x in (low, high))
    assert (a | ~b).all()  # who is missing at the lower p is missing at the higher


def test_bernoulli_is_independent_over_rounds_and_clients():
    mask = Bernoulli(0.4).answered(20_000, 2, rng=np.random.default_rng(0))
    for a, b in ((mask[1:, 0], mask[:-1, 0]), (mask[:, 0], mask[:, 1])):
        table = np.histogram2d(a.astype(int), b.astype(int), bins=2)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize(("p", "length"), [(0.3, 1.0), (0.3, 4.0), (0.7, 10.0), (0.75, 3.0)])
def test_markov_absences_are_geometric_with_the_stated_mean(p, length):
    # Completed absences of one long chain; mean within 4.5 standard errors of a geometric law.
    missing = ~Markov(p, length).answered(200_000, 1, rng=np.random.default_rng(2))[:, 0]
    edges = np.diff(np.concatenate([[0], missing, [0]]).astype(int))
    lengths = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    sem = np.sqrt(length * (length - 1) / len(lengths))
    assert abs(lengths.mean() - length) <= 4.5 * sem


def test_markov_with_the_mean_of_independent_rounds_is_bernoulli():
    mask = Markov(0.4, 1 / 0.6).answered(20_000, 1, rng=np.random.default_rng(0))[:, 0]
    table = np.histogram2d(mask[1:].astype(int), mask[:-1].astype(int), bins=2)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_models_are_values():
    assert Bernoulli(np.array([0.1, 0.2])) == Bernoulli([0.1, 0.2])
    assert Markov(0.1, [2, 3]) != Markov(0.1, [2, 4])
    p = np.array([0.1, 0.2])
    model = Bernoulli(p)
    p[0] = 0.9
    assert model.straggler_prob(2)[0] == 0.1
    mask = np.ones((2, 2), bool)
    trace = Trace(mask)
    mask[0] = False
    assert trace.answered(2, 2, rng=np.random.default_rng(0)).all()


def test_nobody_straggles_at_p_zero():
    for model in (Bernoulli(0), Markov(0, 3)):
        assert model.answered(50, 3, rng=np.random.default_rng(0)).all()


def test_a_trace_is_played_as_recorded():
    rng = np.random.default_rng(0)
    assert np.array_equal(Trace(RECORDED).answered(40, 3, rng=rng), RECORDED)
    wrapped = Trace(RECORDED, random_start=True).answered(100, 3, rng=rng)
    assert np.array_equal(wrapped[40:80], wrapped[:40])
    starts = [np.array_equal(np.roll(RECORDED, -k, axis=0), wrapped[:40]) for k in range(40)]
    assert sum(starts) >= 1


def test_a_trace_in_which_somebody_never_answers_has_no_usable_p():
    mask = np.array([[True, False], [True, False]])
    with pytest.raises(ArgumentError, match="got none from client 1"):
        Trace(mask).straggler_prob(2)
