"""A study is watched while it runs."""

import json
import shutil

import numpy as np
import pytest

from fedcommons.cli.watch import BARS, curve_of
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.so_far import SoFar
from tests.cli.command import run

SMALL = ("--rounds", "3", "--figure", "figure2", "--curves", "no sharing")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study of which two of five runs are finished."""
    out = tmp_path_factory.mktemp("watch") / "out"
    track = f"jsonl:{out.with_name('events.jsonl')}"
    arguments = ("--runs", "5", *SMALL, "--workers", "1", "--out", out, "--track", track)
    assert run("reproduce", *arguments).returncode == 0
    shutil.copytree(out, whole := out.with_name("whole"))
    for k in (1, 3, 4):
        (out / "runs" / f"{k:05d}.npz").unlink()
    return out, whole


def test_it_says_how_far_it_is_and_what_every_line_reached(folder):
    said = run("watch", folder[0]).stdout
    assert "paper: 2 of 5 runs" in said
    assert said.count("no sharing") == 3  # at each p
    assert "accuracy" in said
    assert "±" in said
    assert (
        "fedcommons: figure must be one of figure2, got x"
        in run("watch", folder[0], "--figure", "x").stderr
    )


def test_the_means_are_those_of_the_tables_when_it_is_over(folder):
    seen = SoFar.of(Folder(folder[1]))
    assert seen.look() == 5
    mean, _ = seen.means()
    table = Folder(folder[1]).read_table("curves.parquet")
    wanted = table["accuracy_mean"].to_numpy().reshape(len(seen.study.figures[0].lines), -1)
    place = {curve: k for k, curve in enumerate(seen.study.curves)}
    order = [place[line.curve] for line in seen.study.figures[0].lines]
    np.testing.assert_allclose(mean[order], wanted, rtol=1e-12)


def test_what_is_tracked_are_the_means_so_far_and_then_those_of_the_tables(folder):
    lines = folder[0].with_name("events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    so_far = [event for event in events if event["kind"] == "run"]
    assert [e["values"] for e in so_far if not e["of"]] == [
        {"finished": k, "wanted": 5} for k in range(6)
    ]
    of_rounds = [event for event in events if event["kind"] == "round"]
    table = Folder(folder[1]).read_table("curves.parquet")
    wanted = dict(zip(zip(table["p"].to_pylist(), table["round"].to_pylist(), strict=True),
                      table["accuracy_mean"].to_pylist(), strict=True))  # fmt: skip
    found = {(float(e["of"].rpartition("p=")[2]), e["step"]): e["values"] for e in of_rounds}
    assert {key: values["accuracy"] for key, values in found.items()} == pytest.approx(wanted)
    for e in so_far[-3:]:  # after the last run, at each p
        assert e["values"] == found[float(e["of"].rpartition("p=")[2]), 3]


def test_runs_that_finish_meanwhile_are_taken_up(folder, tmp_path):
    out, whole = folder
    shutil.copytree(out, copy := tmp_path / "copy")
    seen = SoFar.of(Folder(copy))
    assert seen.look() == 2
    shutil.copy(whole / "runs" / "00003.npz", copy / "runs")
    assert seen.look() == 3


def test_a_study_without_finished_runs_says_so(folder, tmp_path):
    shutil.copytree(folder[0], copy := tmp_path / "copy")
    shutil.rmtree(copy / "runs")
    assert "No run is finished yet." in run("watch", copy).stdout
    assert run("watch", tmp_path).returncode == 6  # no results folder


def test_curves_share_a_scale_and_what_is_lost_is_left_blank():
    everything = np.array([[0.0, 0.5, 1.0], [0.5, np.nan, np.nan]])
    assert curve_of(everything[0], everything) == BARS[0] + BARS[4] + BARS[7]
    assert curve_of(everything[1], everything) == BARS[4] + "  "
