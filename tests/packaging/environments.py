"""New environments outside the repository, with the wheel that a release would publish."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
PATIENCE = 900  # seconds: a slow index, a busy machine


def run(command: Sequence[str | Path], folder: Path) -> str:
    """What a command prints, started outside the checkout and without its settings."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key not in hidden},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """The wheel as `python -m build` makes it: from the source distribution, not the checkout."""
    run([sys.executable, "-m", "build", "--outdir", folder, ROOT], folder)
    [wheel] = folder.glob("fedcommons-*.whl")
    return wheel


def metadata(wheel: Path) -> Message:
    """What the index shows, and what installers read."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def need_index(folder: Path) -> None:
    """Skip where pip cannot fetch a small package."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    try:
        run([*command, "threadpoolctl"], folder)
    except (AssertionError, subprocess.TimeoutExpired):
        pytest.skip("no package index can be reached")


def need_uv(folder: Path) -> None:
    """Skip where uv, which can resolve to the lowest versions, is missing or has no index."""
    if not UV.exists():
        pytest.skip("uv is not installed")
    (folder / "probe.in").write_text("threadpoolctl\n")
    try:
        run([UV, "pip", "compile", "--quiet", "--no-cache", "probe.in"], folder)
    except (AssertionError, subprocess.TimeoutExpired):
        pytest.skip("uv reaches no package index")
