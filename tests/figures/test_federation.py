"""The page of a federation's training, whatever its metrics are."""

import math

import pytest

from fedcommons.federate.server import results
from fedcommons.figures.federation import render
from tests.figures.test_page import browser, opened  # noqa: F401

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


MEASURED = [  # round, site, metric, value; examples are 1, 2 and 3
    *[
        (t, site, "accuracy", v)
        for t in (1, 2)
        for site, v in zip("abc", (0.5, 0.7, 0.9), strict=True)
    ],
    *[(1, "a", "loss", 1.0), (2, "b", "loss", 3.0), (2, "c", "loss", 2.0)],
]


@pytest.mark.parametrize("width", [390, 1280])
def test_one_metric_of_the_sites_is_shown_at_a_time_without_scripts(opened, width):  # noqa: F811
    rows = [
        {"round": t, "kind": kind, "site": site, "metric": metric, "value": value}
        | {"examples": 1.0 + "abc".index(site), "left_out": None}
        for kind in ("evaluation", "training")
        for t, site, metric, value in MEASURED
    ]
    rows.append(
        {"round": 2, "kind": "evaluation", "site": "a", "metric": None, "value": None}
        | {"examples": None, "left_out": "ValueError"}
    )
    rounds = [{"round": t, "accuracy": 0.5} for t in (1, 2)]
    page = opened(str(render(RECORD, rounds, [], rows)), width, java_script_enabled=False)
    section = page.locator("section[aria-labelledby=at-sites]")
    tables = section.locator("table.sites")
    first, second, training = (tables.nth(k) for k in (0, 1, 2))
    assert [t.is_visible() for t in (first, second, training)] == [True, False, True]
    cells = [row.split() for row in first.locator("tbody tr").all_inner_texts()]
    assert cells == [
        ["a", "1", "0.5000", "▼", "2"],
        ["b", "2", "0.7000", "2"],
        ["c", "3", "0.9000", "▲", "2"],
        ["all", "sites", "6", f"{(0.5 + 2 * 0.7 + 3 * 0.9) / 6:.4f}", "2"],
    ]
    section.get_by_text("loss", exact=True).first.click()
    assert [t.is_visible() for t in (first, second, training)] == [False, True, True]
    cells = [row.split() for row in second.locator("tbody tr").all_inner_texts()]
    assert cells == [  # who was not there in the last round is not marked, nor in the mean
        ["a", "1", "1.0000", "1"],
        ["b", "2", "3.0000", "▲", "2"],
        ["c", "3", "2.0000", "▼", "2"],
        ["all", "sites", "5", "2.4000", "2"],
    ]
    assert second.locator("xpath=../../figure").locator("polyline").count() == 4
    assert "Left out last: a: ValueError (round 2)." in section.inner_text()
    assert section.locator("details[open]").count() == 2  # one of each kind
    labels = section.locator("svg:visible text").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().x"
        "  - one.closest('svg').getBoundingClientRect().x)"
    )
    assert min(labels) >= 0
