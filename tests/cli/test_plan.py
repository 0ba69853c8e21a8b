"""`fedcommons plan` as its users type it."""

import json

import numpy as np
import pytest

from fedcommons import coding, sharing
from tests.cli.command import run


def plan(*arguments: object, code: int = 0) -> str:
    result = run("plan", *arguments)
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
    assert [(o["part"], o["copies"]) for o in found["options"]] == [(0, 0), (1, 1), (1, 3)]
    assert [o["proportion"] for o in found["options"]] == [0, 0.5, 0.5]  # --share is .5
    assert found["recommended"] in found["options"]
    assert found["reason"]


def test_a_file_of_unequal_sites(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("site,p,c,x,y\na,.1,.5,90,4\nb,.4,.2,12,30\nc,.3,0,6,10\n")
    found = json.loads(plan("--sites", path, "--code", "reliability-split", "--json"))
    assert found["sites"] == 3
    assert {o["copies"] for o in found["options"]} == {0, 1, 2}  # the others are fewer than 3
    assert "copies must be an integer in {0, ..., 2}, got 5" in plan(
        "--sites", path, "--copies", 5, code=2
    )
    assert "p must not be given twice" in plan("--sites", path, "--p", 0.3, code=2)
    assert "alpha must not be given with sites" in plan("--sites", path, "--alpha", 0.3, code=2)
    assert "class-size must not be given with sites" in plan(
        "--sites", path, "--class-size", 3, code=2
    )


def test_the_classes_of_a_file_are_listed(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("site,straggler_prob,x,[y],total\na,0,90,4,94\nb,0,12,30,42\n")
    classes = ["straggler_prob", "x", "[y]"]
    found = json.loads(plan("--sites", path, "--json"))
    assert found["classes"] == classes
    assert found["left_out"] == ["the column 'total', which has the sums of the others"]
    said = plan("--sites", path)
    assert f"3 classes: {', '.join(classes)}." in said
    assert "Left out: the column 'total'" in said
    assert json.loads(plan("--classes", 3, "--json"))["classes"] == ["0", "1", "2"]


def test_what_is_free_is_not_said_to_cost_more():
    found = json.loads(plan("--price-record", 0, "--json"))
    assert found["recommended"]["copies"] == 8
    assert found["reason"] == "all options cost the same, and none has less variance"


def test_options_stand_for_columns_that_a_file_leaves_out(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("x,y\n90,4\n12,30\n6,10\n")
    found = json.loads(plan("--sites", path, "--p", 0, "--share", "1,0,0", "--json"))
    assert found["options"][-1]["proportion"] == pytest.approx(94 / 152)
    assert found["options"][-1]["second_moment"] == found["options"][0]["second_moment"]


def test_a_placement_that_is_there(tmp_path):
    labels = np.repeat([0, 1, 2], 20)
    owner = np.repeat([0, 1, 2], 20)
    mask = np.arange(60) % 20 < 10
    placement = sharing.randomised(owner, mask, 2, n_clients=3, rng=np.random.default_rng(0))
    placement.save(tmp_path / "there.placement")
    (tmp_path / "labels.txt").write_text("\n".join("abc"[label] for label in labels))
    arguments = ("--placement", tmp_path / "there.placement", "--labels", tmp_path / "labels.txt")
    found = json.loads(plan(*arguments, "--json"))
    assert found["sites"] == 3
    assert found["placed"]["copies"] == 2
    again = found["options"][-1]
    assert (again["part"], again["copies"]) == (1, 2)
    for name in ("variance", "heterogeneity", "moved"):  # everybody gets everything
        assert found["placed"][name] == pytest.approx(again[name])
    assert "as placed" in plan(*arguments)
    assert "placement and labels" in plan(*arguments[:2], code=2)
    (tmp_path / "labels.txt").write_text("\n".join(f"{50_000 * label}" for label in labels))
    assert json.loads(plan(*arguments, "--json")) == found
    (tmp_path / "labels.txt").write_text("0\n1\n")
    assert "labels must have 60 entries, got 2" in plan(*arguments, code=3)
    assert "clients must not be given with placement" in plan(*arguments, "--clients", 3, code=2)


def test_targets_hold_besides_an_accuracy():
    arguments = ("--data", "mnist", "--p", 0.3, "--accuracy", 0.3, "--rounds", 5, "--copies", "0,3")
    found = json.loads(plan(*arguments, "--proportions", 1, "--json"))
    assert found["recommended"]["copies"] == 0
    found = json.loads(plan(*arguments, "--proportions", 1, "--max-variance", 0.7, "--json"))
    assert found["recommended"]["copies"] == 3
    assert found["recommended"]["rounds_to_accuracy"] <= 5
    assert "variance at most 0.7" in found["reason"]
    assert "accuracy 0.3" in found["reason"]


def test_a_plot(tmp_path):
    plan("--plot", tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes()[:4] == b"\x89PNG"


def test_ten_thousand_sites():
    found = json.loads(plan("--clients", 10_000, "--class-size", 60_000, "--json"))
    assert found["sites"] == 10_000


@pytest.mark.parametrize("code", coding.CODES)
def test_ten_thousand_unequal_sites(tmp_path, code):
    """What compares each site with each would not come to an end here."""
    rng = np.random.default_rng(0)
    path = tmp_path / "sites.csv"
    counts = rng.integers(0, 30, (10_000, 10))
    p, c = rng.uniform(0.05, 0.95, (2, 10_000))
    with path.open("w") as file:
        file.write("p,c," + ",".join("0123456789") + "\n")
        for row in zip(p, c, counts, strict=True):
            file.write(f"{row[0]:.3f},{row[1]:.3f}," + ",".join(map(str, row[2])) + "\n")
    assert json.loads(plan("--sites", path, "--code", code, "--json"))["sites"] == 10_000


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--price-record", "-1"), 2, "price of a record must be"),
        (("--p", "1"), 2, "straggler_prob must be in [0, 1)"),
        (("--p", "often"), 2, "p must be numbers"),
        (("--share", "1.5"), 2, "shareable"),
        (("--copies", "10"), 2, "copies must be an integer in {0, ..., 9}, got 10"),
        (("--copies", "nan"), 2, "copies must be whole numbers"),
        (("--copies", "inf"), 2, "copies must be whole numbers"),
        (("--copies", "1.7"), 2, "copies must be whole numbers"),
        (("--copies", ""), 2, "copies must be whole numbers"),
        (("--max-variance", "-1"), 2, "the target of variance must be in [0, inf), got -1"),
        (("--max-heterogeneity", "nan"), 2, "the target of heterogeneity must be in"),
        (("--max-variance", "0"), 0, "no option has variance at most 0"),
        (("--max-heterogeneity", "0"), 0, "no option has heterogeneity at most 0"),
        (("--alpha", "0.1"), 2, "alpha goes with a Dirichlet partition"),
        (("--labels", "x.txt"), 2, "placement and labels must be given together"),
        (("--placement", "/none", "--labels", "/none"), 4, "does not exist"),
        (("--sites", "a.csv", "--placement", "b", "--labels", "c"), 2, "must not be given both"),
        (("--code", "none"), 2, "code must be one of"),
        (("--partition", "dirichlet"), 2, "alpha must be given"),
        (("--accuracy", "0.7"), 2, "data must be given"),
        (("--sites", "/none.csv"), 3, "cannot be read"),
        (("--data", "/none.npz"), 3, "does not exist"),
        (("--data", ""), 2, "path must be a path, got ''"),
        (("--partition", "site"), 2, "data must be given for the partition site"),
        (("--partition", "site", "--data", "heart", "--clients", "4"), 2, "clients must not be"),
        (("--partition", "site", "--data", "heart", "--p", "0.5"), 0, "4 sites"),
        (("--price-record", "1e308", "--json"), 2, "prices must give a finite cost"),
        (("--plot", "/none/plan.png"), 6, "cannot be written"),
        (("--plot", "plan.doc"), 6, "must end in"),
        (("--page", "/none/plan.html"), 6, "cannot be written"),
        (("--page", "x.html", "--clients", "61"), 2, "page must be of at most 60 sites"),
        (("--clients", "10000000"), 2, "would take about 2 minutes and 14 GB"),
        (("--deadline", "3"), 2, "deadline must be given with delays"),
        (("--delays", "/none.csv"), 3, "cannot be read"),
        (("--delays", "coded-padded-fl"), 2, "multiply-adds must be given where delays count"),
        (
            ("--delays", "coded-padded-fl", "--multiply-adds", "1e6", "--deadline", "1"),
            2,
            "deadline must leave every site time to answer, got 1 s",
        ),
    ],
)
def test_a_mistake_is_a_message_and_an_exit_code(arguments, code, said):
    assert said in plan(*arguments, code=code)


SITES = "Klinik;P;C;gut;schlecht;total\nA;0,1;0,5;90;4;94\nB;0,4;0,2;12;30;42\nC;0,3;1;6;10;16\n"
DELAYS = "site,examples,spread,link,failures\nA,10,.5,.3,.1\nB,4,.5,.3,.1\nC,9,.5,.3,.1\n"


def test_hours_deadlines_and_a_page_for_each_site(tmp_path):
    sites, delays, page = (tmp_path / name for name in ("sites.csv", "delays.csv", "plan.html"))
    sites.write_text(SITES)
    delays.write_text(DELAYS)
    arguments = ("--sites", sites, "--delays", delays)
    found = json.loads(plan(*arguments, "--page", page, "--json"))
    assert [row["site"] for row in found["by_site"]] == ["A", "B", "C"]
    fewest = min(option["hours"] for option in found["options"])
    assert found["recommended"]["hours"] <= 1.05 * fewest
    assert found["recommended"]["deadline"] >= found["recommended"]["seconds_a_round"]
    assert found["assumed"]
    html = page.read_text()
    assert found["sentence"] in html.replace("&#x27;", "'")
    for words in found["assumed"]:
        assert words in html
    said = plan(*arguments, "--copies", "1", "--proportions", "1", "--deadline", 40)
    assert "40 s" in said
    assert "Left out: the column 'total'" in said
    for name in ("sends", "receives", "misses", "gains", "kept"):
        assert name in said
    assert "copies must be" not in said


def test_what_was_assumed_is_said_and_nothing_else(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text(SITES)
    assert json.loads(plan("--json"))["assumed"][1].startswith("every site misses half of")
    named = json.loads(plan("--p", 0.3, "--share", 0.2, "--json"))["assumed"]
    assert [words.split(".")[0] for words in named] == ["examples are as alike as MNIST’s images"]
    assert len(json.loads(plan("--sites", path, "--json"))["assumed"]) == 1
    assert json.loads(plan("--sites", path, "--copies", 0, "--json"))["assumed"] == []


def test_a_pilot_says_how_many_rounds_noise_costs():
    found = json.loads(
        plan(
            *("--data", "mnist", "--p", 0.1, "--share", 0.4, "--copies", "0,3", "--rounds", 25),
            *("--proportions", 1, "--delays", "coded-padded-fl", "--accuracy", 0.6, "--json"),
        )
    )
    assert "trainings of softmax regression on mnist to accuracy 0.6" in found["course"]
    assert all(option["hours"] > 0 for option in found["options"])
