"""`fedcommons plan` as its users type it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FEDCOMMONS = Path(sys.executable).with_name("fedcommons")


def plan(*arguments: object, code: int = 0) -> str:
    result = subprocess.run(
        [FEDCOMMONS, "plan", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert result.returncode == code, result.stderr[-2000:]
    assert "Traceback" not in result.stderr
    return result.stdout + result.stderr


def test_a_table_and_a_recommendation():
    said = plan("--p", "0.7", "--max-variance", "0.5")
    assert "variance at most 0.5" in said
    assert "take" in said
    assert "Memory" in said or "memory" in said


def test_the_same_for_machines():
    found = json.loads(plan("--copies", "0,1,3", "--proportions", "1", "--json"))
    assert [(o["proportion"], o["copies"]) for o in found["options"]] == [(0, 0), (1, 1), (1, 3)]
    assert found["recommended"] in found["options"]
    assert found["reason"]


def test_a_file_of_unequal_sites(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("site,p,c,x,y\na,.1,.5,90,4\nb,.4,.2,12,30\nc,.3,0,6,10\n")
    found = json.loads(plan("--sites", path, "--code", "reliability-split", "--json"))
    assert found["sites"] == 3
    assert {o["copies"] for o in found["options"]} == {0, 1, 2}


def test_a_plot(tmp_path):
    plan("--plot", tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes()[:4] == b"\x89PNG"


def test_ten_thousand_sites():
    found = json.loads(plan("--clients", 10_000, "--class-size", 60_000, "--json"))
    assert found["sites"] == 10_000


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--price-record", "-1"), 2, "price of a record must be"),
        (("--p", "1"), 2, "straggler_prob must be in [0, 1)"),
        (("--p", "often"), 2, "p must be numbers"),
        (("--share", "1.5"), 2, "shareable"),
        (("--copies", "10"), 2, "copies"),
        (("--code", "none"), 2, "code must be one of"),
        (("--partition", "dirichlet"), 2, "alpha must be given"),
        (("--accuracy", "0.7"), 2, "data must be given"),
        (("--sites", "/none.csv"), 3, "cannot be read"),
        (("--data", "/none.npz"), 3, "does not exist"),
        (("--plot", "/none/plan.png"), 6, "cannot be written"),
    ],
)
def test_a_mistake_is_a_message_and_an_exit_code(arguments, code, said):
    assert said in plan(*arguments, code=code)
