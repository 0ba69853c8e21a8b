"""Three apps as Flower's users have them, and the few lines with which they adopt fedcommons."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FEDCOMMONS = Path(sys.executable).with_name("fedcommons")
APPS = {"pytorch": 0.4, "sklearn": 0.6, "tabular": 0.55}  # more than guessing, after three rounds


def compared(app: str, *options: str) -> list[str]:
    """The lines in which Git says how the app's two sides differ."""
    command = ["git", "diff", "--no-index", "--no-color", *options, "before", "after"]
    result = subprocess.run(
        command, cwd=EXAMPLES / app, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1, result.stderr
    return result.stdout.splitlines()


def counted(app: str) -> tuple[int, int]:
    """Lines added and removed."""
    rows = [line.split() for line in compared(app, "--numstat") if "__pycache__" not in line]
    return sum(int(row[0]) for row in rows), sum(int(row[1]) for row in rows)


def changes(app: str) -> str:
    """The changed lines, under the names of their files."""
    shown = []
    for line in compared(app, "--unified=0", "--no-prefix"):
        if line.startswith("+++ after/"):  # compiled files, if an app ran here, have no lines
            shown += ["", line.removeprefix("+++ after/")]
        elif line.startswith(("+", "-")) and not line.startswith("---") and line not in "+-":
            shown.append(line)
    return "\n".join(shown).strip()


@pytest.mark.parametrize("app", APPS)
def test_the_readme_shows_what_changed(app):
    text = (EXAMPLES / app / "README.md").read_text()
    [shown] = re.findall(r"```diff\n(.*?)\n```", text, re.DOTALL)
    assert shown == changes(app)
    added, removed = counted(app)
    assert f"{added} lines are added, {removed} removed" in text


def test_the_overview_shows_what_changed_in_all_and_in_each():
    text = (EXAMPLES / "README.md").read_text()
    of_all, of_each = re.findall(r"```diff\n(.*?)\n```", text, re.DOTALL)
    own = dict(part.split("\n", 1) for part in of_each.split("\n\n"))
    assert set(own) == set(APPS)
    for app in APPS:
        changed = changed_lines(changes(app))
        said = changed_lines(of_all) + changed_lines(own[app])
        assert sorted(said) == sorted(
            line for line in changed if not line[1:].startswith(("dependencies", "# Every fifth"))
        )
        assert "| {}, {} |".format(*counted(app)) in text


def changed_lines(diff: str) -> list[str]:
    return [line for line in diff.splitlines() if line.startswith(("+", "-"))]


@pytest.mark.parametrize("app", APPS)
def test_adopting_it_takes_few_lines(app):
    """The first adopted app took 26 lines added, 18 removed."""
    added, removed = counted(app)
    assert added <= 13
    assert removed <= 9
    for name in ("task.py", "__init__.py"):
        before, after = (EXAMPLES / app / s / f"{app}_app" / name for s in ("before", "after"))
        assert before.read_text() == after.read_text()


@pytest.mark.parametrize("app", APPS)
def test_it_runs_and_learns_before_and_after(app, tmp_path):
    for side in ("before", "after"):
        result = subprocess.run(
            [
                FEDCOMMONS, "federate", "run", EXAMPLES / app / side,
                "--run-config", "num-server-rounds=3",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "FLWR_HOME": str(tmp_path)},
        )  # fmt: skip
        assert result.returncode == 0, result.stderr[-2000:]
        found = re.findall(r"^round \d+: accuracy (\S+)", result.stdout, re.M)
        assert len(found) == 3, result.stdout
        assert float(found[-1]) > APPS[app]
        assert list(tmp_path.glob("final_model.*")), side
