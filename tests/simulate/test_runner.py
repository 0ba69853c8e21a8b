"""A study gives the same numbers however it is run, and survives what happens to it."""

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

from fedcommons.errors import ResultsError
from fedcommons.simulate import runner, studies, tables
from fedcommons.simulate.folder import Folder

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
        folder.write_record(study, {})
        runner.run_study(study, folder, **options)
        tables.build(study, folder, n_test=105)
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
    assert [row["early_accuracy"] for row in mine] == pytest.approx(accuracy[:, 1:].mean(axis=1))
    theory = [row for row in table if row["figure"] == "two"]
    assert theory[0]["reduction_mean"] > 0
    assert np.isnan(rows[0]["type1_mean"])


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
        ({"version": 99}, "must be results of version 1, got 99"),
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
    deadline = time.monotonic() + 60
    while len(list((out / "runs").glob("*.npz"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
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
