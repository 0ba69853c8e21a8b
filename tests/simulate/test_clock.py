"""Training under a clock: the engines against a plain loop, and what every clock must keep."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest

import fedcommons as fc
from fedcommons.cli import terminal
from fedcommons.errors import ArgumentError, StudyError
from fedcommons.figures.report import write_report
from fedcommons.metrics import METRICS
from fedcommons.simulate import batched, estimate, feasible, runner, timelines, timing
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.timing import Timing
from tests.reference import clocked

SIZES = {"n_clients": 4, "class_size": 7, "seed": 3}
POINTS = 12
TIMING = Timing(
    40.0, delays="exponential", rate=(400.0, 200.0, 100.0, 60.0), link=0.3, failure=0.1,
    multiply_adds=20.0, target=0.5,
)  # fmt: skip
SHARING = {"proportion": 0.5, "copies": 2, "decay": 0.999, "learning_rate": 0.3}
LINES = {
    "all": {"policy": "all", "estimator": "responder_average"},
    "deadline": {"policy": "deadline", "deadline": 1.2},
    "adaptive": {"policy": "deadline", "estimator": "memory", "late": "remember"},
    "adaptive_warm": {
        "policy": "deadline", "estimator": "memory", "late": "remember", "warm": True,
    },
    "latest": {"policy": "deadline", "deadline": 0.8, "estimator": "latest", "late": "remember"},
    "blended": {"policy": "deadline", "deadline": 0.8, "estimator": "blended", "late": "remember"},
    "late_discarded": {"policy": "deadline", "deadline": 1.5, "estimator": "memory"},
    "fedbuff": {"policy": "fastest:2", "estimator": "fedbuff", "late": "remember"},
    "fedasync": {
        "policy": "fastest:1", "estimator": "fedasync", "late": "remember", "server_rate": 0.6,
    },
    "mini": {"policy": "fastest:2", "estimator": "responder_average", "work": "mini:3"},
    "anytime": {"policy": "deadline", "deadline": 0.9, "work": "anytime"},
    "chunk": {
        "policy": "deadline", "deadline": 0.8, "estimator": "latest", "work": "chunk",
        "late": "remember",
    },
    "chunk_warm": {
        "policy": "fastest:2", "deadline": 0.8, "estimator": "latest", "work": "chunk",
        "late": "remember", "warm": True,
    },
    "sagachunk": {
        "policy": "deadline", "deadline": 0.8, "estimator": "memory", "work": "sagachunk",
        "late": "remember",
    },
    "controlled": {
        "policy": "deadline", "deadline": 0.8, "estimator": "latest", "late": "remember",
        "learning_rate": 40.0, "step_control": True, "warm": True,
    },
    "controlled_chunks": {
        "policy": "deadline", "deadline": 0.8, "estimator": "memory", "work": "sagachunk",
        "late": "remember", "learning_rate": 40.0, "step_control": True,
    },
    "corrected": {
        "policy": "deadline", "estimator": "memory", "late": "remember",
        "code": "owner-corrected", "partition": "single-class",
    },
}  # fmt: skip


def curve(**line) -> Curve:
    partition = {"partition": "dirichlet", "alpha": 0.5}
    if line.get("partition") == "single-class":
        partition = {}
    return Curve(**{**partition, **SHARING, **line})


@pytest.fixture(scope="module")
def trained(blobs):
    """Every line in one block: those with fewer ticks drop out on the way."""
    curves = [curve(**line) for line in LINES.values()]
    return batched.simulate_block(
        blobs, curves, **SIZES, n_rounds=POINTS, runs=[0, 5], timing=TIMING
    )


@pytest.mark.parametrize("name", LINES)
def test_the_engine_is_the_plain_loop(blobs, trained, name):
    k = list(LINES).index(name)
    found = trained[1]
    wanted = clocked.train(blobs, curve(**LINES[name]), TIMING, **SIZES, n_points=POINTS, run=5)
    assert found.ticks[k].tolist() == wanted["ticks"]
    assert found.correct[k].tolist() == wanted["correct"]
    assert found.second_moment[k] == pytest.approx(wanted["second_moment"][:-1], rel=2e-3)
    assert found.reached[k] == wanted["reached"]
    assert found.ticks[k, -1] > 5


SMALL = {
    "clients": 4, "class_size": 5, "rounds": 6, "runs": 2, "test_size": 100, "learning_rate": 0.3,
    "clock": {
        "seconds": 20, "target": 0.4, "delays": "exponential", "rate": [400.0, 200.0, 100.0, 60.0],
        "link": 0.3, "multiply_adds": 20.0, "away": {"share": 0.2, "seconds": 2.0},
    },
    "grid": [
        {"partition": "dirichlet", "alpha": 0.5, "policy": ["all", "fastest:2"], "work": "sized",
         "deadline": 1.0, "estimator": "responder_average"},
        {"partition": "dirichlet", "alpha": 0.5, "policy": "deadline", "late": "remember",
         "deadline": 1.0, "work": "fits"},
    ],
}  # fmt: skip


def test_a_line_may_be_without_the_absences_of_the_clock():
    """Its ticks are those of a clock under which nobody is away; the others' are not."""
    held, classes = np.full(4, 5), np.zeros(4, int)
    line = curve(policy="deadline", deadline=1.0, away=False)
    away = replace(TIMING, away=timing.Away(0.5, 3.0))

    def ends(line, clock):
        of = timelines.of_clock(line, clock, held, classes, 20.0, seed=3, run=0)
        return of.ticks.ends

    assert np.array_equal(ends(line, away), ends(replace(line, away=True), TIMING))
    assert not np.array_equal(ends(line, away), ends(replace(line, away=True), away))


def test_a_study_with_a_clock_has_its_results_on_seconds(tmp_path, capsys):
    study = fc.simulate.study("small", **SMALL)
    found = fc.simulate.run(study, out=tmp_path / "small", workers=1)
    seconds = np.array(found.curves["seconds"]).reshape(3, 7)
    assert (seconds == np.linspace(0, 20, 7)).all()
    ticks = np.array(found.curves["ticks_mean"]).reshape(3, 7)
    assert (np.diff(ticks) >= 0).all()
    assert ticks[:, -1].min() > 3
    times = pyarrow.parquet.read_table(tmp_path / "small" / "times.parquet").to_pylist()
    folder = Folder(tmp_path / "small")
    runs = np.stack([folder.read_run(r, study.digest).reached for r in range(2)])
    order = {curve.key: k for k, curve in enumerate(study.curves)}
    for row in times:
        assert row["reached"] == np.isfinite(runs[:, order[row["curve"]]]).sum()
    reported = write_report(folder)
    json.dumps(reported, allow_nan=False)
    terminal.print_lines(reported["lines"], METRICS["accuracy"])
    shown = capsys.readouterr().out
    assert "Accuracy after 20 s" in shown
    assert "s to 0.4" in shown
    page = (tmp_path / "small" / "report.html").read_text()
    assert "Seconds to an accuracy of 0.4" in page
    assert "20 seconds by the clock" in page
    assert " reaches 0.4 first, in " in reported["summary"]["sentences"][0]
    assert found.runs["seconds_to_target"].to_numpy().tolist() == runs.ravel().tolist()


def test_a_line_without_a_tick_keeps_its_first_model(blobs):
    """As a short estimate of how long a study takes may have it."""
    lines = [curve(**LINES[name]) for name in ("all", "fedbuff", "chunk_warm")]
    short = replace(TIMING, seconds=0.5)
    found = batched.simulate_block(blobs, lines, **SIZES, n_rounds=3, runs=[0], timing=short)[0]
    assert found.ticks[[0, 2]].max() == 0
    assert (found.correct[[0, 2]] == found.correct[0, 0]).all()
    assert not found.marked().diverged.any()
    study = fc.simulate.study("small", **SMALL)
    assert estimate.seconds(study, 2, 1, at_most=0.0) > 0


@pytest.mark.parametrize(("metric", "target"), [("r2", 0.3), ("mse", 0.9)])
def test_a_target_is_one_of_the_main_metric(tmp_path, metric, target):
    """Known at the recorded times: for a loss without classes, and where lower is better."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    y = x @ [0.9, 0.5, -0.3] + 0.2 * rng.normal(size=120)
    np.savez(tmp_path / "d.npz", x=x, y=y)
    study = fc.simulate.study(
        "numbers", data=str(tmp_path / "d.npz"), loss="squared", metrics=[metric],
        reading={"test_part": 0.5}, rounds=12, runs=2, clients=4, learning_rate=0.3,
        clock={**SMALL["clock"], "target": target},
        grid={"partition": "iid", "policy": "all", "estimator": "responder_average"},
    )  # fmt: skip
    found = fc.simulate.run(study, out=tmp_path / "out", workers=1)
    folder = Folder(tmp_path / "out")
    for run in range(2):
        result = folder.read_run(run, study.digest)
        values = result.measures[0, :, 0]
        good = values >= target if metric == "r2" else values <= target
        assert 0 < np.argmax(good) < 13
        assert result.reached[0] == pytest.approx(20 * np.argmax(good) / 12)
    assert found.runs["seconds_to_target"].to_numpy().max() <= 20
    write_report(folder)
    assert "Seconds to " in (tmp_path / "out" / "report.html").read_text()


def test_rates_are_chosen_by_the_time_to_the_target():
    rates = {**SMALL, "learning_rate": [1e-6, 0.3], "tune": True, "tune_runs": 1}
    found = fc.simulate.run(fc.simulate.study("tuned", **rates), workers=1)
    assert {curve.learning_rate for curve in found.study.curves} == {0.3}


def test_lines_alone_are_as_in_company(blobs):
    """Whoever drops out on the way, and whoever has the same ticks, changes nothing else."""
    some = [curve(**LINES[name]) for name in ("latest", "all", "fedbuff")]
    some.append(replace(some[0], learning_rate=0.1))
    together = batched.simulate_block(
        blobs, some, **SIZES, n_rounds=POINTS, runs=[5], timing=TIMING
    )[0]
    for k, one in enumerate(some):
        alone = batched.simulate_block(
            blobs, [one], **SIZES, n_rounds=POINTS, runs=[5], timing=TIMING
        )[0]
        assert together.correct[k].tolist() == alone.correct[0].tolist()
        assert together.second_moment[k] == pytest.approx(alone.second_moment[0], rel=1e-4)


def test_the_laws_p_is_how_often_clients_are_late_when_asked():
    """Estimated p converges to it: 400 s, 4.5 standard errors of both."""
    line = {"policy": "deadline", "deadline": 1.5, "estimator": "memory", "late": "remember"}
    held, timing = np.array([20, 8, 4, 2]), replace(TIMING, seconds=400.0)
    args = (timing, held, np.zeros(4, int), 20.0)
    law, guess = (
        timelines.of_clock(curve(**line, prob_from_law=known), *args, seed=1, run=0)
        for known in (True, False)
    )
    assert law.probs.shape == (4,)
    assert guess.probs.shape == guess.ticks.asked.shape
    n = law.ticks.asked.sum(axis=0)
    seen = 1 - law.ticks.on_time.sum(axis=0) / n
    sem = np.sqrt(np.maximum(seen * (1 - seen), 1 / n) * 2 / n)
    assert (abs(seen - law.probs) <= 4.5 * sem).all()
    assert np.allclose(guess.probs[-1], seen, rtol=0, atol=0.02)
    known = timelines.of_clock(curve(**line, assumed_prob=0.3), *args, seed=1, run=0)
    assert known.probs.tolist() == [0.3] * 4


def test_who_can_never_be_on_time_is_named_before_the_run(caplog):
    def checked(**line):
        grid = {"partition": "iid", "policy": "deadline", **line}
        study = fc.simulate.study("s", **{**SMALL, "grid": grid})
        feasible.check_fits(study, runner.study_data(study))

    with pytest.raises(
        StudyError, match=r"longer than what the link of client 1 takes, at least 0.3"
    ):
        checked(deadline=0.25)
    feasible._warn_once.cache_clear()
    with caplog.at_level("WARNING"):
        checked(deadline=1.0)
    assert (
        "leaves client 2, client 3, client 4 no chance to be on time: client 2 needs at"
        in caplog.text
    )
    checked(deadline=0.25, late="remember", estimator="memory")  # late answers count
    with pytest.raises(ArgumentError, match="at most the 4 clients"):
        checked(policy="fastest:5")
    with pytest.raises(StudyError, match="work must be full, mini or sized for scaffold"):
        checked(algorithm="scaffold", work="fits")


def test_a_training_without_a_tick_or_with_too_many_is_pointed_out(caplog):
    def checked(seconds, **clock):
        grid = {"partition": "iid", "policy": "deadline", "deadline": 1.5}
        given = {**SMALL["clock"], "seconds": seconds, **clock}
        study = fc.simulate.study("s", **{**SMALL, "clock": given, "grid": grid})
        feasible.check_fits(study, runner.study_data(study))

    feasible._warn_once.cache_clear()
    with caplog.at_level("WARNING"):
        checked(1.0)
    assert "a tick takes about 1.5 s, and seconds = 1 may end before the first" in caplog.text
    with pytest.raises(StudyError, match="room for at most 1000000 ticks, got 20"):
        checked(20, link=0.0, rate=1e12)
    with pytest.raises(StudyError, match=r"\[clock\]: rate must be one number or one per client"):
        checked(20, rate=[1.0, 2.0])
