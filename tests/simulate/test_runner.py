"""A study gives the same numbers however it is run, and survives what happens to it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from fedcommons.datasets import Dataset
from fedcommons.errors import DataError, ResultsError, StudyError
from fedcommons.simulate import feasible, run_summaries, runner, studies, tables
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Line
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.result import THEORY, RunResult

STUDY = """
name = "small"
dataset = "blobs.npz"
clients = 4
class_size = 6
rounds = 4
runs = 5
[[figure]]
name = "one"
kind = "curves"
partition = "single-class"
p = [0.3, 0.6]
curves = [
    { label = "no sharing" },
    { label = "shared", c = 0.5, d = 2 },
    { label = "memory", c = 0.5, d = 2, estimator = "memory", code = "owner-corrected" },
]
[[figure]]
name = "two"
kind = "second-moment"
partition = "dirichlet"
alpha = 0.3
p = 0.5
curves = [{ label = "(0.5, 2)", c = 0.5, d = 2 }]
"""
COMMAND = Path(sys.executable).parent / "fedcommons"


@pytest.fixture
def study(tmp_path, blobs):
    np.savez(
        tmp_path / "blobs.npz",
        x_train=blobs.x_train, y_train=blobs.y_train, x_test=blobs.x_test, y_test=blobs.y_test,
    )  # fmt: skip
    (tmp_path / "study.toml").write_text(STUDY)
    return studies.load(tmp_path / "study.toml")


def run(study, path, **options) -> Folder:
    folder = Folder(path)
    with folder.opened(study):
        folder.begin(study, {})
        runner.run_study(study, folder, **options)
        tables.build(study, folder, runner.study_data(study))
    return folder


def contents(folder: Folder) -> dict[str, bytes]:
    return {name: (folder.path / name).read_bytes() for name in ("curves.parquet", "runs.parquet")}


@pytest.fixture
def reference(study, tmp_path):
    return contents(run(study, tmp_path / "reference", workers=1))


def test_workers_do_not_matter(study, tmp_path, reference):
    assert contents(run(study, tmp_path / "two", workers=2)) == reference


def test_interruption_and_resumption_do_not_matter(study, tmp_path, reference):
    run(replace(study, runs=2), tmp_path / "r", workers=1)
    seen = []
    folder = run(study, tmp_path / "r", workers=1, on_progress=lambda a, b: seen.append((a, b)))
    assert seen == [(2, 5), (3, 5), (4, 5), (5, 5)]
    assert contents(folder) == reference


@pytest.mark.usefixtures("reference")
def test_order_of_figures_and_curves_does_not_matter(study, tmp_path):
    lines = study.figures[0].lines
    turned = replace(
        study, figures=(study.figures[1], replace(study.figures[0], lines=lines[::-1]))
    )
    assert turned.digest == study.digest
    folder = run(turned, tmp_path / "turned", workers=1)
    rows = {
        name: pyarrow.parquet.read_table(path / "curves.parquet")
        .sort_by([("figure", "ascending"), ("label", "ascending"), ("p", "ascending"),
                  ("round", "ascending")])
        for name, path in (("a", folder.path), ("b", tmp_path / "reference"))
    }  # fmt: skip
    a, b = rows["a"], rows["b"]
    for name in a.column_names:
        if a[name].type == "double":
            assert np.array_equal(a[name].to_numpy(), b[name].to_numpy(), equal_nan=True), name
        else:
            assert a[name].equals(b[name])


def test_the_seed_changes_every_curve(study, tmp_path):
    a, b = (
        run(replace(study, seed=seed, runs=1), tmp_path / str(seed), workers=1).read_run(
            0, replace(study, seed=seed).digest
        )
        for seed in (0, 1)
    )
    for name in ("gradient_norm2", "second_moment_exact"):
        assert (getattr(a, name) != getattr(b, name)).all()


def test_tables_are_means_and_standard_errors_over_the_runs(study, tmp_path):
    folder = run(study, tmp_path / "r", workers=1)
    results = [folder.read_run(k, study.digest) for k in range(5)]
    table = folder.read_table("curves.parquet").to_pylist()
    assert len(table) == (6 + 1) * 5
    place = {curve: k for k, curve in enumerate(study.curves)}
    line = study.figures[0].lines[3]  # shared, p = 0.6
    accuracy = np.array([r.correct[place[line.curve]] / 105 for r in results])
    moments = np.array([r.second_moment_exact[place[line.curve]] for r in results])
    rows = [row for row in table if row["label"] == "shared" and row["p"] == 0.6]
    for t, row in enumerate(rows):
        assert (row["round"], row["setting"], row["c"], row["d"]) == (t, "single-class", 0.5, 2)
        assert row["accuracy_mean"] == pytest.approx(accuracy[:, t].mean())
        assert row["accuracy_sem"] == pytest.approx(accuracy[:, t].std(ddof=1) / np.sqrt(5))
        if t < 4:
            mean, sem = moments[:, t].mean(), moments[:, t].std(ddof=1) / np.sqrt(5)
            assert row["second_moment_exact_mean"] == pytest.approx(mean)
            assert row["second_moment_exact_sem"] == pytest.approx(sem)
    assert np.isnan(rows[4]["second_moment_mean"])
    per_run = folder.read_table("runs.parquet").to_pylist()
    assert len(per_run) == 5 * len(study.curves)
    mine = [row for row in per_run if row["curve"] == line.curve.key]
    assert [row["final_accuracy"] for row in mine] == pytest.approx(accuracy[:, -1])
    assert np.isnan(mine[0]["early_accuracy"])  # only 4 rounds
    theory = [row for row in table if row["figure"] == "two"]
    assert theory[0]["reduction_mean"] > 0
    assert np.isnan(rows[0]["type1_mean"])


def test_summaries_are_of_the_rounds_that_they_name():
    rng = np.random.default_rng(0)
    T, K = 30, len(THEORY)
    accuracy = rng.random((2, T + 1))
    theory = np.abs(rng.random((2, T, K)))
    column = {name: k for k, name in enumerate(THEORY)}
    theory[:, :, column["reduction"]] = 2
    theory[:, :, column["type2"]] = -1 - np.arange(T)
    theory[1, [3, 8], column["reduction"]] = -1  # below both bounds
    theory[1, 8, column["remark_margin"]] = -1  # where the Remark's premise fails
    theory[1, 5, column["mixed_margin"]] = -0.1
    theory[1, 6, column["shared_margin"]] = -0.1
    theory[1, 7, column["type1"]] = 0
    theory[1, 9, column["type2"]] = 0
    values = rng.random((6, 2, T))
    result = RunResult(np.zeros((2, T + 1), np.int32), *values[:4], np.zeros((2, 3)), theory)
    found = run_summaries.summaries(accuracy, result)
    assert set(found) == set(run_summaries.SUMMARIES)
    assert found["early_accuracy"] == pytest.approx(accuracy[:, 1:21].mean(axis=1))
    assert found["accuracy_10"] == pytest.approx(accuracy[:, 10])
    assert found["accuracy_20"] == pytest.approx(accuracy[:, 20])
    assert found["final_accuracy"] == pytest.approx(accuracy[:, 30])
    assert found["early_moment"] == pytest.approx(values[0][:, :20].mean(axis=1))
    assert found["initial_moment_exact"] == pytest.approx(values[1][:, 0])
    assert found["projection"] == pytest.approx(values[3].mean(axis=1))
    assert found["moment_ratio"] == pytest.approx((values[0] / values[1]).mean(axis=1))
    for name, count in (
        ("theorem2_violations", 2),
        ("assumption1_violations", 2),
        ("remark_violations", 1),
        ("remark_bound_violations", 1),
        ("type1_not_positive", 1),
        ("type2_not_negative", 1),
    ):
        assert found[name].tolist() == [0, count], name
    assert found["type2_first"].tolist() == [-1, -1]
    assert found["type2_last"].tolist() == [-T, -T]
    short = run_summaries.summaries(accuracy[:, :6], result)
    for name in ("early_accuracy", "accuracy_10", "accuracy_20", "early_moment"):
        assert np.isnan(short[name]).all()


def test_runs_of_another_study_are_neither_read_nor_replaced(study, tmp_path):
    folder = run(replace(study, runs=1), tmp_path / "r", workers=1)
    with pytest.raises(ResultsError, match="belongs to another study"):
        folder.read_run(0, "other")
    (folder.path / "run.json").unlink()
    for name in ("curves.parquet", "runs.parquet"):
        (folder.path / name).unlink()
    before = (folder.runs / "00000.npz").read_bytes()
    with pytest.raises(ResultsError, match=r"must be empty or a results folder with its run.json"):
        run(replace(study, seed=7), tmp_path / "r", workers=1)
    assert (folder.runs / "00000.npz").read_bytes() == before


def test_invocations_add_up(study, tmp_path):
    folder = Folder(tmp_path / "r")
    for seconds in (3.0, 4.0):
        with folder.opened(study):
            folder.begin(study, {"command": "x"})
            folder.finish(study, seconds=seconds, fresh_runs=2)
    record = folder.record()
    assert record["seconds"] == 7.0
    assert [s["seconds"] for s in record["invocations"]] == [3.0, 4.0]


def test_a_study_that_its_data_cannot_feed_is_refused_before_anything_is_written(study, blobs):
    with pytest.raises(StudyError, match="at most the 40 training examples of the smallest class"):
        feasible.check_fits(replace(study, class_size=41), blobs)
    gap = Dataset(
        "gap", blobs.x_train, blobs.y_train + (blobs.y_train > 0), blobs.x_test, blobs.y_test
    )
    with pytest.raises(DataError, match="every class from 0 to 3, got none of class 1"):
        feasible.check_fits(study, gap)
    empty = Dataset("x", blobs.x_train, blobs.y_train, blobs.x_test[:0], blobs.y_test[:0])
    with pytest.raises(StudyError, match=r"must have test examples, got none; say which they are"):
        feasible.check_fits(study, empty)
    with pytest.raises(StudyError, match="tune must have a class with at least 6 training"):
        feasible.check_fits(replace(study, pool="tuning"), empty)


def test_a_study_that_would_not_fit_into_memory_is_refused(study, blobs, monkeypatch):
    one = Curve("iid", straggler_prob=0.3, model="mlp")
    lines = tuple(Line(name, replace(one, estimator=name)) for name in ("coded_sum", "memory"))
    figure = replace(study.figures[0], kind="curves", lines=lines)
    study = replace(study, figures=(figure,))
    # 643 parameters of 4 bytes for 4 clients, in each run of a block, for one of the two lines.
    needed = 643 * 4 * 4 * study.block_size
    sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": needed}
    monkeypatch.setattr(runner.os, "sysconf", sizes.get)
    feasible.check_fits(study, blobs)
    sizes["SC_PHYS_PAGES"] -= 1
    with pytest.raises(StudyError, match="model mlp must leave room in memory: with 643"):
        feasible.check_fits(study, blobs)
    feasible.check_fits(replace(study, figures=(replace(figure, lines=lines[:1]),)), blobs)


def test_examples_and_rounds_that_would_not_fit_into_memory_are_refused(study, blobs):
    feasible.check_fits(study, blobs)
    with pytest.raises(StudyError, match=r"a run must leave room in memory: with .* 1000000000 r"):
        feasible.check_fits(replace(study, rounds=10**9), blobs)


@pytest.mark.usefixtures("study")
def test_workers_end_with_their_parent(tmp_path):
    (tmp_path / "many.toml").write_text(STUDY.replace("runs = 5", "runs = 100000"))
    process = subprocess.Popen(
        [COMMAND, "reproduce", "--study", tmp_path / "many.toml", "--out", tmp_path / "out"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    wait_for_runs(tmp_path / "out", 5)
    workers = children_of(process.pid)
    assert workers
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def children_of(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == pid:
                found.append(int(status.parent.name))
    return found


def wait_for_runs(out: Path, n: int) -> None:
    deadline = time.monotonic() + 60
    while len(list((out / "runs").glob("*.npz"))) < n and time.monotonic() < deadline:
        time.sleep(0.05)


def test_a_damaged_run_is_done_again(study, tmp_path, reference):
    folder = run(study, tmp_path / "r", workers=1)
    for k, damage in ((1, b""), (3, b"PK garbage")):
        (folder.runs / f"{k:05d}.npz").write_bytes(damage)
    assert contents(run(study, tmp_path / "r", workers=1)) == reference


def test_foreign_folders_are_refused(study, tmp_path):
    run(replace(study, runs=1), tmp_path / "r", workers=1)
    with pytest.raises(ResultsError, match="holds the results of another study"):
        run(replace(study, seed=5, runs=1), tmp_path / "r")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").write_text("mine")
    with pytest.raises(ResultsError, match="must be empty or a results folder"):
        run(study, tmp_path / "full")
    assert (tmp_path / "full" / "diary.txt").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="cannot be written"):
        run(study, tmp_path / "file" / "r")
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    for change, message in (
        ({"version": 99}, "must be results of version 2, got 99"),
        ({"format": "x"}, "is not a record of fedcommons results"),
    ):
        (tmp_path / "r" / "run.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(ResultsError, match=message):
            run(study, tmp_path / "r")
    (tmp_path / "r" / "run.json").write_text("{")
    with pytest.raises(ResultsError, match=r"run.json cannot be read"):
        run(study, tmp_path / "r")


def test_two_processes_do_not_share_a_folder(study, tmp_path):
    one = Folder(tmp_path / "r").opened(study)
    with one, pytest.raises(ResultsError, match="is in use by another process"):
        run(study, tmp_path / "r")


@pytest.mark.usefixtures("study")
def test_ctrl_c_leaves_a_folder_that_goes_on(tmp_path):
    many = STUDY.replace("runs = 5", "runs = 100000")
    (tmp_path / "many.toml").write_text(many)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [COMMAND, "reproduce", "--study", tmp_path / "many.toml", "--out", out],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_for_runs(out, 5)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    done = len(list((out / "runs").glob("*.npz")))
    assert done >= 5
    assert not list((out / "runs").glob("*.part*"))
    again = subprocess.run(
        [COMMAND, "reproduce", "--study", tmp_path / "many.toml", "--out", out, "--runs", "5"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "0 runs in" in again.stdout
