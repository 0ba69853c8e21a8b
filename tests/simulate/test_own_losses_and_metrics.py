"""Somebody else's losses and metrics, by import path: trained, measured and drawn like ours."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from fedcommons import datasets, simulate, tasks
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError, StudyError
from fedcommons.figures import write_report
from fedcommons.metrics import METRICS, Metric
from fedcommons.simulate import models, runner, studies
from fedcommons.simulate.folder import Folder
from fedcommons.tasks import CrossEntropy, Loss, Squared

HERE = "tests.simulate.test_own_losses_and_metrics"


class Again(Squared):
    """The squared error, written out once more."""

    name = "again"

    def residuals(self, scores, y, weight):
        return np.asarray((scores - y) * weight[..., None], np.float32)


class Doubled(CrossEntropy):
    """Twice the cross-entropy."""

    name = "doubled"

    def residuals(self, scores, y, weight):
        onehot = np.eye(self.n_outputs, dtype=np.float32)[y]
        return 2 * (softmax(scores, axis=-1) - onehot) * weight[..., None]

    def values(self, scores, y):
        return 2 * super().values(scores, y)


class Uphill(Again):
    def residuals(self, scores, y, weight):
        return -super().residuals(scores, y, weight)


class Unweighted(Again):
    def residuals(self, scores, y, weight):
        return super().residuals(scores, y, np.ones_like(weight))


class Wide(Again):
    def residuals(self, scores, y, weight):
        return super().residuals(scores, y, weight).astype(np.float64)


class Summed(Again):
    def values(self, scores, y):
        return super().values(scores, y).sum()


class Failing(Again):
    def values(self, scores, y):  # noqa: ARG002
        raise ZeroDivisionError("by hand")


class Short(Again):
    def targets(self, y):
        return super().targets(y)[1:]


class OneScore(CrossEntropy):
    def __init__(self, n_classes):  # noqa: ARG002
        super().__init__(1)


class Unfinished(Loss):
    name = "unfinished"


class Odd(Again):
    kind = "odds"


distance = Metric(
    "distance",
    "mean distance",
    ("numbers",),
    higher_is_better=False,
    of=lambda s, y: np.abs(s - y).mean(axis=(1, 2)),
    worst=np.inf,
)
one_number = replace(distance, name="one_number", of=lambda s, y: 1.0)
failing = replace(distance, name="failing", of=lambda s, y: s.no_such_thing)
mae_again = replace(distance, name="mae")

STUDY = """
name = "own"
dataset = "own.npz"
loss = "{loss}"
metrics = {metrics}
rounds = 3
runs = 2
[[grid]]
partition = "site"
p = 0.4
c = 0.3
d = 1
algorithm = ["coded_gd", "fedavg"]
model = ["linear", "mlp"]
"""


@pytest.fixture
def numbers(tmp_path):
    """A regression from three sites, in a file."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    site = np.arange(40) % 3
    data = Dataset(
        "own", x[:24], x[:24] @ [1.0, -2.0, 0.5], x[24:], x[24:] @ [1.0, -2.0, 0.5],
        sites=("a", "b", "c"), site_train=site[:24], site_test=site[24:],
    )  # fmt: skip
    datasets.save(data, tmp_path / "own.npz")
    return data


def load(folder, loss, metrics):
    (folder / "own.toml").write_text(STUDY.format(loss=loss, metrics=metrics))
    return studies.load(folder / "own.toml")


@pytest.mark.usefixtures("numbers")
def test_they_give_the_numbers_of_ours_where_they_say_the_same(tmp_path):
    own = load(tmp_path, f"{HERE}:Again", [f"{HERE}:distance"])
    same = simulate.run(load(tmp_path, "squared", ["mae"]), workers=1).curves
    found = simulate.run(own, out=tmp_path / "results", workers=1).curves
    for of in ("mean", "sem"):
        for place in ("", "worst_site_"):
            mine = found[f"{place}distance_{of}"].to_numpy()
            assert np.isfinite(mine).all()
            assert mine.tolist() == same[f"{place}mae_{of}"].to_pylist()
    folder = Folder(tmp_path / "results")
    assert write_report(folder)["metric"] == "distance"
    page = (folder.path / "report.html").read_text()
    assert "mean distance (lower is better)" in page.replace("Mean", "mean")


@pytest.mark.parametrize("model", ["linear", "mlp", "cnn"])
def test_a_loss_that_derives_from_cross_entropy_is_trained_by_its_own_residuals(model):
    if model == "cnn":
        pytest.importorskip("torch")
    data = Dataset("d", np.zeros((9, 8, 8)), np.arange(9) % 3, np.zeros((0, 8, 8)), [])
    ours, twice = (tasks.fitted(n, data) for n in ("cross-entropy", f"{HERE}:Doubled"))
    draw = np.random.default_rng(0)
    x = draw.normal(size=(2, 5, 64)).astype(np.float32)
    y, weight = draw.integers(0, 3, (2, 5)), draw.uniform(0.5, 1, (2, 5)).astype(np.float32)
    one, two = (models.load(model, (8, 8), loss) for loss in (ours, twice))
    params = np.stack([one.initial(rng=np.random.default_rng(k)) for k in (1, 2)])
    params += 0.01 * draw.normal(size=params.shape).astype(np.float32)
    expected = one.gradients(params, x, y, weight)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(two.gradients(params, x, y, weight), 2 * expected, atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("Uphill", "loss .*Uphill: residuals must be the derivative of the weighted values"),
        ("Unweighted", "residuals must be the derivative of the weighted values"),
        ("Wide", "residuals must be float32, got float64"),
        ("Summed", r"values must be an array of shape \(1, 8\), got"),
        ("Failing", "loss .*Failing failed: ZeroDivisionError: by hand"),
        ("Short", r"targets must have a row for each of 24 examples, got \(23, 1\)"),
        ("Unfinished", "must define groups, residuals, targets, values, kind"),
        ("Odd", "kind must be one of classes, labels, numbers, times, got 'odds'"),
        ("distance", "must be a class that derives from fedcommons.tasks.Loss"),
        ("nothing", "loss .*nothing cannot be imported: AttributeError"),
    ],
)
def test_a_loss_that_is_not_what_training_takes_it_for_is_refused(loss, message, numbers):
    with pytest.raises(ArgumentError, match=message):
        tasks.fitted(f"{HERE}:{loss}", numbers)


def test_a_loss_for_classes_has_a_score_for_each(numbers):
    classes = replace(numbers, y_train=np.arange(24) % 3, y_test=np.arange(16) % 3)
    with pytest.raises(ArgumentError, match="n_outputs must be the number of classes, 3, got 1"):
        tasks.fitted(f"{HERE}:OneScore", classes)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("one_number", r"metric one_number must give a number for each of \d+ models, got shape"),
        ("failing", "metric failing failed: AttributeError: .*no_such_thing"),
        ("mae_again", "must have a name that is not taken, got 'mae'"),
        ("Again", "must be of the class Metric"),
        ("nothing", "metric .*nothing cannot be imported"),
    ],
)
@pytest.mark.usefixtures("numbers")
def test_a_metric_that_is_none_ends_in_the_error_of_a_study(metric, message, tmp_path):
    with pytest.raises(StudyError, match=message):
        simulate.run(load(tmp_path, "squared", ["mae", f"{HERE}:{metric}"]), workers=1)


@pytest.mark.usefixtures("numbers")
def test_a_loss_that_fails_ends_in_the_error_of_a_study(tmp_path):
    with pytest.raises(StudyError, match="Failing failed: ZeroDivisionError"):
        runner.study_loss(load(tmp_path, f"{HERE}:Failing", ["mae"]))


@pytest.mark.parametrize("name", ["Brier", "a-b", "", "second_moment", "worst_site_auc", "ticks"])
def test_a_metric_is_not_called_like_another_column_of_results(name):
    with pytest.raises(ArgumentError, match="name of a metric must be"):
        replace(distance, name=name)


def test_a_metric_of_ones_own_is_registered_by_name():
    METRICS.register(distance)
    try:
        assert METRICS["distance"] is distance
    finally:
        METRICS.unregister("distance")


@pytest.mark.parametrize("part", ["Again", "distance"])
@pytest.mark.usefixtures("numbers")
def test_the_digest_of_a_study_knows_the_file(part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / f"mine_{part}.py"
    source.write_text(f"from {HERE} import {part}\n")
    named = {"Again": "squared", "distance": "mae"} | {part: f"mine_{part}:{part}"}
    first = load(tmp_path, named["Again"], [named["distance"]])
    source.write_text(f"from {HERE} import {part}  # changed\n")
    assert load(tmp_path, named["Again"], [named["distance"]]).digest != first.digest
