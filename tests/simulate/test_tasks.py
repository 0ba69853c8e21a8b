"""Studies of numbers, labels and times, with metrics pooled and at each site."""

from dataclasses import replace

import numpy as np
import pytest

from fedcommons import metrics, tasks
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError, DataError, StudyError
from fedcommons.figures.report import write_report
from fedcommons.simulate import (
    batched,
    example_space,
    local_steps,
    models,
    plain_engine,
    running,
    studies,
    tables,
    tuning,
)
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.measures import Measures
from fedcommons.simulate.runner import _softmax_task
from fedcommons.simulate.scoring import Evaluation
from tests.reference import measuring

N_TRAIN, N_TEST = 60, 24
GRID = {"partition": "iid", "p": 0.4, "c": 0.5, "d": 2, "estimator": ["coded_sum", "memory"]}
SITES = np.array(["north", "south", "west"])
COX = Curve("iid", straggler_prob=0.3, proportion=0.5, copies=1, model="linear")


def arrays(kind):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(N_TRAIN + N_TEST, 4))
    score = x @ [1.0, -1, 0.5, 0]
    noise = rng.normal(size=len(x)) / 5
    y = {
        "squared": score + noise,
        "binary": np.stack([score > 0, x[:, 3] > 0], axis=1).astype(int),
        "cox": np.stack([rng.exponential(np.exp(-score)).round(2), rng.random(len(x)) < 0.8], 1),
        "cross-entropy": (score + noise > 0).astype(int),
    }[kind]
    both = {"x": x, "y": y, "site": SITES[np.arange(len(x)) % 3]}
    return {
        f"{name}_{split}": array[part]
        for name, array in both.items()
        for split, part in (("train", slice(N_TRAIN)), ("test", slice(N_TRAIN, None)))
    }


def run(tmp_path, loss, *, of="", change=None, **settings):
    data = arrays(of or loss)
    if change:
        change(data)
    np.savez(tmp_path / "data.npz", **data)
    options = {"rounds": 6, "runs": 3, "grid": GRID, "learning_rate": 0.3, "clients": 4, **settings}
    study = studies.parse(
        {"name": "t", "loss": loss, "dataset": "data.npz", **options}, beside=tmp_path
    )
    return running.run(study, out=tmp_path / "out", workers=1)


@pytest.mark.parametrize(
    ("loss", "of", "main"),
    [
        ("squared", "", "r2"),
        ("huber", "squared", "r2"),
        ("binary", "", "auc"),
        ("cox", "", "c_index"),
        ("discrete-time", "cox", "c_index"),
    ],
)
def test_every_task_learns_and_is_reported(tmp_path, loss, of, main):
    found = run(tmp_path, loss, of=of, rounds=12)
    rows = found.curves.to_pylist()
    first, last = (np.array([r[f"{main}_mean"] for r in rows if r["round"] == t]) for t in (0, 12))
    assert (last > first + 0.15).all()
    assert np.isnan(found.curves["accuracy_mean"].to_numpy()).all() == (loss != "binary")
    assert found.runs[f"final_{main}"].to_numpy().reshape(3, 2).mean(0) == pytest.approx(last)
    report = write_report(Folder(tmp_path / "out"))
    assert report["metric"] == report["summary"]["metric"] == main
    assert report["lines"][0][main] == pytest.approx(last[0])
    assert list((tmp_path / "out/figures").glob("linear-iid.png"))


def test_sites_are_measured_and_the_worst_is_marked(tmp_path):
    found = run(tmp_path, "squared", metrics=["mse", "r2"], metric_rounds=[0, 3])
    study, curves, _ = tables.read(Folder(tmp_path / "out"))
    sites = tables.read_sites(Folder(tmp_path / "out"), study).to_pylist()
    assert len(sites) == 2 * 3 * 3 * 2  # lines, sites, rounds, metrics
    assert {(row["round"], row["runs"]) for row in sites} == {(0, 3), (3, 3), (6, 3)}
    last = [row for row in sites if row["round"] == 6 and row["metric"] == "mse"]
    for key in {row["curve"] for row in sites}:
        pooled = next(
            r for r in curves.to_pylist()
            if r["round"] == 6 and f"estimator={r['estimator']} " in key
        )  # fmt: skip
        mine = [row["mean"] for row in last if row["curve"] == key]  # of 8 examples each
        assert pooled["mse_mean"] == pytest.approx(np.mean(mine))
        assert pooled["worst_site_mse_mean"] >= max(mine) - 1e-12
    assert np.isnan(found.curves["mse_mean"].to_numpy().reshape(2, 7)[:, 1]).all()
    write_report(Folder(tmp_path / "out"))
    page = (tmp_path / "out/report.html").read_text()
    assert page.count('<td class="worst">') == 2 * 2  # in each metric's table, one for each line
    assert "Mean squared error (lower is better) at each site" in page


def test_a_metric_that_is_undefined_at_a_site_is_left_out_and_said(tmp_path):
    def one_class(data):
        data["y_test"][data["site_test"] == "south"] = 1

    run(tmp_path, "cross-entropy", metrics=["auc", "accuracy"], change=one_class, class_size="all")
    folder = Folder(tmp_path / "out")
    rows = tables.read_sites(folder, tables.read(folder)[0]).to_pylist()
    lost = {(r["site"], r["metric"]) for r in rows if r["runs"] == 0}
    assert lost == {("south", "auc")}
    write_report(folder)
    page = (folder.path / "report.html").read_text()
    assert (
        "undefined, and left out, at south: no test examples, or test examples all of one" in page
    )


def test_engines_measure_alike_and_counts_stay_as_they_are(blobs):
    loss = tasks.fitted("cross-entropy", blobs)
    site = np.arange(len(blobs.y_test)) % 2
    data = replace(
        blobs, sites=("a", "b"), site_train=np.zeros(len(blobs.y_train), int), site_test=site
    )
    measures = Measures(data, loss, metrics.chosen(("accuracy", "auc"), "classes"), (0, 4))
    curves = [Curve("iid", straggler_prob=0.3, learning_rate=0.5)]
    sizes = {"n_clients": 4, "class_size": 7, "n_rounds": 4, "seed": 0}
    test = Evaluation(data)
    plain = example_space.simulate_run(data, test, curves, **sizes, run=0)
    results = [
        example_space.simulate_run(data, test, curves, **sizes, run=0, measures=measures),
        plain_engine.simulate_run(data, _softmax_task, curves, **sizes, run=0, measures=measures),
        batched.simulate_block(data, curves, **sizes, runs=[0], measures=measures)[0],
    ]
    np.testing.assert_array_equal(results[0].correct, plain.correct)
    for found in results:
        np.testing.assert_allclose(found.measures, results[0].measures, atol=0.01)
        np.testing.assert_allclose(found.site_measures, results[0].site_measures, atol=0.02)
    accuracy = results[0].measures[0, :, 0] * len(data.y_test)
    np.testing.assert_allclose(accuracy, plain.correct[0, [0, 4]])


def cox_data():
    found = arrays("cox")
    y = found["y_train"].astype(float)
    return Dataset("d", found["x_train"], y, found["x_test"], found["y_test"].astype(float),
                   strata_train=np.zeros(N_TRAIN, int))  # fmt: skip


def test_an_answer_under_cox_is_the_gradient_of_what_a_client_holds():
    data, held = cox_data(), np.arange(0, N_TRAIN, 3)
    loss, weight = tasks.fitted("cox", data), np.linspace(0.2, 1, len(held)).astype(np.float32)
    model = models.load("linear", (4,), loss)
    examples = models.Examples(
        data.inputs("train")[None], loss.targets(data.y_train)[None], data.inputs("test"),
        loss.targets(data.y_test),
    )  # fmt: skip
    params = np.float32([[0.3, -0.2, 0.1, 0, 0]])
    there = models.on_examples(model, examples, params, 1)
    client = [local_steps.HeldExamples(held, weight)]
    one = np.ones(1, np.float32)
    _, total = next(local_steps.totals(there, np.zeros(1, int), client, params, one))

    def value(beta):
        s = data.x_train[held] @ beta[:4] + beta[4]
        return measuring.cox(s.tolist(), *data.y_train[held].T.tolist(), weight.tolist())

    for k in range(5):
        step = np.eye(5)[k] * 1e-4
        slope = (value(params[0] + step) - value(params[0] - step)) / 2e-4
        assert total[0, k] * len(held) == pytest.approx(slope, abs=1e-3)


def test_answers_of_clients_are_never_summed_as_examples_under_cox():
    # With everybody there, a coded round of Cox is not the gradient of all examples together.
    data = cox_data()
    sizes = {"n_clients": 4, "class_size": None, "n_rounds": 1, "seed": 0, "runs": [0]}
    alone = replace(COX, straggler_prob=0.0, proportion=0.0, copies=0)
    moments = {}
    for n in (1, 4):
        found = batched.simulate_block(
            data, [alone], **{**sizes, "n_clients": n}, loss=tasks.fitted("cox", data)
        )
        moments[n] = found[0].second_moment[0, 0]
    loss = tasks.fitted("cox", data)
    scores = np.zeros((1, N_TRAIN, 1))
    residuals = loss.residuals(
        scores, loss.targets(data.y_train)[None], np.ones((1, N_TRAIN), np.float32)
    )
    whole = np.append(data.x_train, np.ones((N_TRAIN, 1)), axis=1).T @ residuals[0, :, 0]
    assert moments[1] == pytest.approx(whole @ whole, rel=1e-4)
    assert moments[4] != pytest.approx(moments[1], rel=1e-3)


def test_a_coded_sum_of_squared_losses_is_unbiased():
    # Over all 2^3 sets of clients that may answer, exactly; owner-corrected codes as well.
    found = arrays("squared")
    data = Dataset("d", *(found[name] for name in ("x_train", "y_train", "x_test", "y_test")),
                   strata_train=np.zeros(N_TRAIN, int))  # fmt: skip
    loss, N, p = tasks.fitted("squared", data), 3, 0.4
    rng = np.random.default_rng(0)
    owner = rng.integers(0, N, N_TRAIN)
    model = models.load("mlp", (4,), loss)
    params = model.initial(rng=rng)[None]
    x, y = data.inputs("train")[None], loss.targets(data.y_train)[None]
    shares = rng.normal(size=(N, N_TRAIN))  # any that add up to 1
    shares += (1 - shares.sum(axis=0)) / N
    full = model.gradients(params, x, y, np.ones((1, N_TRAIN), np.float32))
    answers = [model.gradients(params, x, y, s[None].astype(np.float32)) for s in shares]
    mean = np.zeros_like(full)
    for here in np.ndindex(*[2] * N):
        chance = np.prod([1 - p if i else p for i in here])
        mean += chance * sum(f / (1 - p) for f, i in zip(answers, here, strict=True) if i)
    np.testing.assert_allclose(mean, full, rtol=2e-4, atol=2e-4)
    assert owner.max() == N - 1


def test_tuning_goes_by_the_main_metric_and_its_direction(tmp_path):
    np.savez(tmp_path / "data.npz", **arrays("squared"))
    study = studies.parse(
        {
            "name": "t",
            "loss": "squared",
            "dataset": "data.npz",
            "metrics": ["mse"],
            "grid": {"partition": "iid"},
            "rounds": 8,
            "runs": 2,
            "clients": 4,
            "tune": True,
            "tune_runs": 1,
            "strata_bins": 2,
            "learning_rate": [0.001, 0.3, 1e7],
        },
        beside=tmp_path,
    )
    chosen, tried = running.tune(study, tmp_path / "tuning", {}, workers=1)
    assert [curve.learning_rate for curve in chosen.curves] == [0.3]
    scores = [entry["held_out_mse"] for entry in tried]
    assert None in scores  # the largest rate is lost
    assert min(score for score in scores if score is not None) < 1
    assert tuning.tuning_study(study).measured[0].name == "mse"


def test_a_table_has_several_label_columns_and_strata(tmp_path):
    rows = ["age,time,event,arm"]
    rows += [f"{20 + k},{k % 7 + 1},{k % 3 > 0:d},{'ab'[k % 2]}" for k in range(40)]
    (tmp_path / "trial.csv").write_text("\n".join(rows))
    (tmp_path / "study.toml").write_text(
        'name = "t"\ndataset = "trial.csv"\nloss = "discrete-time"\nclients = 2\nrounds = 2\n'
        'runs = 1\n[data]\nlabel = ["time", "event"]\nstrata_column = "arm"\ntest_part = 0.25\n'
        'scale = "standard"\n[[grid]]\npartition = "single-class"\n'
    )
    study = studies.load(tmp_path / "study.toml")
    found = running.run(study, workers=1)
    assert np.isfinite(found.curves["c_index_mean"].to_numpy()).all()
    assert found.curves["heterogeneity_before_mean"][0].as_py() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid": {**GRID, "model": "softmax"}}, "model must be linear for .* loss squared"),
        ({"metrics": ["auc"]}, "metrics must go with the loss.*got 'auc'"),
        ({"metrics": "r2"}, "metrics must be a list of names, got 'r2'"),
        ({"metric_rounds": [7]}, "metric_rounds must be at most rounds, 6, got 7"),
        ({"metric_rounds": 3}, "metric_rounds must be a list of rounds"),
        ({"engine": "plain"}, "loss must be cross-entropy for the plain engine"),
        ({"huber_delta": -1.0}, "huber_delta must be"),
        ({"loss": "hinge"}, "loss must be one of"),
        ({"class_size": 30}, "class_size must be at most the 6 training .* smallest stratum"),
        (
            {"loss": "cox", "grid": {**GRID, "code": "owner-corrected"}},
            "loss must be a sum over examples for owner-corrected .* discrete-time is one",
        ),
        ({"loss": "cox"}, r"y must be \(examples, 2\)"),
        ({"loss": "cross-entropy", "grid": {**GRID, "model": "linear"}}, "model must be softmax"),
    ],
)
def test_settings_that_do_not_go_with_the_task_are_refused(tmp_path, settings, message):
    with pytest.raises((ArgumentError, DataError, StudyError), match=message):
        run(tmp_path, of="squared", **{"loss": "squared", **settings})
    assert not (tmp_path / "out").exists()
