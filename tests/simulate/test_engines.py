"""Both engines give what the plain loop gives."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from fedcommons import coding, estimators
from fedcommons.errors import ArgumentError
from fedcommons.simulate import batched, draws, example_space, plain_engine, scoring
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.result import THEOREM2, THEORY
from fedcommons.simulate.runner import _softmax_task
from fedcommons.simulate.scoring import Evaluation
from fedcommons.tasks import softmax
from fedcommons.theory import lambdas, scalar_products, variance_reduction
from tests.reference import loops, training

SIZES = dict(n_clients=4, class_size=7, n_rounds=6, seed=3)
PARTITIONS = (("iid", 0.0), ("single-class", 0.0), ("dirichlet", 0.2))
METHODS = (
    {},
    {"code": "reliability-split"},
    {"code": "owner-corrected"},
    {"estimator": "memory"},
    {"code": "owner-corrected", "estimator": "memory"},
    {"code": "owner-corrected", "estimator": "memory", "warm": True},
    {"estimator": "latest"},
    {"estimator": "responder_average"},
    {"estimator": "wait_for_all"},
    {"estimator": "filled"},  # last, since nothing says its exact second moment
)
CURVES = [
    Curve(name, alpha, p, c, d, learning_rate=0.5, decay=0.9, **method)
    for name, alpha in PARTITIONS
    for p, c, d in ((0.5, 0.4, 2), (0.8, 0.0, 0), (0.0, 1.0, 3))
    for method in METHODS
]
MEASURES = ("second_moment", "second_moment_exact", "gradient_norm2", "projection")


@pytest.fixture(scope="module")
def fast(blobs):
    test = Evaluation(blobs)
    return [
        example_space.simulate_run(blobs, test, CURVES, **SIZES, run=run, theory_for=frozenset())
        for run in range(2)
    ]


def test_example_space_and_plain_agree(blobs, fast):
    for run in range(2):
        slow = plain_engine.simulate_run(blobs, _softmax_task, CURVES, **SIZES, run=run)
        # Float32 products against float64: a test example near a tie may fall either way.
        assert np.abs(fast[run].correct - slow.correct).max() <= 1
        for name in MEASURES:
            a, b = getattr(fast[run], name), getattr(slow, name)
            assert np.allclose(a, b, rtol=2e-4, atol=1e-6, equal_nan=True), name
        assert np.array_equal(fast[run].heterogeneity, slow.heterogeneity)


@pytest.mark.parametrize("k", range(0, len(CURVES), 7))
def test_both_agree_with_the_plain_loop(blobs, fast, k):
    loop = training.train(blobs, CURVES[k], **SIZES, run=0)
    slow = plain_engine.simulate_run(blobs, _softmax_task, [CURVES[k]], **SIZES, run=0)
    assert np.array_equal(slow.correct[0], loop["correct"])
    assert np.abs(fast[0].correct[k] - loop["correct"]).max() <= 1
    for name in ("second_moment", "gradient_norm2"):
        assert np.allclose(getattr(slow, name)[0], loop[name], rtol=1e-9)
        assert np.allclose(getattr(fast[0], name)[k], loop[name], rtol=2e-4)


def test_exact_second_moment_is_the_mean_over_all_straggler_patterns(blobs):
    # At the initial model, where the engine's exact value can be enumerated.
    for curve in CURVES[:8]:
        result = plain_engine.simulate_run(blobs, _softmax_task, [curve], **SIZES, run=0)
        data = draws.training_set(blobs, 7, seed=3, run=0)
        shared = draws.share(curve, data.labels, 4, seed=3, run=0)
        gradients = softmax.gradients(data.inputs, softmax.initial_residuals(data.labels, 3))
        answers = draws.shares(curve, shared.placement, data.products) @ gradients
        estimator = estimators.ESTIMATORS[curve.estimator]
        state = estimators.start(
            estimator, 4, gradients.shape[1], warm=answers if curve.warm else None
        )
        total = 0.0
        for answered, prob in loops.straggler_patterns(np.full(4, curve.straggler_prob)):
            value, _ = estimators.estimate(
                estimator, state, answers, answered, curve.straggler_prob
            )
            total += prob * value @ value
        assert result.second_moment_exact[0, 0] == pytest.approx(total, rel=1e-9), curve


def test_theory_rows_are_the_theorys(blobs):
    curves = [
        Curve(name, alpha, 0.6, 0.5, 2, learning_rate=0.5)
        for name, alpha in (("single-class", 0.0), ("dirichlet", 0.2))
    ]
    sizes = {**SIZES, "n_clients": 3}
    result = example_space.simulate_run(
        blobs, Evaluation(blobs), curves, **sizes, run=0, theory_for=frozenset(curves)
    )
    data = draws.training_set(blobs, 7, seed=3, run=0)
    gradients = softmax.gradients(data.inputs, softmax.initial_residuals(data.labels, 3))
    for k, curve in enumerate(curves):
        row = dict(zip(THEORY, result.theory[k, 0], strict=True))
        shared = draws.share(curve, data.labels, 3, seed=3, run=0)
        by_class = scalar_products.pair_sums(gradients, data.labels, shared.shareable)
        by_owner = scalar_products.pair_sums(gradients, shared.owner, shared.shareable)
        same, diff = scalar_products.type_sums(gradients, data.labels)
        args = dict(copies=2, straggler_prob=0.6)
        G = gradients @ gradients.T
        unshared = (lambdas.realised(np.eye(3)[:, shared.owner], 0.6) * G).sum()
        shared_code = coding.equal_split(shared.placement)
        expected = {
            "type1": same,
            "type2": diff,
            "reduction": unshared - (lambdas.realised(shared_code, 0.6) * G).sum(),
            "reduction_expected": variance_reduction.expected_reduction(
                by_owner, n_clients=3, **args
            ),
            "theorem2_bound": variance_reduction.theorem2_bound(by_class, **args),
            "remark_bound": variance_reduction.remark_bound(by_class, **args),
            "mixed_margin": variance_reduction.assumption1(by_class).mixed_margin,
            "shared_margin": variance_reduction.assumption1(by_class).shared_margin,
            "remark_margin": -max(by_class.diff_mixed, by_class.diff_shared),
        }
        scale = np.abs(list(expected.values())).max()
        for name, value in expected.items():
            if curve.partition != "single-class" and name in THEOREM2:
                assert np.isnan(row[name])
            else:
                assert row[name] == pytest.approx(value, abs=1e-5 * scale), name


def test_theory_rows_follow_the_model(blobs):
    # At t > 0: the reduction is the unshared variance minus the curve's own exact one.
    curve = Curve("single-class", 0.0, 0.6, 0.5, 2, learning_rate=0.5)
    sizes = {**SIZES, "n_clients": 3}
    result = example_space.simulate_run(
        blobs, Evaluation(blobs), [curve], **sizes, run=0, theory_for=frozenset([curve])
    )
    row = dict(zip(THEORY, np.moveaxis(result.theory[0], 1, 0), strict=True))
    shared_variance = (result.second_moment_exact - result.gradient_norm2)[0]
    assert np.allclose(row["reduction"], 1.5 * row["type1"] - shared_variance, rtol=1e-4)
    assert np.allclose(row["type1"] + row["type2"], result.gradient_norm2[0], rtol=1e-4)
    assert len(set(row["theorem2_bound"])) == SIZES["n_rounds"]


def test_bounds_are_not_stated_where_owner_and_class_differ(blobs):
    curve = Curve("single-class", 0.0, 0.6, 0.5, 2)
    result = example_space.simulate_run(
        blobs, Evaluation(blobs), [curve], **SIZES, run=0, theory_for=frozenset([curve])
    )  # four clients, three classes
    row = dict(zip(THEORY, result.theory[0, 0], strict=True))
    assert np.isnan(row["theorem2_bound"])
    assert np.isnan(row["mixed_margin"])
    assert row["reduction"] > 0


def test_every_run_draws_its_own_training_set_owners_mask_and_copies(blobs):
    curve = Curve("dirichlet", 0.5, 0.5, 0.5, 2)
    one, other = (draws.training_set(blobs, 20, seed=0, run=run) for run in (0, 1))
    assert not np.array_equal(one.inputs, other.inputs)
    a, b = (draws.share(curve, one.labels, 4, seed=0, run=run) for run in (0, 1))
    assert not np.array_equal(a.owner, b.owner)
    iid = Curve("single-class", 0.0, 0.5, 0.5, 1)
    a, b = (draws.share(iid, one.labels, 3, seed=0, run=run) for run in (0, 1))
    assert np.array_equal(a.owner, b.owner)
    assert not np.array_equal(a.shareable, b.shareable)


def test_what_is_computed_at_once_does_not_matter(blobs, fast, monkeypatch):
    asked = frozenset(c for c in CURVES if c.estimator == "coded_sum")
    whole = example_space.simulate_run(
        blobs, Evaluation(blobs), CURVES, **SIZES, run=0, theory_for=asked
    )
    monkeypatch.setattr(example_space, "ROUNDS_AT_ONCE", 4)  # of 6 rounds
    monkeypatch.setattr(scoring, "TEST_BLOCK", 10)
    monkeypatch.setattr(scoring, "MODELS_AT_ONCE", 2 * len(CURVES))
    parts = example_space.simulate_run(
        blobs, Evaluation(blobs), CURVES, **SIZES, run=0, theory_for=asked
    )
    assert np.abs(parts.correct - fast[0].correct).max() <= 1
    for name in MEASURES:
        assert np.allclose(
            getattr(parts, name), getattr(fast[0], name), rtol=1e-5, equal_nan=True
        ), name
    scale = np.nanmax(np.abs(whole.theory))
    assert np.allclose(parts.theory, whole.theory, rtol=0, atol=1e-5 * scale, equal_nan=True)


def test_order_of_curves_and_company_change_nothing(blobs):
    test = Evaluation(blobs)
    together = example_space.simulate_run(blobs, test, CURVES[:9], **SIZES, run=1)
    backwards = example_space.simulate_run(blobs, test, CURVES[8::-1], **SIZES, run=1)
    for name in MEASURES:
        a, b = getattr(together, name), getattr(backwards, name)[::-1]
        assert np.allclose(a, b, rtol=1e-5)


def test_curves_of_a_run_are_paired():
    labels = np.repeat(np.arange(3), 7)
    base = Curve("single-class", 0.0, 0.5, 0.4, 2)
    args = dict(seed=1, run=4)
    a = draws.share(base, labels, 4, **args)
    for other in (
        Curve("single-class", 0.0, 0.7, 0.4, 2, code="owner-corrected"),
        Curve("single-class", 0.0, 0.5, 0.4, 2, estimator="memory"),
    ):
        assert draws.share(other, labels, 4, **args).placement == a.placement
    more = draws.share(Curve("single-class", 0.0, 0.5, 0.4, 3), labels, 4, **args)
    assert np.array_equal(more.shareable, a.shareable)
    low, high = (draws.answered(Curve("iid", 0.0, p), 20, 4, **args) for p in (0.3, 0.6))
    assert (low | ~high).all()
    again = draws.answered(Curve("iid", 0.0, 0.3), 20, 4, seed=1, run=5)
    assert not np.array_equal(low, again)


def test_a_class_too_small_is_named(blobs):
    with pytest.raises(
        ArgumentError, match="class_size must be at most the 40 examples of class 0"
    ):
        draws.training_set(blobs, 41, seed=0, run=0)
    with pytest.raises(ArgumentError, match="class_size must be an integer >= 1, got 0"):
        draws.training_set(blobs, 0, seed=0, run=0)


@pytest.mark.parametrize("rate", [1e39, 1e300])
def test_a_model_lost_in_the_last_step_is_marked(blobs, rate):
    fine, lost = Curve("iid", learning_rate=0.5), Curve("iid", learning_rate=rate)
    mlp = replace(lost, model="mlp")
    sizes = {**SIZES, "n_rounds": 1}
    with np.errstate(all="ignore"):
        fast = example_space.simulate_run(blobs, Evaluation(blobs), [fine, lost], **sizes, run=0)
        general = batched.simulate_block(blobs, [fine, lost, mlp], **sizes, runs=[0])[0]
    for result in (fast, general):
        assert np.isfinite(result.second_moment).all()
        assert result.marked().diverged.tolist() == [False, True, True][: len(result.correct)]
        assert (result.correct[:, 0] >= 0).all()


def test_the_plain_engine_marks_a_lost_model_and_goes_on(blobs):
    curves = [Curve("iid", learning_rate=rate) for rate in (np.finfo(float).max, 0.5)]
    with np.errstate(all="ignore"):
        result = plain_engine.simulate_run(blobs, _huge_task, curves, **SIZES, run=0)
    assert result.marked().diverged.tolist() == [True, False]
    assert (result.correct[0, 1:] == -1).all()


def _huge_task(dataset, data):
    """Softmax regression whose answers are so large that a large step leaves the finite."""
    task = _softmax_task(dataset, data)
    answers = task.answers
    task.answers = lambda params, shares: 100.0 * answers(params, shares)
    return task


@pytest.mark.parametrize(
    ("n_curves", "sizes"),
    [
        (1, dict(n_clients=4, class_size=300, n_rounds=3)),  # scalar products
        (1, dict(n_clients=4, class_size=20, n_rounds=20_000)),  # weights
        (60, dict(n_clients=90, class_size=100, n_rounds=20)),  # shares and residuals
    ],
)
def test_what_a_run_needs_is_known_before(blobs, n_curves, sizes):
    x, y = (np.concatenate([part] * 50) for part in (blobs.x_train, blobs.y_train))
    many = replace(blobs, x_train=x, y_train=y)
    test = Evaluation(many)
    curves = [Curve("iid", 0.0, 0.5, 0.4, 2, learning_rate=1 / (k + 1)) for k in range(n_curves)]
    tracemalloc.start()
    example_space.simulate_run(many, test, curves, **sizes, seed=0, run=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    L = many.n_classes
    needed = example_space.needed_bytes(
        n_curves,
        n_clients=sizes["n_clients"],
        n_examples=L * sizes["class_size"],
        n_classes=L,
        n_rounds=sizes["n_rounds"],
    )
    assert peak / 3 < needed < 1.1 * peak
