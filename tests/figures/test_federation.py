"""The page of a federation's training, whatever its metrics are."""

import math

from fedcommons.federate.server import results
from fedcommons.figures.federation import render

RECORD = {
    "federation": "clinics",
    "sites": [],
    "rounds": 1,
    "copies": 2,
    "examples": 10,
    "deliveries": 3,
    "settings": {},
    "epoch": 1,
    "serial": 0,
    "versions": {},
}


def test_metrics_that_are_no_numbers_are_left_out():
    rounds = [
        {"round": 0, "accuracy": math.nan, "each": [0.1, 0.2], "loss": 1.0},
        {"round": 1, "accuracy": 0.5, "each": [0.3, 0.4], "loss": math.inf},
    ]
    page = render(RECORD, rounds, [])
    assert "accuracy after each round" in page
    assert "After the last round: accuracy 0.5000." in " ".join(page.split())
    assert "each after" not in page


def test_what_is_noted_of_every_round_is_no_metric():
    """Clipped answers, for one, are a column of the table of sites."""
    fields = dict.fromkeys(results.OF_A_ROUND, 1)
    assert "after each round" not in render(RECORD, [fields, fields], [])
    site = {"site": "a", "identity": "ab", "examples": 7, "shareable": 2, "present": True}
    answer = {"site": "a", "answered": True, "outcome": "answered", "straggler_prob": 0.1}
    answers = [{**answer, "round": t, "clipped": by} for t, by in enumerate((1.0, 0.5, 0.2))]
    page = render({**RECORD, "sites": [site]}, [fields], answers)
    cells = [cell.split("</td>")[0] for cell in page.split('class="sites"')[1].split("<td>")[1:]]
    assert cells[:6] == ["a", "7", "2", "3", "3", "2"]
