import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet
import pytest

from fedcommons.cli import terminal
from tests.cli.command import COMMAND, run, started

SMALL = (
    "--runs",
    "2",
    "--rounds",
    "3",
    "--figure",
    "figure3",
    "--figure",
    "fixed-dc",
    "--workers",
    "1",
)


def test_the_module_is_the_command():
    module = [sys.executable, "-m", "fedcommons", "--version"]
    said = subprocess.run(module, capture_output=True, text=True, check=False)
    assert said.returncode == 0
    assert said.stdout == started("--version").stdout != ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small reproduction, run once."""
    out = tmp_path_factory.mktemp("cli") / "out"
    result = started("reproduce", *SMALL, "--out", out)
    assert result.returncode == 0, result.stderr
    assert "2 runs in" in result.stdout
    assert len(result.stdout.splitlines()) < 24  # a screenful
    assert re.search(r"claims?, from 2 runs: .*undecided", result.stdout)
    assert str(out / "report.html") in result.stdout
    assert result.stderr == ""  # no progress bar in a pipe
    return out


def test_reproduce_leaves_a_complete_results_folder(folder):
    table = pyarrow.parquet.read_table(folder / "curves.parquet")
    wanted = {
        "figure", "setting", "alpha", "p", "c", "d", "estimator", "round", "accuracy_mean",
        "accuracy_sem", "second_moment_mean", "second_moment_sem", "second_moment_exact_mean",
        "runs",
    }  # fmt: skip
    assert wanted <= set(table.column_names)
    assert set(table["figure"].to_pylist()) == {"figure3", "fixed-dc"}
    record = json.loads((folder / "run.json").read_text())
    assert record["complete"]
    assert record["study"]["rounds"] == 3
    assert {"versions", "machine", "commit", "seconds", "command", "digest"} <= set(record)
    claims = json.loads((folder / "claims.json").read_text())
    assert {claim["id"] for claim in claims["claims"]} >= {"type1-positive", "fixed-dc-bound"}
    for name in ("figure3", "fixed-dc"):
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in (folder / "figures" / f"{name}.svg").read_text()
    assert "</html>" in (folder / "report.html").read_text(encoding="utf-8")


def test_giving_the_command_again_runs_nothing_and_changes_nothing(folder):
    names = ("curves.parquet", "claims.json", "figures/figure3.svg", "figures/figure3.png")
    before = {name: (folder / name).read_bytes() for name in names}
    result = run("reproduce", *SMALL, "--out", folder)
    assert "0 runs in" in result.stdout
    assert {name: (folder / name).read_bytes() for name in names} == before


def test_report_redraws_everything_from_the_tables(folder):
    names = ("claims.json", "report.html", "figures/fixed-dc.svg", "figures/fixed-dc.png")
    before = {name: (folder / name).read_bytes() for name in names}
    for name in names:
        (folder / name).unlink()
    runs = folder / "runs"
    runs.rename(folder.parent / "hidden")  # the tables are enough
    try:
        result = run("report", folder, "--json")
    finally:
        (folder.parent / "hidden").rename(runs)
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    assert content["claims"] == json.loads(before["claims.json"])["claims"]
    assert [line["figure"] for line in content["lines"]] == ["figure3"] * 2 + ["fixed-dc"] * 3
    assert {name: (folder / name).read_bytes() for name in names} == before


def test_every_claim_can_be_printed(folder):
    said = run("report", folder, "--claims").stdout
    words = " ".join(re.sub(r"[│\s]+", " ", said).split())
    assert "Statistic: sum over pairs of the same class" in words


def test_json_and_the_seed(tmp_path):
    three, four = (
        json.loads(
            run(
                "reproduce", "--runs", "1", "--rounds", "2", "--figure", "figure3",
                "--seed", seed, "--out", tmp_path / seed, "--json",
            ).stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON")
        )
        for seed in ("3", "4")
    )  # fmt: skip
    assert three["lines"] != four["lines"]
    text = (tmp_path / "3" / "claims.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_study_of_ones_own_data_on_the_other_engine(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 10)
    x = rng.random((30, 4)) + y[:, None]
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    (tmp_path / "study.toml").write_text(
        """
        name = "mine"
        dataset = "mine.npz"
        engine = "plain"
        clients = 3
        class_size = 5
        rounds = 2
        runs = 2
        [[figure]]
        name = "all"
        kind = "curves"
        partition = "single-class"
        p = 0.4
        curves = [{ label = "shared", c = 0.4, d = 1 }]
        [[figure]]
        name = "het"
        kind = "heterogeneity"
        partition = "single-class"
        curves = [{ label = "shared", c = 0.4, d = 1 }]
        [[figure]]
        name = "grid"
        kind = "grid"
        partition = "single-class"
        curves = [{ label = "grid", c = [0.2, 0.4], d = [1, 2] }]
        """
    )
    result = run("reproduce", "--study", "study.toml", "--runs", "1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "1 run in" in result.stdout
    out = tmp_path / "results" / "mine"  # by the study's name, never among the paper's
    assert {f.stem for f in (out / "figures").iterdir()} == {"all", "het", "grid"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--runs", "0"), 2, "fedcommons: runs must be an integer >= 1, got 0"),
        (("--rounds", "-2"), 2, "fedcommons: rounds must be an integer >= 1, got -2"),
        (("--seed", "-1"), 2, "fedcommons: seed must be an integer >= 0, got -1"),
        (("--workers", "0"), 2, "fedcommons: workers must be an integer >= 1, got 0"),
        (("--figure", "figure7"), 2, "figure must be one of figure1, figure2"),
        (("--curves", "nobody"), 2, "curves must be among"),
        (("--study", "absent.toml"), 5, "study absent.toml cannot be read"),
        (("--out", "/proc/nowhere"), 6, "folder /proc/nowhere cannot be written"),
        (("--runs", "many"), 2, "not a valid int"),
        (("--nonsense",), 2, "No such option"),
    ],
)
def test_mistakes_end_in_a_message_and_an_exit_code(tmp_path, arguments, code, message):
    result = run("reproduce", *arguments, cwd=tmp_path)
    assert (result.returncode, "Traceback" in result.stderr) == (code, False), result.stderr
    assert message in result.stderr


def test_damaged_results_are_named(folder, tmp_path):
    result = run("report", tmp_path)
    assert result.returncode == 6
    assert "is not a results folder" in result.stderr
    for name, content in (("curves.parquet", b"PAR1"), ("runs.parquet", b""), ("run.json", b"{")):
        original = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        result = run("report", folder)
        (folder / name).write_bytes(original)
        assert result.returncode == 6
        assert f"{name} cannot be read" in result.stderr
        assert "Traceback" not in result.stderr


def test_a_report_counts_the_runs_of_its_tables(folder, tmp_path):
    # As after a longer study was begun and interrupted: run.json says more than the tables hold.
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    record = json.loads((copy / "run.json").read_text())
    record["study"]["runs"] = 60
    (copy / "run.json").write_text(json.dumps(record))
    assert json.loads(run("report", copy, "--json").stdout)["runs"] == 2
    record["study"]["figures"][0]["name"] = "renamed"
    (copy / "run.json").write_text(json.dumps(record))
    result = run("report", copy)
    assert result.returncode == 6
    assert "curves.parquet must hold every line of run.json's figures" in result.stderr


def test_another_seed_does_not_overwrite_results(folder):
    before = (folder / "curves.parquet").read_bytes()
    result = run("reproduce", *SMALL, "--seed", "9", "--out", folder)
    assert result.returncode == 6
    assert "holds the results of another study" in result.stderr
    assert (folder / "curves.parquet").read_bytes() == before


def main(before: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that does something else first."""
    code = f"import sys\nsys.argv = ['fedcommons', *{arguments!r}]\n{before}\n"
    code += "from fedcommons.cli.app import main\nmain()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_ctrl_c_while_it_starts_ends_in_a_message():
    stop = """
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "fedcommons.cli.commands":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
"""
    result = main(stop, "--version")
    assert (result.returncode, result.stderr) == (130, "fedcommons: interrupted\n")


def test_ctrl_c_during_a_report_ends_in_a_message():
    stop = """
import fedcommons.figures.report
def interrupted(folder):
    raise KeyboardInterrupt
fedcommons.figures.report.write_report = interrupted
"""
    result = main(stop, "report", "anywhere")
    assert (result.returncode, result.stderr) == (130, "fedcommons: interrupted\n")


def test_being_told_to_end_keeps_the_finished_runs(tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        [COMMAND, "reproduce", "--runs", "5000", "--rounds", "2", "--figure", "figure3",
         "--out", out],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list((out / "runs").glob("*.npz")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "interrupted; the finished runs are kept" in stderr
    assert "Traceback" not in stderr
    assert list((out / "runs").glob("*.npz"))


def test_on_a_terminal_there_is_a_bar_with_the_time_left(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "reproduce", "--runs", "6", "--rounds", "2", "--figure", "figure3", "--out",
         tmp_path / "out"],
        stdout=subprocess.DEVNULL, stderr=theirs,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # what reading a terminal that nobody holds any more ends in
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait() == 0
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "2 curves x 2 rounds, runs" in words
    assert "6/6" in words
    assert re.search(r"left \d:\d\d:\d\d", words)


def test_what_diverged_is_named_by_its_figure(capsys):
    line = {"label": "shared", "p": 0.5, "runs": 3, "diverged": 2}
    terminal.say_diverged([{**line, "figure": name} for name in ("mlp", "cnn")])
    said = capsys.readouterr().err.splitlines()
    assert len(set(said)) == 2
    assert said[0] == (
        "fedcommons: 2 of 3 runs of shared at p = 0.5 in mlp diverged and are left out of its means"
    )


def test_help_shows_an_example_and_the_exit_codes():
    for command in ("reproduce", "report"):
        assert f"Example: fedcommons {command}" in run(command, "--help").stdout
    assert "Exit codes" in run("--help").stdout
    assert run("--version").stdout.startswith("fedcommons 0.")
