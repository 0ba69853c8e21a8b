"""The page of a federation's training, whatever its metrics are."""

import math

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
