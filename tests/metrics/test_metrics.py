"""Metrics are what plain loops find, also with ties; undefined ones are NaN."""

import numpy as np
import pytest

from fedcommons import metrics
from fedcommons.errors import ArgumentError
from fedcommons.metrics import METRICS
from tests.reference import measuring

MODELS = 3


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_metrics_of_classes(seed, n_classes):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, (MODELS, 25, n_classes)).astype(np.float32)  # many ties
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, 25 - n_classes)])
    found = {name: METRICS[name].values(scores, y) for name in ("accuracy", "auc", "f1")}
    recall = METRICS["balanced_accuracy"].values(scores, y)
    log_loss = METRICS["log_loss"].values(scores, y)
    for b in range(MODELS):
        best = [max(range(n_classes), key=lambda k, s=s: (s[k], -k)) for s in scores[b]]
        right = [a == k for a, k in zip(best, y, strict=True)]
        assert found["accuracy"][b] == pytest.approx(np.mean(right))
        of_class = [np.mean(np.array(right)[y == k]) for k in range(n_classes)]
        assert recall[b] == pytest.approx(np.mean(of_class))
        assert found["f1"][b] == pytest.approx(measuring.f1(best, y.tolist()))
        assert found["auc"][b] == pytest.approx(measuring.auc(scores[b].tolist(), y.tolist()))
        chances = [measuring.softmax(s.tolist())[k] for s, k in zip(scores[b], y, strict=True)]
        assert log_loss[b] == pytest.approx(-np.log(chances).mean())


def test_metrics_of_labels():
    rng = np.random.default_rng(1)
    scores = rng.integers(-2, 3, (MODELS, 20, 3)).astype(np.float32)
    y = np.concatenate([[[0, 0, 0], [1, 1, 1]], rng.integers(0, 2, (18, 3))])
    y[:, 2] = 1  # no area for the last label
    for b in range(MODELS):
        areas = [measuring.area(scores[b, :, k], y[:, k]) for k in range(2)]
        assert METRICS["auc"].values(scores, y)[b] == pytest.approx(np.mean(areas))
        assert METRICS["accuracy"].values(scores, y)[b] == np.mean((scores[b] > 0) == y)
        right = (scores[b] > 0) & (y == 1)
        f1 = 2 * right.sum(0) / ((scores[b] > 0).sum(0) + y.sum(0))
        assert METRICS["f1"].values(scores, y)[b] == pytest.approx(f1.mean())


def test_metrics_of_numbers():
    rng = np.random.default_rng(2)
    s, y = rng.normal(size=(MODELS, 15, 2)), rng.normal(size=(15, 2))
    for b in range(MODELS):
        left = ((y - s[b]) ** 2).sum(0) / ((y - y.mean(0)) ** 2).sum(0)
        assert METRICS["r2"].values(s, y)[b] == pytest.approx((1 - left).mean())
        assert METRICS["mse"].values(s, y)[b] == pytest.approx(((y - s[b]) ** 2).mean())
        assert METRICS["mae"].values(s, y)[b] == pytest.approx(np.abs(y - s[b]).mean())


@pytest.mark.parametrize(("n", "seed"), [(12, 0), (40, 1), (600, 2)])
def test_the_c_index_counts_pairs(n, seed):
    rng = np.random.default_rng(seed)
    risks = rng.integers(0, max(4, n // 4), (2, n)).astype(float)
    truth = np.stack([rng.integers(1, 9, n) if n < 50 else rng.uniform(0, 9, n).round(1),
                      rng.integers(0, 2, n)], axis=1).astype(float)  # fmt: skip
    truth[0] = (0.5, 1)
    found = METRICS["c_index"].values(risks, truth)
    for b in range(2):
        expected = measuring.c_index(risks[b].tolist(), *truth.T.tolist())
        assert found[b] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "predictions", "truth"),
    [
        ("auc", np.zeros((2, 3, 2)), np.array([1, 1, 1])),
        ("auc", np.zeros((2, 3, 3)), np.array([2, 2, 2])),
        ("r2", np.zeros((2, 3, 1)), np.ones((3, 1))),
        ("c_index", np.zeros((2, 3)), np.array([[1.0, 0], [2, 0], [3, 1]])),
        ("accuracy", np.zeros((2, 0, 2)), np.zeros(0, int)),
        ("mse", np.full((2, 3, 1), np.nan), np.ones((3, 1))),
    ],
)
def test_what_is_undefined_is_not_a_number(name, predictions, truth):
    assert np.isnan(METRICS[name].values(predictions, truth)).all()


def test_metrics_go_with_their_tasks():
    assert [one.name for one in metrics.chosen((), "numbers")] == ["r2", "mae", "mse"]
    with pytest.raises(ArgumentError, match="must go with the loss, which is for numbers: r2"):
        metrics.chosen(("auc",), "numbers")
    with pytest.raises(
        ArgumentError, match=r"metrics must be one of accuracy, .*import path.* got 'roc'"
    ):
        metrics.chosen(("roc",), "classes")
    with pytest.raises(ArgumentError, match="named once each"):
        metrics.chosen(("auc", "auc"), "classes")


@pytest.mark.parametrize(
    ("value", "half", "shown"),
    [
        (0.77812, 0.01234, "0.778 ± 0.012"),
        (102.3, 41.474, "102 ± 41"),
        (-0.5, 0.1849, "−0.50 ± 0.18"),
        (10234.0, 4147.0, "10,200 ± 4,100"),
        (5.0, 0.0, "5.000 ± 0.000"),
        (0.9, None, "0.900"),
        (0.9, np.nan, "0.900"),
    ],
)
def test_a_value_and_its_interval_end_at_the_same_place(value, half, shown):
    assert METRICS["mse"].with_half(value, half) == shown
