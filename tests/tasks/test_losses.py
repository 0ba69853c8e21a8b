"""Losses: derivatives against finite differences and plain loops; what does not fit is refused."""

from dataclasses import replace

import numpy as np
import pytest

from fedcommons import tasks
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError, DataError
from tests.reference import measuring

M = 14
rng = np.random.default_rng(0)
TIMES = np.stack([rng.integers(1, 6, M), rng.integers(0, 2, M)], axis=1).astype(float)
TARGETS = {
    "cross-entropy": rng.integers(0, 3, M),
    "binary": rng.integers(0, 2, (M, 3)),
    "squared": rng.normal(size=(M, 2)),
    "huber": 3 * rng.normal(size=M),
    "cox": TIMES,
    "discrete-time": TIMES,
}
TARGETS["cross-entropy"][:3] = range(3)


def data(y, y_test=None):
    x = np.arange(2.0 * M).reshape(M, 2)
    return Dataset("d", x, y, x, y if y_test is None else y_test)


def value(loss, scores, y, weight):
    """The weighted loss of one model."""
    if loss.name == "cox":
        return measuring.cox(scores[:, 0].tolist(), *TIMES.T.tolist(), weight.tolist())
    return float(weight @ loss.values(scores[None], y[None])[0])


@pytest.mark.parametrize("name", TARGETS)
def test_residuals_are_the_derivative_of_the_weighted_loss(name):
    loss = tasks.fitted(name, data(TARGETS[name]), time_intervals=3)
    y = loss.targets(TARGETS[name])
    draw = np.random.default_rng(1)
    scores = draw.normal(size=(M, loss.n_outputs))
    weight = draw.uniform(0.2, 1, M)
    weight[3] = 0  # as what fills up a batch
    found = loss.residuals(scores[None].copy(), y[None], weight[None].astype(np.float32))[0]
    for j in range(M):
        for k in range(loss.n_outputs):
            step = np.zeros_like(scores)
            step[j, k] = 1e-5
            up, down = (value(loss, scores + s * step, y, weight) for s in (1, -1))
            assert found[j, k] == pytest.approx((up - down) / 2e-5, abs=2e-6)
    assert not found[3].any()


def test_values_are_those_of_plain_loops():
    draw = np.random.default_rng(2)
    loss = tasks.fitted("discrete-time", data(TIMES), time_intervals=3)
    scores = draw.normal(size=(1, M, loss.n_outputs))
    expected = [
        measuring.discrete_time(s.tolist(), t, e, loss.cuts)
        for s, (t, e) in zip(scores[0], TIMES, strict=True)
    ]
    np.testing.assert_allclose(loss.values(scores, loss.targets(TIMES)[None])[0], expected)
    cox = tasks.fitted("cox", data(TIMES))
    total = cox.values(scores[:, :, :1], cox.targets(TIMES)[None]).sum()
    assert total == pytest.approx(
        measuring.cox(scores[0, :, 0].tolist(), *TIMES.T.tolist(), [1] * M)
    )


def test_cox_is_no_sum_over_parts_and_the_others_are():
    weight = np.ones((1, M), np.float32)
    halves = weight.copy()
    halves[:, M // 2 :] = 0
    for name, y in TARGETS.items():
        loss = tasks.fitted(name, data(y), time_intervals=3)
        scores = np.random.default_rng(3).normal(size=(1, M, loss.n_outputs))
        whole, one, other = (
            loss.residuals(scores.copy(), loss.targets(y)[None], w)
            for w in (weight, halves, weight - halves)
        )
        assert np.allclose(whole, one + other, atol=1e-6) == loss.decomposable
        twice = loss.residuals(scores.copy(), loss.targets(y)[None], 2 * weight)
        np.testing.assert_allclose(twice, 2 * whole, atol=1e-6)


def test_the_risk_is_higher_where_hazards_are():
    loss = tasks.fitted("discrete-time", data(TIMES), time_intervals=3)
    scores = np.zeros((1, 2, loss.n_outputs))
    scores[0, 1] += 1
    low, high = loss.predictions(scores)[0]
    assert low < high


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        ("cross-entropy", rng.normal(size=M), "integer labels for loss cross-entropy.*binary, squ"),
        ("squared", np.arange(M), "floating-point.*integers are labels.* got integers"),
        ("huber", np.arange(M), "for loss huber"),
        ("binary", np.arange(M), "must be 0 or 1 for loss binary, got 2"),
        ("cox", np.arange(M), r"\(examples, 2\).* loss cox, got integers of shape \(14,\)"),
        ("cox", TIMES - np.array([2, 0]), "times >= 0 .* got the time -1"),
        ("discrete-time", TIMES + np.array([0, 0.5]), "events of 0 or 1 .* got the event [01].5"),
        ("cox", TIMES * np.array([1, 0]), "some events in training for loss cox, got none"),
    ],
)
def test_data_that_do_not_fit_a_loss_are_refused(name, y, message):
    with pytest.raises(DataError, match=message):
        tasks.fitted(name, data(y))


def test_a_loss_that_nobody_knows_is_refused():
    with pytest.raises(ArgumentError, match=r"loss must be one of cross-entropy, binary.* 'hinge'"):
        tasks.fitted("hinge", data(TARGETS["cross-entropy"]))


def test_targets_and_strata_are_checked():
    gap = np.where(np.arange(M) == 4, np.nan, 1.0)
    with pytest.raises(DataError, match="y_train must be finite, got a missing value in example 4"):
        data(gap, np.ones(M))
    with pytest.raises(DataError, match="strata_train must have one entry for each of the 14"):
        replace(data(np.ones(M)), strata_train=np.zeros(3, int))
    with pytest.raises(DataError, match="must be of one kind"):
        data(np.ones(M), np.ones((M, 2)))
    with pytest.raises(DataError, match="y must be integer labels of classes here, got float64"):
        _ = data(np.ones(M)).n_classes


def test_groups_are_quantiles_or_combinations():
    loss = tasks.fitted("squared", data(np.arange(1.0, M + 1)))
    counts = np.bincount(loss.groups(np.arange(1.0, M + 1), 7))
    assert counts.tolist() == [2] * 7
    assert np.bincount(loss.groups(np.ones(M), 7)).tolist() == [M]
    binary = tasks.fitted("binary", data(np.eye(2, dtype=int)[[0, 1] * 7]))
    assert binary.groups(np.eye(2, dtype=int)[[0, 1, 1]], 5).tolist() == [1, 0, 0]
