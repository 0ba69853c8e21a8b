"""The plain Flower app and the coded one: both learn, and little lies between them."""

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart"
FEDCOMMONS = Path(sys.executable).with_name("fedcommons")


def accuracies(folder: str, run_config: str) -> list[float]:
    """The accuracy after every round of an app, run on the embedded engine."""
    result = subprocess.run(
        [FEDCOMMONS, "federate", "run", EXAMPLE / folder, "--run-config", run_config],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return [
        float(value) for value in re.findall(r"^round \d+: accuracy (\S+)", result.stdout, re.M)
    ]


@pytest.mark.parametrize("folder", ["before", "after"])
def test_it_runs_and_learns(folder, tmp_path):
    config = "num-server-rounds=4"
    if folder == "after":
        config += f' state-dir="{tmp_path / "state"}"'
    found = accuracies(folder, config)
    assert len(found) == 5
    assert found[0] < 0.2 < 0.4 < found[-1]


@pytest.mark.parametrize(
    ("name", "most"), [("client_app.py", 4), ("server_app.py", 3)]
)  # the client's fourth: where its batches come from
def test_adopting_it_takes_three_lines_in_each_app_file(name, most):
    before, after = (
        [
            line
            for line in (EXAMPLE / side / "quickstart" / name).read_text().splitlines()
            if line and '"""' not in line
        ]
        for side in ("before", "after")
    )
    added = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    assert 0 < len(added) <= most, added
