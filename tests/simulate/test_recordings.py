"""Recorded absences: files, what a study makes of them, and what is wrong with them."""

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedcommons.errors import DataError, StudyError
from fedcommons.simulate import draws, recordings, runner, studies
from fedcommons.simulate.curves import Curve

RECORDED = np.array([[1, 1, 0, 1], [1, 0, 0, 1], [1, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1]], bool)
STUDY = """
name = "replay"
dataset = "blobs.npz"
clients = 4
class_size = 6
rounds = 3
runs = 2
[grid]
partition = "iid"
p = [0.2, 0.5]
p_spread = 0.1
c = 1.0
d = 2
code = ["equal-split", "reliability-split"]
stragglers = ["bernoulli", "recorded"]
trace = "TRACE"
"""


def as_csv(path):
    lines = [",".join(map(str, row)) for row in RECORDED.astype(int)]
    path.write_text("\n".join(lines) + "\n")


def as_words(path):
    lines = [", ".join(map(str, row)) for row in RECORDED]
    path.write_text("\n".join(["a,b,c,d", *lines]))


def as_npz(path):
    np.savez(path, answered=RECORDED.astype(np.uint8))


def as_table(path):
    parquet.write_table(pa.table({name: RECORDED[:, i] for i, name in enumerate("dcba")}), path)


def as_answers(path):
    """As a federation writes them; a site that is no part of a round has no row."""
    rows = [
        {"round": t + 1, "site": f"site-{i}", "answered": bool(there), "outcome": "x"}
        for t, row in enumerate(RECORDED)
        for i, there in reversed(list(enumerate(row)))
        if there or t != 1
    ]
    parquet.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture
def folder(tmp_path, blobs):
    np.savez(
        tmp_path / "blobs.npz",
        x_train=blobs.x_train, y_train=blobs.y_train, x_test=blobs.x_test, y_test=blobs.y_test,
    )  # fmt: skip
    as_csv(tmp_path / "absences.csv")
    return tmp_path


def load(folder, trace="absences.csv", text=STUDY):
    (folder / "study.toml").write_text(text.replace("TRACE", trace))
    return studies.load(folder / "study.toml")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.csv", as_csv), ("b.csv", as_words), ("c.npz", as_npz), ("d.parquet", as_table),
        ("answers.parquet", as_answers),
    ],
)  # fmt: skip
def test_every_kind_of_file_is_the_same_recording(tmp_path, name, write):
    path = str(tmp_path / name)
    write(tmp_path / name)
    trace = recordings.load(path, recordings.digest(path))
    assert np.array_equal(trace.mask, RECORDED)
    assert trace.random_start


def test_runs_play_the_recording_from_different_rounds(folder):
    study = load(folder)
    curve = next(c for c in study.curves if c.trace)
    p = 1 - RECORDED.mean(axis=0)
    assert np.allclose(curve.client_probs(4), p)
    assert np.allclose(curve.server_probs(4), p)
    assert curve.straggler_prob == pytest.approx(p.mean())
    starts = set()
    for run in range(40):
        played = draws.answered(curve, 7, 4, seed=0, run=run)
        start = next(
            s for s in range(5) if np.array_equal(played, RECORDED[(s + np.arange(7)) % 5])
        )
        starts.add(start)
    assert starts == set(range(5))
    assert np.allclose(replace(curve, assumed_prob=0.3).server_probs(4), 0.3)


def test_a_recording_has_its_own_figure_and_no_p_of_its_own(folder):
    study = load(folder)
    assert [f.title for f in study.figures] == [
        "softmax, iid",
        "softmax, iid, absences of absences.csv",
    ]
    assert [len(f.lines) for f in study.figures] == [4, 2]
    played = [line.curve for line in study.figures[1].lines]
    assert {c.prob_spread for c in played} == {0.0}
    assert not any(c.in_example_space for c in played)
    assert played[0].as_row()["trace"] == "absences.csv"
    results = runner.compute_block(study, 0)
    assert all(np.isfinite(result.second_moment).all() for result in results.values())


def test_recordings_of_one_name_are_told_apart_by_their_folders(folder):
    text = STUDY.replace('"TRACE"', '["absences.csv", "a/t.csv", "A/t.csv"]')
    for name, turn in (("a", 1), ("A", 2)):
        (folder / name).mkdir()
        as_csv(folder / name / "t.csv")
        lines = (folder / name / "t.csv").read_text().splitlines(keepends=True)
        (folder / name / "t.csv").write_text("".join(lines[turn:] + lines[1:turn]))
    figures = [f for f in load(folder, text=text).figures if f.lines[0].curve.trace]
    ends = [f.title.split("absences of ")[1] for f in figures]
    assert ends == ["absences.csv", "a/t.csv", "A/t.csv"]
    assert len({f.name for f in figures}) == 3


def test_the_content_is_part_of_the_digest_and_the_place_is_not(folder):
    study = load(folder)
    (folder / "elsewhere").mkdir()
    as_csv(folder / "elsewhere" / "other.csv")
    assert load(folder, "elsewhere/other.csv").digest == study.digest
    (folder / "absences.csv").write_text("1,1,0,1\n0,0,1,0\n")
    assert load(folder).digest != study.digest
    recordings.load.cache_clear()  # as in another process
    with pytest.raises(DataError, match="it has changed"):
        runner.compute_block(study, 0)


def test_results_can_be_read_without_the_file(folder):
    study = load(folder)
    (folder / "absences.csv").unlink()
    assert studies.from_dict(json.loads(json.dumps(study.as_dict()))) == study


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("", "must have at least one round and one client"),
        ("1,0,1,1\n1,2,1,1\n", "must be of 0 and 1, or false and true, got '2' in round 2"),
        ("1,0,1,1\n1,1\n", "as many clients in every round: 4 in the first, 2 in round 2"),
        ("1,0,1,1\n1,0,1,0\n", "client 2 of the recording never does"),
    ],
)
def test_bad_recordings_are_named(folder, content, message):
    path = folder / "absences.csv"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=re.escape(message)):
        load(folder)


def test_bad_containers_are_named(folder):
    np.savez(folder / "a.npz", other=RECORDED)
    np.savez(folder / "b.npz", answered=RECORDED * 0.5)
    (folder / "c.parquet").write_bytes(b"no")
    parquet.write_table(pa.table({"a": ["yes"]}), folder / "d.parquet")
    (folder / "e.txt").write_text("1")
    for name, message in (
        ("a.npz", "must hold the arrays"),
        ("b.npz", "must be of 0 and 1"),
        ("c.parquet", "cannot be read as Parquet"),
        ("d.parquet", "must be of 0 and 1"),
        ("e.txt", "must be a file of the kind .csv, .npz, .parquet"),
    ):
        with pytest.raises(DataError, match=message):
            load(folder, name)


def test_a_recording_of_other_clients_is_refused(folder):
    with pytest.raises(StudyError, match="clients must be the 4 of the trace"):
        load(folder, text=STUDY.replace("clients = 4", "clients = 5"))
    with pytest.raises(StudyError, match="trace must be given for the recorded stragglers"):
        load(folder, text=STUDY.replace('trace = "TRACE"', ""))


def test_curves_without_a_recording_keep_their_keys():
    assert "trace" not in Curve("iid").key
