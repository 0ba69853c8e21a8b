"""The batched engine gives what the plain engine gives, for whatever it is asked."""

import functools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcommons import coding
from fedcommons.batches import batches
from fedcommons.datasets import Dataset
from fedcommons.errors import StudyError
from fedcommons.simulate import (
    batched,
    curve_runs,
    draws,
    example_space,
    local_steps,
    models,
    plain_engine,
)
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.models import mlp, model, softmax
from fedcommons.simulate.models.perceptron_on_examples import PerceptronOnExamples
from fedcommons.simulate.models.torch_module import FEW_EXAMPLES
from fedcommons.simulate.runner import _softmax_task
from fedcommons.simulate.scoring import Evaluation
from tests.reference import loops
from tests.simulate.test_engines import CURVES, SIZES

PAIR = dict(straggler_prob=0.5, proportion=0.4, copies=2, learning_rate=0.5)


def test_batched_and_primal_agree(blobs):
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
    one = models.load(name, (6,), 3)
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


@pytest.mark.parametrize("made", [softmax.Softmax(5, 3), mlp.Perceptron(5, 3, hidden=4)])
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
    if isinstance(made, softmax.Softmax):
        beta = params.reshape(made.shape)
        scores = x.astype(float) @ beta[:-1] + beta[-1]
    else:
        w1, b1, w2, b2 = (layer[0] for layer in made.layers(params[None]))
        scores = np.maximum(x.astype(float) @ w1 + b1, 0) @ w2 + b2
    norms = np.log(np.exp(scores).sum(axis=1))
    return float(weight.astype(float) @ (norms - scores[np.arange(len(y)), y]))


@pytest.mark.parametrize("made", [softmax.Softmax(6, 3), mlp.Perceptron(6, 3, hidden=4)])
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
    one = models.load("mlp", (6,), 3)
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
    one = models.load("mlp", (6,), 3)
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
        Curve("dirichlet", 0.5, **PAIR, model="mlp", **more)
        for more in (
            {}, {"estimator": "memory", "warm": True}, {"code": "owner-corrected"},
            {"algorithm": "coded_fedavg", "local_steps": 3},
            {"algorithm": "coded_fedavg", "local_steps": 3, "batch_size": 2},
            {"batch_size": 2}, {"estimator": "memory", "batch_size": 3},
        )
    ] + [
        Curve("dirichlet", 0.5, 0.4, learning_rate=0.5, model="mlp", local_steps=3, **more)
        for more in ({"algorithm": "fedprox", "mu": 0.4}, {"algorithm": "scaffold"})
    ]  # fmt: skip
    found = batched.simulate_block(data, curves, **SIZES, runs=[0, 1])
    plain = PerceptronOnExamples.pays
    assert plain(models.load("mlp", (30,), 3), examples_of(data), 1000)
    monkeypatch.setattr(PerceptronOnExamples, "pays", staticmethod(lambda *a: False))
    wanted = batched.simulate_block(data, curves, **SIZES, runs=[0, 1])
    for a, b in zip(found, wanted, strict=True):
        assert np.allclose(a.second_moment, b.second_moment, rtol=2e-3)
        assert np.abs(a.correct - b.correct).max() <= 1


def test_example_space_is_left_where_it_does_not_pay(blobs):
    one, some = models.load("mlp", (30,), 3), examples_of(wide(blobs))
    assert not PerceptronOnExamples.pays(one, some, 0)
    assert not PerceptronOnExamples.pays(models.load("mlp", (20,), 3), some, 1000)


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
            one_by_one.setattr(batched, "NUMBERS_AT_ONCE", 1)
            alone = batched.simulate_block(data, curves, **SIZES, runs=[0, 1])
        for a, b in zip(together, alone, strict=True):
            assert np.array_equal(a.correct, b.correct)
            assert np.array_equal(a.second_moment, b.second_moment, equal_nan=True)
            assert a.marked().diverged[-1]


torch = pytest.importorskip("torch")


def make_linear(n_classes, input_shape):
    """The paper's model as a torch module, from zero weights."""
    module = torch.nn.Linear(*input_shape, n_classes)
    torch.nn.init.zeros_(module.weight)
    torch.nn.init.zeros_(module.bias)
    return module


def make_wrong():
    return torch.nn.Linear(6, 4)


def make_with_statistics(n_classes, input_shape):
    return torch.nn.Sequential(torch.nn.Linear(*input_shape, n_classes), torch.nn.BatchNorm1d(3))


def make_nothing():
    return 3


def make_trouble():
    raise RuntimeError("no")


class Choosy(torch.nn.Module):
    """The paper's model with control flow that depends on the data."""

    def __init__(self, n_classes, input_shape):
        super().__init__()
        self.linear = make_linear(n_classes, input_shape)

    def forward(self, x):
        return self.linear(x) if x.sum() > -1e9 else self.linear(-x)


class Picky(Choosy):
    """It takes batches of up to two, as the check at loading has them."""

    def forward(self, x):
        if len(x) > 2:
            raise ValueError(f"no batch of {len(x)}")
        return self.linear(x)


def make_half_frozen(n_classes, input_shape):
    module = torch.nn.Sequential(
        torch.nn.Linear(*input_shape, 4), torch.nn.Tanh(), torch.nn.Linear(4, n_classes)
    )
    module[0].requires_grad_(False)
    return module


def make_frozen(n_classes, input_shape):
    return make_linear(n_classes, input_shape).requires_grad_(False)


def make_lazy():
    return torch.nn.LazyLinear(3)


def make_exit():
    sys.exit(3)


class Pair(Choosy):
    def forward(self, x):
        return self.linear(x), x


class Detached(Choosy):
    def forward(self, x):
        return self.linear(x).detach()


class Noisy(Choosy):
    def forward(self, x):
        return self.linear(x + torch.randn_like(x)) + torch.randn(3)


class Centred(Choosy):
    """It begins with zeros, so that at first nobody sees what it does."""

    def forward(self, x):
        return self.linear(x - x.mean(0))


class Ending(Choosy):
    def forward(self, _x):
        sys.exit(3)


class EndingLater(Picky):
    def forward(self, x):
        return self.linear(x) if len(x) <= 2 else sys.exit(3)


def make_batch_norm(n_classes, input_shape):
    return torch.nn.Sequential(
        torch.nn.BatchNorm1d(*input_shape, track_running_stats=False),
        torch.nn.Linear(*input_shape, n_classes),
    )


partly = functools.partial(make_linear, 3, (6,))
not_callable = 3
HERE = __name__


def test_a_linear_module_is_softmax_regression(blobs):
    curves = [
        Curve("dirichlet", 0.2, **PAIR, model=name, **more)
        for name in ("softmax", f"{HERE}:make_linear")
        for more in (
            {}, {"estimator": "memory", "code": "owner-corrected"},
            {"algorithm": "coded_fedavg", "local_steps": 3, "batch_size": 2},
        )
    ]  # fmt: skip
    found = batched.simulate_block(blobs, curves, **SIZES, runs=[0, 1])
    for result in found:
        assert np.allclose(result.second_moment[:3], result.second_moment[3:], rtol=1e-3)
        assert np.abs(result.correct[:3] - result.correct[3:]).max() <= 1


def test_a_module_that_cannot_go_together_is_trained_alone(blobs):
    assert not models.load(f"{HERE}:Choosy", (6,), 3)._goes_together
    assert models.load(f"{HERE}:make_linear", (6,), 3)._goes_together
    curves = [
        Curve("dirichlet", 0.2, **PAIR, model=name, estimator="memory")
        for name in ("softmax", f"{HERE}:Choosy")
    ]
    found = batched.simulate_block(blobs, curves, **SIZES, runs=[0])[0]
    assert np.allclose(found.second_moment[0], found.second_moment[1], rtol=1e-3)


def test_a_module_that_fails_later_is_named(blobs):
    curve = Curve("iid", **PAIR, model=f"{HERE}:Picky")
    with pytest.raises(StudyError, match="Picky fails on 21 examples: ValueError: no batch of 21"):
        batched.simulate_block(blobs, [curve], **SIZES, runs=[0])
    curve = replace(curve, model=f"{HERE}:EndingLater")
    with pytest.raises(StudyError, match="EndingLater fails on 21 examples: SystemExit: 3"):
        batched.simulate_block(blobs, [curve], **SIZES, runs=[0])
    one = models.load(f"{HERE}:Picky", (6,), 3)
    params = one.initial(rng=np.random.default_rng(0))[None]
    with pytest.raises(StudyError, match="Picky fails on 105 examples"):
        one.count_correct(params, blobs.inputs("test"), blobs.y_test)


@pytest.mark.parametrize("n_examples", [5, FEW_EXAMPLES])
def test_parameters_that_need_no_gradient_stay(n_examples):
    rng = np.random.default_rng(0)
    one = models.load(f"{HERE}:make_half_frozen", (6,), 3)
    params = one.initial(rng=rng)[None]
    x, y = rng.random((1, n_examples, 6), np.float32), rng.integers(0, 3, (1, n_examples))
    found = one.gradients(params, x, y, np.ones((1, n_examples), np.float32))
    assert (found[0, :28] == 0).all()
    assert (found[0, 28:] != 0).all()


def test_a_model_that_is_no_text_has_a_source():
    assert isinstance(models.source("_socket:socket"), str)
    assert isinstance(models.source("_struct:calcsize"), str)


def test_the_source_of_a_model_is_where_it_is_made_and_where_it_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    Path("made_here.py").write_text("def make(width): pass\n")
    Path("named_here.py").write_text(
        "import functools, made_here\n"
        "make = made_here.make\nnet = functools.partial(functools.partial(make), 8)\n"
    )
    made, named = Path("made_here.py").read_text(), Path("named_here.py").read_text()
    assert models.source("made_here:make") == made
    assert models.source("named_here:make") == f"{made}\0{named}"
    assert models.source("named_here:net") == f"{made}\0{named}"
    assert models.source(f"{HERE}:partly") == Path(__file__).read_text()


def test_a_module_that_ends_the_process_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "ends_it.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(StudyError, match="ends_it:net cannot be imported: SystemExit: 3"):
        models.load("ends_it:net", (6,), 3)


@pytest.mark.parametrize("n_examples", [FEW_EXAMPLES - 1, FEW_EXAMPLES])
def test_a_module_has_softmax_gradients_together_and_one_by_one(n_examples):
    rng = np.random.default_rng(0)
    beta = rng.normal(size=(2, 7, 3)).astype(np.float32)
    x = rng.normal(size=(2, n_examples, 6)).astype(np.float32)
    y = rng.integers(0, 3, (2, n_examples))
    weight = rng.normal(size=(2, n_examples)).astype(np.float32)
    module = models.load(f"{HERE}:make_linear", (6,), 3)
    params = np.concatenate([beta[:, :-1].swapaxes(1, 2).reshape(2, -1), beta[:, -1]], axis=1)
    found = module.gradients(params, x, y, weight)
    wanted = softmax.Softmax(6, 3).gradients(beta.reshape(2, -1), x, y, weight).reshape(2, 7, 3)
    assert np.allclose(found[:, :18].reshape(2, 3, 6).swapaxes(1, 2), wanted[:, :-1], atol=1e-4)
    assert np.allclose(found[:, 18:], wanted[:, -1], atol=1e-4)


def test_the_cnn_learns_and_takes_what_are_images(blobs):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(2), 20)
    x = rng.random((40, 8, 8)) * 0.3
    x[y == 1, 2:5, 2:5] += 0.7
    data = type(blobs)("squares", x, y, x, y)
    curve = Curve("iid", learning_rate=0.5, decay=1.0, model="cnn")
    sizes = {**SIZES, "class_size": 15, "n_rounds": 25}
    found = batched.simulate_block(data, [curve], **sizes, runs=[0])[0]
    assert found.correct[0, -1] >= 38
    with pytest.raises(StudyError, match="images of at least 4 x 4"):
        models.load("cnn", (6,), 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:make", "cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:no_such", "cannot be imported: AttributeError"),
        (f"{HERE}:not_callable", "must be a function or a class, got 3"),
        (f"{HERE}:make_nothing", "must be a torch.nn.Module, got <class 'int'>"),
        (f"{HERE}:make_trouble", "cannot be made: RuntimeError: no"),
        (f"{HERE}:make_frozen", "must have parameters to train, got none"),
        (f"{HERE}:make_wrong", "must give 3 scores for each example, one for each class"),
        (f"{HERE}:make_with_statistics", "must have no buffers"),
        (f"{HERE}:make_lazy", "make_lazy must have parameters of known sizes"),
        (f"{HERE}:make_exit", "make_exit cannot be made: SystemExit: 3"),
        (f"{HERE}:Pair", "Pair must give 3 scores for each example"),
        (f"{HERE}:Detached", "Detached must give scores that depend on its parameters"),
        (f"{HERE}:Noisy", "Noisy must give the same scores for the same inputs"),
        (f"{HERE}:Centred", "Centred must score every example by itself"),
        (f"{HERE}:make_batch_norm", "make_batch_norm must score every example by itself"),
        (f"{HERE}:Ending", "Ending cannot take inputs of shape (6,): SystemExit: 3"),
    ],
)
def test_modules_that_do_not_fit_are_named(name, message):
    with pytest.raises(StudyError) as error:
        models.load(name, (6,), 3)
    assert message in str(error.value)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(StudyError, match=r"needs PyTorch: pip install 'fedcommons\[torch\]'"):
        models.load("cnn", (8, 8), 3)
    assert models.load("mlp", (8, 8), 3)
    assert "torch" in sys.modules
