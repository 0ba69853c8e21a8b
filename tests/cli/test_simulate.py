"""`fedcommons simulate` from the outside."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcommons.cli import simulate
from fedcommons.errors import ArgumentError, FedcommonsError
from fedcommons.simulate import cluster, estimate, runner, studies
from fedcommons.simulate.folder import Folder
from tests.cli.command import COMMAND, run

STUDY = """
name = "small"
dataset = "mine.npz"
clients = 3
class_size = 5
rounds = 3
runs = 2
[[grid]]
partition = "single-class"
p = [0.2, 0.5]
c = [0.0, 0.4]
d = 1
[[grid]]
partition = "single-class"
p = 0.5
algorithm = "fedavg"
model = "mlp"
local_steps = 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("simulate")
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    x = rng.random((60, 4)) + y[:, None]
    np.savez(path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    np.savez(path / "one.npz", x_train=x, y_train=0 * y, x_test=x, y_test=0 * y)
    np.savez(path / "far.npz", x_train=x, y_train=y * 10**12, x_test=x, y_test=y)
    holes = x.copy()
    holes[7, 1] = np.nan
    np.savez(path / "holes.npz", x_train=holes, y_train=y, x_test=x, y_test=y)
    (path / "study.toml").write_text(STUDY)
    (path / "my_nets.py").write_text(
        "from torch import nn\n"
        "def small(n_classes, input_shape):\n    return nn.Linear(*input_shape, n_classes)\n"
        "def wrong():\n    return nn.Linear(4, 5)\n"
    )
    return path


@pytest.fixture(scope="module")
def results(folder):
    result = run("simulate", "study.toml", "--out", "out", "--workers", "1", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "Accuracy after the last round" in result.stdout
    assert re.search(r"line +┃ +accuracy", result.stdout)
    assert "…" not in result.stdout  # no name is cut at 80 columns
    page = (folder / "out" / "report.html").read_text()
    assert str(folder) not in page  # nor is where the data are said
    assert "mine.npz" in page
    assert "Makkonen" not in page
    assert "2 runs in" in result.stdout
    return folder / "out"


def test_it_leaves_a_results_folder_like_reproduce(results):
    names = {path.name for path in results.iterdir()}
    assert {"run.json", "runs", "curves.parquet", "runs.parquet", "figures", "report.html"} <= names
    assert {path.name for path in (results / "figures").iterdir()} == {
        f"{model}-single-class.{kind}" for model in ("softmax", "mlp") for kind in ("png", "svg")
    }


def test_results_do_not_depend_on_workers_or_interruptions(folder, results):
    names = ("curves.parquet", "runs.parquet")
    before = {name: (results / name).read_bytes() for name in names}
    for arguments in (("--runs", "1"), ("--workers", "2", "--yes")):
        result = run("simulate", "study.toml", "--out", "again", *arguments, cwd=folder)
        assert result.returncode == 0, result.stderr
    assert {name: (folder / "again" / name).read_bytes() for name in names} == before
    assert run("report", "again", cwd=folder).returncode == 0


def test_the_example_runs(tmp_path):
    text = run("simulate", "--example").stdout
    assert text.startswith("# A study")
    for old, new in (("runs = 5", "runs = 1"), ("rounds = 20", "rounds = 2"),
                     ("test_size = 2000", "test_size = 100\ntune_runs = 1")):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "study.toml").write_text(text)
    result = run("simulate", "study.toml", "--json", "--workers", "1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    assert len(content["lines"]) == 24
    assert "largest learning_rate was the best of the list for" in result.stderr  # in two rounds
    record = json.loads((tmp_path / "results" / "mine" / "run.json").read_text())
    assert len(record["tuning"]) == 3 * 24
    assert sum(row["chosen"] for row in record["tuning"]) == 24
    assert record["study"]["pool"] == "tuned"


@pytest.mark.parametrize(
    ("change", "arguments", "code", "message"),
    [
        (("fedavg", "fedavgg"), (), 5, "algorithm must be one of"),
        (('"mlp"', '"my_nets:absent"'), (), 5, "model my_nets:absent cannot be imported"),
        (('"mlp"', '"no.such:net"'), (), 5, "model no.such:net cannot be imported"),
        (('"mlp"', '"my_nets:wrong"'), (), 5, "must give 3 scores for each example"),
        (('"mlp"', '"cnn"'), (), 5, "must have examples that are images"),
        (("clients = 3", "client = 3"), (), 5, "did you mean 'clients'?"),
        (("", ""), ("--data", "one.npz"), 3, "must have at least two classes, got one"),
        (("", ""), ("--data", "holes.npz"), 3, "got a missing value in example 7"),
        (("", ""), ("--data", "absent.npz"), 3, "absent.npz does not exist"),
        (("", ""), ("--cluster", "here"), 2, "cluster must be the address of a Dask scheduler"),
        (("", ""), ("--cluster", "local:0"), 2, "local:2 for two processes here, got 'local:0'"),
        (("", ""), ("--runs", "0"), 2, "runs must be an integer >= 1, got 0"),
        (("", ""), ("--workers", "0"), 2, "workers must be an integer >= 1, got 0"),
        (("", ""), ("--workers", "0", "--yes"), 2, "workers must be an integer >= 1, got 0"),
        (("", ""), ("--data", "far.npz"), 3, "labels must be numbers of classes"),
    ],
)
def test_mistakes_end_in_a_message_and_an_exit_code(folder, change, arguments, code, message):
    (folder / "wrong.toml").write_text(STUDY.replace(*change))
    result = run("simulate", "wrong.toml", "--out", "nothing", *arguments, cwd=folder)
    assert (result.returncode, "Traceback" in result.stderr) == (code, False), result.stderr
    assert message in result.stderr
    assert not (folder / "nothing").exists()


def test_without_a_study_it_says_so():
    result = run("simulate")
    assert result.returncode == 2
    assert "study must be given" in result.stderr


def test_a_module_beside_the_study_is_a_model(folder):
    (folder / "net.toml").write_text(STUDY.replace('"mlp"', '"my_nets:small"'))
    result = run("simulate", "net.toml", "--out", "net", "--workers", "1", cwd=folder)
    assert result.returncode == 0, result.stderr
    (folder / "my_nets.py").write_text((folder / "my_nets.py").read_text() + "\n# changed\n")
    again = run("simulate", "net.toml", "--out", "net", cwd=folder)
    assert again.returncode == 6  # another model, another study
    assert "holds the results of another study" in again.stderr


def test_diverged_runs_are_said(folder):
    (folder / "far.toml").write_text(STUDY.replace("runs = 2", "runs = 2\nlearning_rate = 1e38"))
    result = run("simulate", "far.toml", "--out", "far", "--workers", "1", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "2 of 2 runs of" in result.stderr
    assert "diverged" in result.stderr
    assert "Traceback" not in result.stderr


LONG = STUDY.replace("runs = 2", "runs = 50000000")


def test_a_study_of_hours_needs_yes_in_a_pipe(folder):
    (folder / "long.toml").write_text(LONG)
    result = run("simulate", "long.toml", "--out", "long", cwd=folder)
    assert result.returncode == 2
    assert "this study will take about" in result.stderr
    assert "give --yes to run it" in result.stderr
    assert not (folder / "long").exists()


@pytest.mark.parametrize("answer", [b"n\n", b"\x04", "Ctrl-C"], ids=["no", "no answer", "Ctrl-C"])
def test_on_a_terminal_a_study_of_hours_is_asked_about(folder, answer):
    (folder / "long.toml").write_text(LONG)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, "simulate", "long.toml", "--out", "asked"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b""
        while b"Run it?" not in said:
            said += os.read(ours, 1000)
        with contextlib.suppress(OSError):  # the end
            more = b"?"
            while more:
                if answer != "Ctrl-C":
                    os.write(ours, answer)
                else:  # one just before Python waits for a key is noticed with the next
                    process.send_signal(signal.SIGINT)
                while more and select.select([ours], [], [], 10)[0]:
                    more = os.read(ours, 1000)
                    said += more
    os.close(ours)
    assert process.returncode == 130
    assert b"Traceback" not in said
    if answer != b"n\n":
        assert said.endswith(b"\r\nfedcommons: interrupted\r\n"), said
    assert not (folder / "asked").exists()


TUNED = STUDY.replace("runs = 2", "runs = 2\ntune = true\nlearning_rate = [0.1, 0.5]")


def test_a_folder_that_cannot_take_the_results_is_refused_before_rates_are_tried(folder, results):
    (folder / "tuned.toml").write_text(TUNED)
    result = run("simulate", "tuned.toml", "--out", "out", "--yes", cwd=folder)
    assert (result.returncode, "Traceback" in result.stderr) == (6, False), result.stderr
    assert "holds the results of another study" in result.stderr
    assert not (folder / "out-tuning").exists()
    assert results.exists()


def test_finished_runs_of_a_tuned_study_are_not_estimated_again(folder, monkeypatch):
    (folder / "tuned.toml").write_text(TUNED)
    arguments = ("simulate", "tuned.toml", "--out", "tuned", "--workers", "1")
    first = run(*arguments, cwd=folder)
    assert first.returncode == 0, first.stderr
    blocks = []
    monkeypatch.setattr(
        simulate.estimate, "seconds", lambda study, n, workers, at_most: blocks.append(n) or 0.0
    )
    study = studies.load(folder / "tuned.toml")
    simulate._ask_if_long(study, Folder(folder / "tuned"), Folder(folder / "tuned-tuning"), 1)
    assert blocks == [0, 0]
    again = run(*arguments, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1].startswith("0 runs in")
    n_tried = len(list((folder / "tuned-tuning" / "runs").glob("*.npz")))
    (folder / "tuned.toml").write_text(TUNED.replace("tune = true", "tune = true\ntune_runs = 9"))
    more = run(*arguments, cwd=folder)  # of rates that were chosen by three runs
    assert more.returncode == 6, more.stderr
    assert "tune_runs must be 3, by which the rates in folder tuned were chosen" in more.stderr
    assert len(list((folder / "tuned-tuning" / "runs").glob("*.npz"))) == n_tried < 9


def test_whoever_says_yes_is_believed(monkeypatch):
    study = replace(studies.paper(), runs=3)
    asked = []
    monkeypatch.setattr(simulate.estimate, "seconds", lambda *a, **k: 7200.0)
    monkeypatch.setattr(simulate.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(simulate.typer, "confirm", lambda words: asked.append(words) or True)
    simulate._ask_if_long(study, Folder("nowhere"), Folder("nowhere-tuning"), 2)
    assert asked == ["fedcommons: this study will take about 2.0 hours with 2 processes. Run it?"]
    monkeypatch.setattr(simulate.estimate, "seconds", lambda *a, **k: 3599.0)
    simulate._ask_if_long(study, Folder("nowhere"), Folder("nowhere-tuning"), 2)
    assert len(asked) == 1


def one_line(study):
    return study.only_curves(set(study.curves[:1]))


def test_the_estimate_is_of_the_right_size(monkeypatch):
    study = replace(one_line(studies.paper()), rounds=100)
    spent = {1: 9.0}  # the first pays for imports; then 4 to set up, .25 a round
    monkeypatch.setattr(
        estimate, "_block_seconds", lambda study, rounds: spent.get(rounds, 4 + rounds / 4)
    )
    assert estimate.seconds(study, 7, 2, at_most=0) == (4 + 25) * 4
    assert estimate.seconds(study, 7, 2, at_most=1e9) == 9 * 100 * 4  # a bound is enough
    assert estimate.seconds(study, 0, 2, at_most=0) == 0
    assert estimate.seconds(replace(study, rounds=1), 7, 2, at_most=0) == 9 * 4
    assert estimate.in_words(60 * 60) == "60 minutes"


def grid_of(n, *, data=None, **more):
    rates = [k / n for k in range(1, n + 1)]
    table = {"partition": "iid", "learning_rate": rates, **more}
    return studies.parse({"name": "grid", "class_size": 5, "grid": [table]}, data=data)


def test_of_many_curves_some_are_timed_and_stand_for_all(monkeypatch):
    study = grid_of(400, algorithm=["fedavg", "coded_gd"], model=["mlp", "softmax"])
    timed = []

    def spent(study, rounds):  # of a block: 1 ms a curve, run and round; mlp ten times that
        timed.append(len(study.curves))
        work = sum(10 if curve.model == "mlp" else 1 for curve in study.curves)
        return 1e-3 * work * study.block_size * rounds

    monkeypatch.setattr(estimate, "_block_seconds", spent)
    found = estimate.seconds(study, 3, 1, at_most=0)
    assert found == pytest.approx(3 * 1e-3 * 400 * 2 * (10 + 1) * study.rounds, rel=0.05)
    assert timed[:3] == [4, 16, 64]
    assert max(timed) < 400


def test_a_block_of_many_curves_takes_no_longer_than_its_curves(folder):
    """Curves are put in order by their place: comparing each with each took minutes."""
    study = grid_of(6000, data=str(folder / "mine.npz"))
    study = replace(study, clients=2, rounds=1, class_size=1)
    results = runner.compute_block(study, 0)
    start = time.process_time()
    assert runner.compute_block(study, 0)[0].correct.shape == results[0].correct.shape
    # A fraction of a second on an idle machine, above 10 s where every pair is compared.
    assert time.process_time() - start < 4


def test_an_absurd_grid_is_refused_before_it_is_expanded(folder):
    values = [k / 1000 for k in range(1000)]
    listed = "".join(f"{key} = {values}\n" for key in ("p", "c", "learning_rate", "decay"))
    (folder / "absurd.toml").write_text(f'{STUDY}[[grid]]\npartition = "iid"\nd = 1\n{listed}')
    result = run("simulate", "absurd.toml", "--out", "absurd", cwd=folder)
    assert result.returncode == 5, result.stderr
    assert "a grid must have at most 100000 lines" in result.stderr
    assert "got 1000000000000" in result.stderr
    assert not (folder / "absurd").exists()


def test_the_estimate_is_of_the_rounds(folder):
    line = '[[grid]]\npartition = "iid"\np = 0.3\n'
    (folder / "rounds.toml").write_text(STUDY[: STUDY.index("[[grid]]")] + line)
    study = replace(studies.load(folder / "rounds.toml"), rounds=10**9)
    assert estimate.seconds(study, 1, 1, at_most=0) > 3600


CLUSTER = STUDY.replace("runs = 2", "runs = 60").replace("rounds = 3", "rounds = 60")


def test_a_cluster_gives_the_same_even_if_a_worker_is_killed(folder):
    pytest.importorskip("distributed")
    (folder / "many.toml").write_text(CLUSTER)
    here = run("simulate", "many.toml", "--out", "here", "--workers", "1", cwd=folder)
    assert here.returncode == 0, here.stderr
    process = subprocess.Popen(
        [COMMAND, "simulate", "many.toml", "--out", "there", "--cluster", "local:2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
    )  # fmt: skip
    deadline = time.monotonic() + 90
    killed = None
    while process.poll() is None and time.monotonic() < deadline:
        if killed is None and list((folder / "there" / "runs").glob("*.npz")):
            killed = kill_a_worker(process.pid)
        time.sleep(0.02)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 0, stderr
    assert killed is not None
    for name in ("curves.parquet", "runs.parquet"):
        assert (folder / "here" / name).read_bytes() == (folder / "there" / name).read_bytes()


def kill_a_worker(pid: int) -> int | None:
    """One of the processes that the command's cluster computes in: they are its children."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rsplit(")", 1)[1].split()
            words = (status.parent / "cmdline").read_bytes()
            if int(fields[1]) == pid and b"spawn_main" in words:
                worker = int(status.parent.name)
                os.kill(worker, signal.SIGKILL)
                return worker
    return None


def test_a_cluster_that_loses_its_scheduler_is_named():
    distributed = pytest.importorskip("distributed")
    there = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    )
    blocks = cluster.compute(slow_block, None, range(20), address=there.scheduler_address)
    next(blocks)
    there.close()
    with pytest.raises(FedcommonsError, match=r"the cluster lost its scheduler.* are kept"):
        list(blocks)


def slow_block(_study, block):
    time.sleep(0.2)
    return {block: None}


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"pip install 'fedcommons\[cluster\]'"):
        cluster.check("local:2")
