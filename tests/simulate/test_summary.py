"""What a study of one's own found: rankings by paired differences, and words for them."""

from __future__ import annotations

import math

import numpy as np
import pyarrow
import pytest
from scipy import stats

from fedcommons.figures.captions import labels
from fedcommons.intervals import mean_and_half
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Figure, Line, Study
from fedcommons.simulate.summary import summarise
from fedcommons.simulate.timing import Timing


def study(*probs: float) -> Study:
    """Three lines at each p: no sharing, some, and memory."""
    lines = [
        Line(label, Curve(partition="iid", straggler_prob=p, **fields))
        for p in probs
        for label, fields in (
            ("none", {}),
            ("some", {"proportion": 0.5, "copies": 1}),
            ("memory", {"estimator": "memory"}),
        )
    ]
    return Study("mine", (Figure("one", "curves", "One", tuple(lines)),))


def found(study: Study, values: dict[tuple[str, float], list[float]]):
    """The summary of a study in which these lines have these accuracies, run by run."""
    label_of = {
        line.curve: (line.label, line.curve.straggler_prob) for line in study.figures[0].lines
    }
    rows = np.stack([values[label_of[curve]] for curve in study.curves], axis=1)
    runs = pyarrow.table({"final_accuracy": rows.ravel(), "diverged": np.isnan(rows).ravel()})
    return summarise(study, runs, lambda figure: [line.label for line in figure.lines])


COMMON = np.array([0.0, 0.1, 0.2, 0.3])  # what the runs have in common, more than the lines differ


def test_lines_are_compared_run_by_run():
    """The spread between runs is much larger than the difference, and it is found."""
    summary = found(
        study(0.5),
        {
            ("none", 0.5): COMMON + np.array([0.011, 0.01, 0.009, 0.01]),
            ("some", 0.5): COMMON + 0.02,
            ("memory", 0.5): COMMON + np.array([0.03, 0.02, 0.01, 0.0]),
        },
    )
    [setting] = summary.settings
    assert [rank.label for rank in setting.ranks] == ["some", "memory", "none"]
    best, memory, none = setting.ranks
    assert (best.behind, best.behind_half, best.as_good) == (0, 0, True)
    assert memory.as_good
    assert not none.as_good
    assert none.behind == pytest.approx(0.01)
    differences = np.array([0.009, 0.01, 0.011, 0.01])
    sem = differences.std(ddof=1) / 2
    assert none.behind_half == pytest.approx(stats.t.ppf(0.975, 3) * sem)
    assert summary.sentences == ("some is the best line, but memory cannot be told from it.",)


def test_lines_are_ranked_by_the_time_to_a_target_too():
    """Run by run, of logarithms; a line that never gets there is lost."""
    lines = tuple(
        Line(label, Curve("iid", policy=policy, estimator="responder_average"))
        for label, policy in (("a", "all"), ("b", "fastest:2"), ("c", "fastest:3"))
    )
    clocked = Study("t", (Figure("one", "curves", "", lines),), clock=Timing(100.0, target=0.8))
    seconds = {
        "a": np.array([10.0, 20.0, 40.0, 80.0]),
        "b": np.array([21.0, 40.0, 79.0, np.inf]),
        "c": np.full(4, np.inf),
    }
    label_of = {line.curve: line.label for line in lines}
    rows = np.stack([seconds[label_of[curve]] for curve in clocked.curves], axis=1).ravel()
    runs = pyarrow.table(
        {
            "final_accuracy": np.full(12, 0.5), "diverged": np.zeros(12, bool),
            "seconds_to_target": rows,
        }
    )  # fmt: skip
    summary = summarise(clocked, runs, lambda figure: [line.label for line in figure.lines])
    [setting] = summary.by_time
    assert [rank.label for rank in setting.ranks] == ["a", "b"]
    assert setting.lost == ("c",)
    logs = np.log([21 / 10, 2, 79 / 40, 1000 / 80])
    assert setting.ranks[1].behind == pytest.approx(logs.mean())
    assert setting.ranks[1].as_good == (logs.mean() <= setting.ranks[1].behind_half)
    assert summary.sentences[1] == "a is the fastest line to 0.8, but b cannot be told from it."


def test_all_settings_together():
    best = {(label, p): COMMON + shift for p in (0.1, 0.5) for label, shift in
            (("none", 0.0), ("some", 0.3), ("memory", 0.1))}  # fmt: skip
    assert found(study(0.1, 0.5), best).sentences == (
        "some is the best line in both settings.",
        "memory beats none in both settings.",
        "memory and none are behind the best line in both settings.",
    )


def _sentences(figures: tuple[Figure, ...], accuracy, **fields) -> tuple[str, ...]:
    """Of a study in which a curve has this accuracy in every run, give or take a little."""
    mine = Study("mine", figures, **fields)
    spread = np.array([0.0, 0.001, -0.001, 0.0])
    rows = np.stack([accuracy(c) + np.roll(spread, k) for k, c in enumerate(mine.curves)], axis=1)
    runs = pyarrow.table({"final_accuracy": rows.ravel(), "diverged": np.zeros(rows.size, bool)})
    return summarise(mine, runs, labels).sentences


def test_a_line_is_the_same_choice_in_every_setting_whatever_rate_it_was_tuned_to():
    lines = tuple(
        Line(name, Curve("iid", straggler_prob=p, estimator=name, learning_rate=rate))
        for p, rate in ((0.1, 0.8), (0.5, 0.2))
        for name in ("coded_sum", "memory")
    )
    one = (Figure("one", "curves", "One", lines),)
    said = _sentences(one, lambda c: 0.8 if c.estimator == "memory" else 0.5, pool="tuned")
    assert said == (
        "memory is the best line in both settings.",
        "coded_sum is behind the best line in both settings.",
    )


def test_one_label_that_is_two_choices_is_not_counted_as_one():
    """`sharing` has one copy in one figure and three in the other: it is best once, not twice."""
    figures = tuple(
        Figure(name, "curves", name, (
            Line("none", Curve("iid", straggler_prob=0.5)),
            Line("sharing", Curve("iid", straggler_prob=0.5, proportion=0.5, copies=d)),
        ))
        for name, d in (("one", 1), ("two", 3))
    )  # fmt: skip
    assert _sentences(figures, lambda c: 0.5 + 0.1 * c.copies) == (
        "sharing (in one) is the best line in 1 of 2 settings.",
        "sharing (in two) is the best line in 1 of 2 settings.",
        "none is behind the best line in both settings.",
    )


def test_runs_that_diverged_are_left_out_and_lost_lines_named():
    lost = [math.nan] * 4
    some = [math.nan, 0.5, 0.5, 0.5]
    [setting] = found(
        study(0.5), {("none", 0.5): COMMON, ("some", 0.5): some, ("memory", 0.5): lost}
    ).settings
    assert setting.lost == ("memory",)
    assert [rank.label for rank in setting.ranks] == ["some", "none"]
    assert setting.ranks[1].behind == pytest.approx(0.3)  # of the runs that both have


def test_one_run_has_no_interval_and_decides_nothing():
    [setting] = found(
        study(0.5), {("none", 0.5): [0.1], ("some", 0.5): [0.2], ("memory", 0.5): [0.3]}
    ).settings
    assert all(rank.as_good and rank.half is None for rank in setting.ranks)


def test_the_ceiling_is_not_compared():
    lines = [
        Line("ours", Curve(partition="iid", straggler_prob=0.5)),
        Line("waits", Curve(partition="iid", straggler_prob=0.5, estimator="wait_for_all")),
    ]
    alone = Study("mine", (Figure("one", "curves", "One", tuple(lines)),))
    runs = pyarrow.table({"final_accuracy": [0.5, 0.6], "diverged": [False, False]})
    assert summarise(alone, runs, lambda _figure: ["ours", "waits"]).settings == ()


def test_nothing_is_said_where_there_is_nothing_to_compare():
    alone = Figure("one", "curves", "One", (Line("only", Curve(partition="iid")),))
    runs = pyarrow.table({"final_accuracy": [0.5], "diverged": [False]})
    summary = summarise(Study("mine", (alone,)), runs, lambda _figure: ["only"])
    assert summary.settings == summary.sentences == ()


def test_the_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    n = 4000
    inside = 0
    for _ in range(n):
        mean, half = mean_and_half(rng.normal(size=5))
        inside += abs(mean) <= half
    assert abs(inside / n - 0.95) < 4 * math.sqrt(0.95 * 0.05 / n)
