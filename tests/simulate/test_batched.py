"""The batched engine gives what the plain engine gives, for whatever it is asked."""

from dataclasses import replace

import numpy as np
import pytest

from fedcommons import coding
from fedcommons.batches import batches
from fedcommons.datasets import Dataset
from fedcommons.simulate import (
    batched,
    curve_runs,
    draws,
    example_space,
    local_steps,
    looks,
    models,
    plain_engine,
)
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.models import linear, mlp, model
from fedcommons.simulate.models.perceptron_on_examples import PerceptronOnExamples
from fedcommons.simulate.runner import _softmax_task
from fedcommons.simulate.scoring import Evaluation
from fedcommons.tasks.cross_entropy import CrossEntropy
from tests.reference import loops
from tests.simulate.test_engines import CURVES, SIZES

PAIR = dict(straggler_prob=0.5, proportion=0.4, copies=2, learning_rate=0.5)


def test_batched_and_plain_agree(blobs):
    some = CURVES[:24:2] + CURVES[24:]
    found = batched.simulate_block(blobs, some, **SIZES, runs=[0, 1])
    for run in range(2):
        slow = plain_engine.simulate_run(blobs, _softmax_task, some, **SIZES, run=run)
        assert np.abs(found[run].correct - slow.correct).max() <= 1
        assert np.allclose(found[run].second_moment, slow.second_moment, rtol=1e-4, atol=1e-5)
        assert np.array_equal(found[run].heterogeneity, slow.heterogeneity)


@pytest.mark.parametrize("mean_absence", [1.5, 6.0])
def test_engines_agree_on_correlated_stragglers(blobs, mean_absence):
    curves = [
        Curve("dirichlet", 0.2, **PAIR, stragglers="markov", mean_absence=mean_absence, **more)
        for more in ({}, {"estimator": "memory"})
    ] + [Curve("dirichlet", 0.2, **PAIR)]
    fast = example_space.simulate_run(blobs, Evaluation(blobs), curves, **SIZES, run=0)
    slow = plain_engine.simulate_run(blobs, _softmax_task, curves, **SIZES, run=0)
    found = batched.simulate_block(blobs, curves, **SIZES, runs=[0])[0]
    for other in (fast, found):
        assert np.allclose(other.second_moment, slow.second_moment, rtol=2e-4)
    assert not np.allclose(slow.second_moment[0], slow.second_moment[2], rtol=1e-2)


@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_an_answer_in_batches_is_unbiased(blobs, name):
    # Over n = 400 draws of the batch, within k = 4.5 standard errors for every parameter.
    one = models.load(name, (6,), CrossEntropy(3))
    params = np.stack([one.initial(rng=np.random.default_rng(0))])
    some = models.Examples(
        blobs.inputs("train")[None], blobs.y_train[None], blobs.inputs("test"), blobs.y_test
    )
    there = models.on_examples(one, some, params, 1)
    held = local_steps.HeldExamples(np.arange(0, 30, 2), np.linspace(0.2, 1, 15).astype(np.float32))
    args = (there, np.zeros(1, np.int64), [held], params, np.ones(1, np.float32))
    whole = next(local_steps.totals(*args))[1][0] * 15
    answers = np.array(
        [
            next(
                local_steps.totals(*args, batch_size=4, rngs=[np.random.default_rng(seed)])
            )[1][0] * 15
            for seed in range(400)
        ]
    )  # fmt: skip
    errors = (answers.mean(axis=0) - whole) / np.maximum(answers.std(axis=0) / 20, 1e-6)
    assert np.abs(errors).max() < 4.5


def test_batches_use_every_example_before_any_again():
    drawn = list(batches(7, 3, 4, rng=np.random.default_rng(0)))
    assert [len(places) for places in drawn] == [3, 3, 3, 3]
    assert len({*drawn[0], *drawn[1]}) == 6
    assert len({*drawn[2], *drawn[3]}) == 6
    assert [len(p) for p in batches(2, 3, 2, rng=np.random.default_rng(0))] == [2, 2]


def test_one_sum_with_batches_is_the_clients_own(blobs):
    # The shortcut over all examples against the pass over clients that memory needs: with memory's
    # first round from nothing, both are sum_i I_i f_i / (1 - p).
    sizes = {**SIZES, "n_rounds": 1}
    curves = [
        Curve("dirichlet", 0.2, **PAIR, batch_size=2, estimator=name)
        for name in ("coded_sum", "memory")
    ]
    found = batched.simulate_block(blobs, curves, **sizes, runs=[0])[0]
    assert found.second_moment[0] == pytest.approx(found.second_moment[1], rel=1e-5)


def test_a_wrong_p_scales_the_answers(blobs):
    right = Curve("iid", **PAIR)
    sizes = {**SIZES, "n_rounds": 1}
    curves = [right, replace(right, assumed_prob=0.0)]
    found = batched.simulate_block(blobs, curves, **sizes, runs=[0])[0]
    assert found.second_moment[0] == pytest.approx(4 * found.second_moment[1], rel=1e-5)


UNEQUAL = Curve("dirichlet", 0.5, 0.5, 1.0, 3, learning_rate=0.5, prob_spread=0.4)


def element_of(blobs, curve: Curve, **sizes: int) -> curve_runs.CurveRun:
    """What the engine makes of one curve of one run."""
    data = draws.training_set(blobs, 7, seed=3, run=0)
    shared = draws.share(curve, data.labels, 4, seed=3, run=0)
    block = curve_runs.Block(len(data.labels), [0], 3)
    sizes = {"n_clients": 4, "n_rounds": 6, **sizes}
    return curve_runs.make_curve_run(curve, shared, None, None, block, run=0, place=0, **sizes)


def every_pattern(p):
    """(patterns, N) who answers, and how likely each is."""
    answered, prob = zip(*loops.straggler_patterns(np.asarray(p)), strict=True)
    return np.array(answered), np.array(prob)


@pytest.mark.parametrize("code", ["equal-split", "reliability-split"])
@pytest.mark.parametrize("stragglers", [{}, {"stragglers": "markov", "mean_absence": 9.0}])
def test_unequal_clients_are_scaled_each_by_its_own_p(blobs, code, stragglers, monkeypatch):
    curve = replace(UNEQUAL, code=code, **stragglers)
    p = np.array([0.1, 0.1 + 0.8 / 3, 0.1 + 1.6 / 3, 0.9])
    assert np.allclose(curve.client_probs(4), p)
    answered, prob = every_pattern(p)
    monkeypatch.setattr(draws, "answered", lambda *a, **k: answered)
    element = element_of(blobs, curve)
    assert np.allclose(prob @ (element.fresh @ element.held), 1)  # unbiased, example by example
    assert np.allclose(element.fresh, answered / (1 - p))


def test_the_reliability_split_has_less_variance_with_unequal_clients(blobs, monkeypatch):
    answered, prob = every_pattern(UNEQUAL.client_probs(4))
    monkeypatch.setattr(draws, "answered", lambda *a, **k: answered)
    variance = {}
    for code in ("equal-split", "reliability-split"):
        element = element_of(blobs, replace(UNEQUAL, code=code))
        counts = element.fresh @ element.held  # (patterns, M): 1 on average
        variance[code] = prob @ (counts - 1) ** 2
    assert (variance["reliability-split"] < 0.5 * variance["equal-split"]).all()
    equal = [element_of(blobs, replace(UNEQUAL, prob_spread=0.0, code=code)) for code in variance]
    assert abs(equal[0].held - equal[1].held).max() < 1e-12


def test_clients_that_differ_answer_as_often_as_they_should():
    # n = 4000 rounds, within k = 4.5 standard errors for every client.
    curve = replace(UNEQUAL, copies=0)
    answered = draws.answered(curve, 4000, 5, seed=1, run=0)
    p = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    assert (np.abs(1 - answered.mean(axis=0) - p) < 4.5 * np.sqrt(p * (1 - p) / 4000)).all()
    assert curve.client_probs(1).tolist() == [0.5]


def test_a_p_assumed_of_all_replaces_what_clients_have(blobs):
    element = element_of(blobs, replace(UNEQUAL, assumed_prob=0.2))
    assert set(np.unique(element.fresh)) <= {0.0, 1.25}


def test_curves_without_a_spread_keep_their_keys():
    plain = replace(UNEQUAL, prob_spread=0.0)
    assert "spread" not in plain.key
    assert UNEQUAL.key == f"{plain.key} prob_spread=0.4"
    assert plain.in_example_space
    assert not UNEQUAL.in_example_space


@pytest.mark.parametrize(
    "made", [linear.Linear(5, CrossEntropy(3)), mlp.Perceptron(5, CrossEntropy(3), hidden=4)]
)
def test_gradients_are_derivatives(made):
    rng = np.random.default_rng(0)
    params = rng.normal(size=(2, len(made.initial(rng=rng)))).astype(np.float32)
    x = rng.normal(size=(2, 7, 5)).astype(np.float32)
    y = rng.integers(0, 3, (2, 7))
    weight = rng.normal(size=(2, 7)).astype(np.float32)
    gradients = made.gradients(params, x, y, weight)
    for b in range(2):
        numeric = np.array(
            [
                (loss(made, params[b] + step, x[b], y[b], weight[b])
                 - loss(made, params[b] - step, x[b], y[b], weight[b])) / 2e-5
                for step in 1e-5 * np.eye(params.shape[1])
            ]
        )  # fmt: skip
        assert np.allclose(gradients[b], numeric, rtol=1e-3, atol=1e-4)


def loss(made, params, x, y, weight) -> float:
    """The weighted cross-entropy in float64."""
    if isinstance(made, linear.Linear):
        beta = params.reshape(made.shape)
        scores = x.astype(float) @ beta[:-1] + beta[-1]
    else:
        w1, b1, w2, b2 = (layer[0] for layer in made.layers(params[None]))
        scores = np.maximum(x.astype(float) @ w1 + b1, 0) @ w2 + b2
    norms = np.log(np.exp(scores).sum(axis=1))
    return float(weight.astype(float) @ (norms - scores[np.arange(len(y)), y]))


@pytest.mark.parametrize(
    "made", [linear.Linear(6, CrossEntropy(3)), mlp.Perceptron(6, CrossEntropy(3), hidden=4)]
)
def test_what_is_computed_at_once_does_not_matter(blobs, made, monkeypatch):
    rng = np.random.default_rng(0)
    params = np.stack([made.initial(rng=rng) + 0.1 for _ in range(3)])
    x = np.broadcast_to(blobs.inputs("train"), (3, 120, 6))
    y, weight = np.broadcast_to(blobs.y_train, (3, 120)), np.ones((3, 120), np.float32)
    whole = model.summed_gradients(made, params, x, y, weight)
    monkeypatch.setattr(type(made), "examples_at_once", 50)
    assert np.allclose(
        model.summed_gradients(made, params, x, y, weight), whole, rtol=1e-4, atol=1e-4
    )
    monkeypatch.setattr(local_steps, "EXAMPLES_AT_ONCE", 20)
    curves = [Curve("dirichlet", 0.2, **PAIR, algorithm="coded_fedavg", local_steps=2)]
    pieces = batched.simulate_block(blobs, curves, **SIZES, runs=[0])[0]
    monkeypatch.undo()
    found = batched.simulate_block(blobs, curves, **SIZES, runs=[0])[0]
    assert np.allclose(pieces.second_moment, found.second_moment, rtol=1e-4)


def test_curves_of_a_run_begin_alike_and_runs_do_not(blobs):
    curves = [Curve("iid", **PAIR, model="mlp"), Curve("dirichlet", 0.2, **PAIR, model="mlp")]
    first, second = batched.simulate_block(blobs, curves, **SIZES, runs=[0, 1])
    assert first.correct[0, 0] == first.correct[1, 0]
    one = models.load("mlp", (6,), CrossEntropy(3))
    rngs = [np.random.default_rng(k) for k in (0, 0, 1)]
    a, b, c = (one.initial(rng=rng) for rng in rngs)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert not np.array_equal(first.second_moment, second.second_moment)


def test_the_perceptrons_owner_correction_is_its_closed_form(blobs):
    # Against per-example gradients written out for every owner.
    curve = Curve("dirichlet", 0.5, **PAIR, model="mlp", code="owner-corrected")
    data = draws.training_set(blobs, 7, seed=3, run=0)
    shared = draws.share(curve, data.labels, 4, seed=3, run=0)
    one = models.load("mlp", (6,), CrossEntropy(3))
    params = one.initial(rng=np.random.default_rng(1))
    each = one.gradients(
        np.tile(params, (21, 1)), data.inputs[:, None], data.labels[:, None],
        np.ones((21, 1), np.float32),
    ).astype(float)  # fmt: skip
    some = models.Examples(data.inputs[None], data.labels[None], blobs.inputs("test"), blobs.y_test)
    there = models.on_examples(one, some, params[None], 1)
    found = curve_runs.owner_share(there, params[None], 0, shared.placement)
    wanted = coding.owner_share_from_products(shared.placement, each @ each.T)
    assert np.allclose(found, wanted, rtol=1e-4)
    result = batched.simulate_block(blobs, [curve], **SIZES, runs=[0])[0]
    assert np.isfinite(result.second_moment).all()


def wide(blobs) -> Dataset:
    """Blobs with more features than a run has examples."""

    def wider(x):
        return np.concatenate([x, np.cos(3 * x), x**2, np.sin(9 * x), x[:, ::-1] * x], axis=1)

    return Dataset("wide", wider(blobs.x_train), blobs.y_train, wider(blobs.x_test), blobs.y_test)


def test_a_first_layer_in_example_space_is_the_same_perceptron(blobs, monkeypatch):
    data = wide(blobs)  # 30 features, 21 examples
    curves = [
        Curve("dirichlet", 0.5, **{**PAIR, **more}, model="mlp")
        for more in (
            {}, {"estimator": "memory", "warm": True}, {"code": "owner-corrected"},
            {"algorithm": "coded_fedavg", "local_steps": 3},
            {"algorithm": "coded_fedavg", "local_steps": 3, "batch_size": 2},
            {"batch_size": 2}, {"estimator": "memory", "batch_size": 3},
            {"estimator": "memory", "warm": True, "step_control": True, "learning_rate": 9.0},
        )
    ] + [
        Curve("dirichlet", 0.5, 0.4, learning_rate=0.5, model="mlp", local_steps=3, **more)
        for more in ({"algorithm": "fedprox", "mu": 0.4}, {"algorithm": "scaffold"})
    ]  # fmt: skip
    found = batched.simulate_block(data, curves, **SIZES, runs=[0, 1])
    plain = PerceptronOnExamples.pays
    assert plain(models.load("mlp", (30,), CrossEntropy(3)), examples_of(data), 1000)
    monkeypatch.setattr(PerceptronOnExamples, "pays", staticmethod(lambda *a: False))
    wanted = batched.simulate_block(data, curves, **SIZES, runs=[0, 1])
    for a, b in zip(found, wanted, strict=True):
        assert np.allclose(a.second_moment, b.second_moment, rtol=2e-3)
        assert np.abs(a.correct - b.correct).max() <= 1


def test_example_space_is_left_where_it_does_not_pay(blobs):
    one, some = models.load("mlp", (30,), CrossEntropy(3)), examples_of(wide(blobs))
    assert not PerceptronOnExamples.pays(one, some, 0)
    assert not PerceptronOnExamples.pays(models.load("mlp", (20,), CrossEntropy(3)), some, 1000)


def examples_of(data: Dataset) -> models.Examples:
    drawn = draws.training_set(data, 7, seed=0, run=0)
    return models.Examples(drawn.inputs[None], drawn.labels[None], data.inputs("test"), data.y_test)


def test_rounds_scored_together_count_as_one_by_one(blobs, monkeypatch):
    curves = [
        Curve("dirichlet", 0.2, **{**PAIR, "learning_rate": rate}, model=name)
        for name in ("softmax", "mlp")
        for rate in (0.5, 1e30)  # one that diverges
    ]
    for data in (blobs, wide(blobs)):
        together = batched.simulate_block(data, curves, **SIZES, runs=[0, 1])
        with monkeypatch.context() as one_by_one:
            one_by_one.setattr(looks, "NUMBERS_AT_ONCE", 1)
            alone = batched.simulate_block(data, curves, **SIZES, runs=[0, 1])
        for a, b in zip(together, alone, strict=True):
            assert np.array_equal(a.correct, b.correct)
            assert np.array_equal(a.second_moment, b.second_moment, equal_nan=True)
            assert a.marked().diverged[-1]
