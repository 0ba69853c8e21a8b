"""What every algorithm keeps to, and what is special about each."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedcommons import coding, estimators, sharing
from fedcommons.errors import ArgumentError
from fedcommons.estimators import Arrivals
from fedcommons.simulate import batched, curve_runs, draws, lockstep
from fedcommons.simulate.algorithms import ALGORITHMS, Local, Setup, gradient_code
from fedcommons.simulate.algorithms.cyclic_repetition import matrix as cyclic
from fedcommons.simulate.algorithms.fractional_repetition import matrix as fractional
from fedcommons.simulate.curves import Curve
from tests.reference import loops

SIZES = dict(n_clients=4, class_size=7, n_rounds=5, seed=3)
OPTIONS = {
    "coded_gd": dict(proportion=0.5, copies=2),
    "coded_fedavg": dict(proportion=0.5, copies=2),
    "fedprox": dict(mu=0.3),
    "shared_subset": dict(proportion=0.5),
    "hybrid": dict(proportion=0.5),
    "fractional_repetition": dict(proportion=1.0, copies=1),
    "cyclic_repetition": dict(proportion=1.0, copies=2),
    "stochastic_gradient_coding": dict(proportion=1.0, copies=1),
    "presence_split": dict(proportion=0.5, copies=2),
    "optimal_decoding": dict(proportion=0.5, copies=2),
}
FULL = Curve("dirichlet", 0.3, learning_rate=0.4, decay=0.9, estimator="wait_for_all")


def curve(name: str, **options: object) -> Curve:
    base = dict(partition="dirichlet", alpha=0.3, learning_rate=0.4, decay=0.9)
    return Curve(**{**base, **OPTIONS.get(name, {}), "algorithm": name, **options})


def federation(
    n_clients: int, copies: int, *, seed: int = 0, n_examples: int = 12, c: float = 0.5
) -> Setup:
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, n_clients, n_examples)
    shareable = rng.random(n_examples) < c
    placement = sharing.randomised(owner, shareable, copies, n_clients=n_clients, rng=rng)
    return Setup(owner, shareable, n_clients, copies, lambda: coding.equal_split(placement), rng)


def results(blobs, *curves: Curve, **sizes: object) -> batched.RunResult:
    return batched.simulate_block(blobs, curves, **{**SIZES, **sizes}, runs=[0])[0]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_says_where_it_comes_from(name):
    algorithm = ALGORITHMS[name]
    assert algorithm.name == name
    assert len(algorithm.source) > 20


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_client_holds_what_it_owns_or_everything_is_spread(name):
    some = federation(4, 1, c=1.0 if ALGORITHMS[name].sharing == "everything" else 0.5)
    held = ALGORITHMS[name].hold(some).toarray()
    assert held.shape[0] in (4, 5)
    assert ((held != 0).sum(axis=0) >= 1).all()
    if name != "stochastic_gradient_coding":
        assert (held[some.owner, np.arange(12)] != 0).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_who_is_missing_does_not_count(name):
    algorithm, some = ALGORITHMS[name], federation(4, 1, c=1.0)
    answered = np.array(list(itertools.product([False, True], repeat=4)))
    weights = algorithm.weigh(
        *(estimators.coded_sum, algorithm.hold(some)),
        *(Arrivals.now_or_never(answered), np.full(4, 0.3)),
    )
    assert np.isfinite(weights.fresh).all()
    assert (weights.fresh[:, :4][~answered] == 0).all()
    assert weights.fresh.shape == weights.remembered.shape
    if name != "hybrid":  # whose server is always there
        assert (weights.fresh[0] == 0).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_nobody_missing_and_one_full_step_it_is_gradient_descent(blobs, name):
    found = results(blobs, curve(name), FULL)
    if name in ("shared_subset", "hybrid"):  # what is shared counts more often: not the same
        assert not np.allclose(found.second_moment[0], found.second_moment[1], rtol=1e-3)
        nothing = results(blobs, curve(name, proportion=0.0), FULL)
        assert np.allclose(nothing.second_moment[0], nothing.second_moment[1], rtol=1e-4)
        return
    assert np.allclose(found.second_moment[0], found.second_moment[1], rtol=1e-4)
    assert np.array_equal(found.correct[0], found.correct[1])


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_run_is_the_same_in_any_company(blobs, name, batch_size):
    algorithm = ALGORITHMS[name]
    if batch_size and not algorithm.batches:
        with pytest.raises(ArgumentError, match="batch_size must be all"):
            curve(name, batch_size=batch_size)
        return
    steps = 3 if algorithm.several_steps else 1
    one = curve(name, straggler_prob=0.4, local_steps=steps, batch_size=batch_size)
    alone = batched.simulate_block(blobs, [one], **SIZES, runs=[4])[0]
    others = [one, curve("coded_gd", straggler_prob=0.4), curve("fedavg", local_steps=2)]
    together = batched.simulate_block(blobs, others, **SIZES, runs=[3, 4])
    assert np.allclose(alone.second_moment[0], together[1].second_moment[0], rtol=1e-4)
    assert np.abs(alone.correct[0] - together[1].correct[0]).max() <= 1
    assert not np.allclose(alone.second_moment[0], together[0].second_moment[0], rtol=1e-2)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_where_nobody_ever_answers_does_not_break(blobs, name, monkeypatch):
    monkeypatch.setattr(batched.draws, "answered", lambda *a, **k: np.zeros((a[1], a[2]), np.bool_))
    found = results(blobs, curve(name, straggler_prob=0.9))
    if name != "hybrid":
        assert (found.second_moment == 0).all()
        assert len(set(found.correct[0].tolist())) == 1


def all_patterns(n: int, missing: int) -> list[np.ndarray]:
    patterns = []
    for who in itertools.combinations(range(n), missing):
        answered = np.ones(n, np.bool_)
        answered[list(who)] = False
        patterns.append(answered)
    return patterns


@pytest.mark.parametrize(
    ("matrix", "n", "s"),
    [(fractional, n, s) for n, s in ((4, 0), (4, 1), (6, 2), (9, 2), (8, 3))]
    + [(cyclic, n, s) for n, s in ((1, 0), (4, 1), (5, 2), (7, 3), (10, 3), (6, 5))],
)
def test_exact_codes_decode_whoever_is_missing(matrix, n, s):
    B = matrix(n, s, np.random.default_rng(1))
    assert ((B != 0).sum(axis=1) == s + 1).all()
    gradients = np.random.default_rng(2).normal(size=(n, 3))
    for missing in range(s + 1):
        for answered in all_patterns(n, missing):
            a = gradient_code.decoding(B, answered)
            assert np.allclose(a @ B @ gradients, gradients.sum(axis=0), atol=1e-7)
            assert (a[~answered] == 0).all()
    for answered in all_patterns(n, n - 1) if s < n - 1 else []:  # too many: nothing, not rubbish
        assert (gradient_code.decoding(B, answered) == 0).all()


def test_a_fractional_code_decodes_as_long_as_each_team_has_one():
    B = fractional(6, 2, np.random.default_rng(0))
    one_each = np.array([False, False, True, True, False, False])
    assert np.allclose(gradient_code.decoding(B, one_each), [0, 0, 1, 1, 0, 0])
    assert (gradient_code.decoding(B, np.array([True] * 3 + [False] * 3)) == 0).all()


@pytest.mark.parametrize("name", ["fractional_repetition", "cyclic_repetition"])
def test_exact_codes_train_as_if_nobody_were_missing(blobs, name, monkeypatch):
    mask = np.ones((5, 4), np.bool_)
    mask[[0, 1, 2, 3], [0, 1, 2, 3]] = False  # one at a time
    monkeypatch.setattr(batched.draws, "answered", lambda *a, **k: mask)
    found = results(blobs, curve(name, straggler_prob=0.3, copies=1), FULL)
    assert np.allclose(found.second_moment[0], found.second_moment[1], rtol=1e-4)
    mask[2] = False, False, False, True
    stayed = results(blobs, curve(name, straggler_prob=0.3, copies=1))
    assert stayed.second_moment[0, 2] == 0
    assert stayed.correct[0, 3] == stayed.correct[0, 2]


def test_stochastic_gradient_coding_is_unbiased():
    # Over all straggler patterns, for every assignment drawn: so over assignments as well.
    p, n = 0.3, 4
    algorithm = ALGORITHMS["stochastic_gradient_coding"]
    answered = np.array(list(itertools.product([False, True], repeat=n)))
    prob = np.where(answered, 1 - p, p).prod(axis=1)
    seen = set()
    for seed in range(30):
        held = algorithm.hold(federation(n, 1, seed=seed, n_examples=3))
        u = algorithm.weigh(
            estimators.coded_sum, held, Arrivals.now_or_never(answered), np.full(n, p)
        ).fresh
        assert np.allclose(prob @ (u @ held.toarray()), 1)
        seen |= {tuple(column) for column in (held.toarray().T != 0)}
    assert len(seen) == 6  # every pair of four clients


@pytest.mark.parametrize("name", ["presence_split", "optimal_decoding"])
def test_decoders_that_know_who_is_there_are_coded_gd_where_nothing_is_shared(blobs, name):
    found = results(
        blobs,
        curve(name, proportion=0.0, straggler_prob=0.5),
        curve("coded_gd", proportion=0.0, straggler_prob=0.5),
    )
    assert np.allclose(found.second_moment[0], found.second_moment[1], rtol=1e-4)
    assert np.abs(np.diff(found.correct, axis=0)).max() <= 1


def test_a_presence_split_over_everybody_needs_one_client(blobs):
    """All data everywhere: gradient descent, scaled by 1/(1 - p^N), if anybody is there."""
    p, everything = 0.5, dict(proportion=1.0, copies=3)
    found = results(blobs, curve("presence_split", **everything, straggler_prob=p))
    answered = draws.answered(curve("presence_split", straggler_prob=p), 1, 4, seed=3, run=0)
    full = results(blobs, FULL).second_moment[0, 0]
    assert answered.any()
    assert found.second_moment[0, 0] == pytest.approx(full / (1 - p**4) ** 2, rel=1e-4)


def test_fedprox_pulls_back(blobs):
    free = curve("fedavg", local_steps=4)
    none, some = (replace(free, algorithm="fedprox", mu=mu) for mu in (0.0, 0.5))
    found = results(blobs, free, none, some, n_rounds=1)
    assert found.second_moment[0] == pytest.approx(found.second_moment[1], rel=1e-6)
    assert found.second_moment[2] < found.second_moment[0]
    # By hand: two steps of one client on a quadratic pull.
    one = curve("fedprox", local_steps=2, mu=0.5)
    params, start = np.ones((1, 2), np.float32), np.zeros((1, 2), np.float32)
    local = Local(params, start, start, start, np.full((1, 1), 0.5, np.float32))
    assert one.procedure.correction(local).tolist() == [[0.5, 0.5]]


def test_scaffold_keeps_its_books(blobs):
    # Plain loops, in float64: Algorithm 1 with option II, clients weighed by their examples.
    one = curve("scaffold", straggler_prob=0.4, local_steps=3)
    data = draws.training_set(blobs, 7, seed=3, run=0)
    owner = draws.share(one, data.labels, 4, seed=3, run=0).owner
    answered = draws.answered(one, 5, 4, seed=3, run=0)
    x, M = data.inputs.astype(np.float64), 21
    w, c = np.zeros((7, 3)), np.zeros((7, 3))
    c_i = np.zeros((4, 7, 3))
    moments = []
    for t in range(5):
        eta, new = 0.4 * 0.9**t, {}
        for i in np.flatnonzero(answered[t]):
            mine = np.flatnonzero(owner == i)
            if not len(mine):
                continue
            y = w.copy()
            for _ in range(3):
                gradients = [loops.softmax_gradient(x[j], data.labels[j], y) for j in mine]
                y = y - eta * (np.mean(gradients, axis=0).reshape(7, 3) - c_i[i] + c)
            new[i] = (len(mine), w - y, c_i[i] - c + (w - y) / (3 * eta))
        total = sum(n for n, _, _ in new.values())
        way = sum(n * moved for n, moved, _ in new.values()) / total if total else 0 * w
        moments.append(((M / eta * way) ** 2).sum())
        w = w - way
        c = c + sum(n / M * (after - c_i[i]) for i, (n, _, after) in new.items())
        for i, (_, _, after) in new.items():
            c_i[i] = after
    assert np.allclose(results(blobs, one).second_moment[0], moments, rtol=1e-3)


def test_coded_fedavg_with_one_full_step_is_coded_gd(blobs):
    options = dict(straggler_prob=0.5, proportion=0.5, copies=2)
    for estimator in ("coded_sum", "memory"):
        found = results(
            blobs,
            curve("coded_gd", **options, estimator=estimator),
            curve("coded_fedavg", **options, estimator=estimator),
        )
        assert np.allclose(found.second_moment[0], found.second_moment[1], rtol=1e-5)
    one, two = (results(blobs, curve("coded_fedavg", **options, local_steps=k)) for k in (1, 2))
    assert not np.allclose(one.second_moment, two.second_moment, rtol=1e-2)


def test_the_server_of_hybrid_holds_what_is_shared():
    some = federation(4, 0)
    held = ALGORITHMS["hybrid"].hold(some).toarray()
    assert np.array_equal(held[4], some.shareable)
    assert np.array_equal(held[:4].sum(axis=0), np.ones(12))
    weights = ALGORITHMS["hybrid"].weigh(
        *(estimators.coded_sum, ALGORITHMS["hybrid"].hold(some)),
        *(Arrivals.now_or_never(np.zeros((1, 4), bool)), np.zeros(4)),
    )
    assert weights.fresh[0].tolist() == [0, 0, 0, 0, 12 / some.shareable.sum()]


def test_a_shared_subset_goes_to_everybody_once():
    some = federation(4, 0)
    held = ALGORITHMS["shared_subset"].hold(some).toarray()
    assert (held[:, some.shareable] == 1).all()
    assert np.array_equal(held[:, ~some.shareable].sum(axis=0), np.ones((~some.shareable).sum()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(algorithm="fedsgd"), "algorithm must be one of coded_gd, coded_fedavg, fedavg"),
        (dict(local_steps=3), "local_steps must be 1 for coded_gd, got 3; coded_fedavg takes"),
        (dict(algorithm="cyclic_repetition", proportion=0.5, copies=2), "c must be 1 for cyclic"),
        (
            dict(algorithm="fedavg", proportion=0.5, copies=2),
            "proportion must go with an algorithm that shares",
        ),
        (
            dict(algorithm="hybrid", proportion=0.5, copies=2),
            "copies must go with an algorithm that copies",
        ),
        (
            dict(algorithm="scaffold", estimator="memory"),
            "estimator must go with an algorithm with codes",
        ),
        (
            dict(algorithm="coded_fedavg", code="owner-corrected", local_steps=2),
            "local_steps must be 1 for the code owner-corrected",
        ),
        (dict(mu=0.1), "mu must go with an algorithm that has it, such as fedprox, got 0.1"),
        (dict(mean_absence=2.0), "mean_absence must go with the markov stragglers"),
        (
            dict(stragglers="markov", straggler_prob=0.5),
            "mean_absence must be given for the markov stragglers",
        ),
        (dict(stragglers="pareto"), "stragglers must be one of bernoulli, markov"),
        (
            dict(model="resnet"),
            "model must be one of softmax, linear, mlp, cnn, or the import path",
        ),
        (dict(batch_size=-1), "batch_size must be an integer >= 1, got -1"),
        (dict(local_steps=0), "local_steps must be an integer >= 1, got 0"),
        (dict(server_rate=0.0), "server_rate must be"),
        (
            dict(straggler_prob=0.3, prob_spread=0.4),
            "p_spread must keep p - p_spread and p + p_spread in [0, 1), got p = 0.3",
        ),
        (dict(straggler_prob=0.7, prob_spread=0.3), "p_spread must keep"),
        (dict(prob_spread=-0.1), "prob_spread must be in [0, inf), got -0.1"),
        (
            dict(stragglers="markov", mean_absence=2.0, straggler_prob=0.5, prob_spread=0.3),
            "p/(1-p)) = 4 rounds for p = 0.8",
        ),
        (dict(assumed_prob=1.0), "assumed_prob must be in [0, 1)"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ArgumentError) as error:
        Curve("iid", **options)
    assert message in str(error.value)


@pytest.mark.parametrize(("n", "s"), [(30, 6), (100, 10)])
def test_a_cyclic_code_stays_exact_with_many_clients(n, s):
    # What every example counts in a round, as the engine sums it: 1, also with large decodings.
    one = curve("cyclic_repetition", copies=s, straggler_prob=0.5 * s / n)
    labels = np.repeat(np.arange(4), n)
    shared = draws.share(one, labels, n, seed=3, run=0)
    block = curve_runs.Block(len(labels), [0], 3)
    element = curve_runs.make_curve_run(
        one, shared, None, None, block, run=0, place=0, n_clients=n, n_rounds=200
    )
    group = lockstep.Lockstep([element], block, None)
    found = [group.weights(t)[0] for t in range(200) if element.fresh[t].any()]
    assert len(found) > 100
    assert np.abs(np.array(found) - 1).max() < 1e-6


@pytest.mark.parametrize("name", ["fractional_repetition", "cyclic_repetition"])
def test_exact_codes_are_never_dense(name, monkeypatch):
    algorithm, some = ALGORITHMS[name], federation(6, 2, n_examples=500, c=1.0)
    dense = csr_array.toarray
    widest = []
    monkeypatch.setattr(csr_array, "toarray", lambda a: widest.append(a.shape[1]) or dense(a))
    held = algorithm.hold(some)
    answered = np.array(all_patterns(6, 1))
    u = algorithm.weigh(
        estimators.coded_sum, held, Arrivals.now_or_never(answered), np.full(6, 0.1)
    ).fresh
    assert np.allclose(u @ held, 1)
    assert max(widest) <= 6
