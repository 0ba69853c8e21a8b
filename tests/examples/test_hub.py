"""The app for Flower Hub: it is as the hub asks for, and it runs and learns."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "fedcommons-heart"
OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
FEDCOMMONS = Path(sys.executable).with_name("fedcommons")


def files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."]
    listed = subprocess.run(command, cwd=APP, capture_output=True, text=True, check=True)
    return [APP / name for name in listed.stdout.splitlines()]


def test_it_is_as_flower_hub_asks():
    """Its rules for what is published, in Flower's documentation; stricter: fewer file types."""
    assert {path.suffix for path in files()} == {".py", ".toml", ".md"}
    assert all(path.stat().st_size < 2**20 for path in files())
    settings = tomllib.loads((APP / "pyproject.toml").read_text())
    project, app = settings["project"], settings["tool"]["flwr"]["app"]
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]*", project["name"])
    assert project["name"] == APP.name
    assert 0 < len(project["description"]) <= 200
    assert project["license"] == {"file": "LICENSE.md"}
    assert (APP / "LICENSE.md").read_text() == (ROOT / "LICENSE").read_text()
    assert app["fab-format-version"] == 1
    [flwr] = [Requirement(r) for r in project["dependencies"] if r.startswith("flwr")]
    assert app["flwr-version-target"] in flwr.specifier


def test_flower_builds_it_by_its_strict_rules(tmp_path):
    shutil.copytree(APP, tmp_path / APP.name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [FEDCOMMONS.with_name("flwr"), "build", "--app", tmp_path / APP.name]
    result = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, **OFFLINE, "FLWR_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    [fab] = tmp_path.rglob("*.fab")
    with zipfile.ZipFile(fab) as archive:
        assert {"pyproject.toml", "LICENSE.md", "README.md"} < set(archive.namelist())


@pytest.mark.parametrize("sites", [2, 4])  # as many as Flower simulates by default; the hospitals
def test_it_runs_and_learns_with_hospitals_missing(sites, tmp_path):
    result = subprocess.run(
        [FEDCOMMONS, "federate", "run", APP, "--sites", str(sites)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "FLWR_HOME": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    found = re.findall(r"round \d+/20: sites_accuracy (\S+),", result.stderr + result.stdout)
    assert len(found) > 10, result.stderr  # a round in which nobody was there has none
    assert float(found[-1]) > 0.72
