import json
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).parent / "fedcommons"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)


def test_reproduce_prints_the_tables():
    result = run("reproduce", "--runs", "3")
    assert result.returncode == 0, result.stderr
    for title in ("Theorem 1", "Proposition 1", "Theorem 2", "Codes"):
        assert title in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_reproduce_as_json_depends_on_the_seed_only():
    first, again, other = (
        json.loads(run("reproduce", "--runs", "2", "--seed", seed, "--json").stdout)
        for seed in ("3", "3", "4")
    )
    assert first == again
    assert first["codes"] != other["codes"]
    assert first["lambdas"] == other["lambdas"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--runs", "0"), "fedcommons: runs must be an integer >= 2, got 0"),
        (("--seed", "-1"), "fedcommons: seed must be an integer >= 0, got -1"),
        (("--runs", "many"), "not a valid int"),
        (("--nonsense",), "No such option"),
    ],
)
def test_mistakes_end_in_a_message_and_exit_code_2(arguments, message):
    result = run("reproduce", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_help_shows_an_example_and_the_exit_codes():
    assert "Example: fedcommons reproduce" in run("reproduce", "--help").stdout
    assert "Exit codes" in run("--help").stdout
    assert run("--version").stdout.startswith("fedcommons 0.")
