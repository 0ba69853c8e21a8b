"""How good the planner's deadlines are: training in time, at its deadline and on a grid.

    python benchmarks/deadlines.py [--seed 0] [--runs 3] [--stall 60] [--json FILE]

Ten sites whose speeds are those of the published table, with times as if they had 200 times their
30 examples, and stalls of a minute on average with a heavy tail, so that waiting for all is costly.
At every deadline softmax regression on MNIST trains under the schedule of the clock
(`schedule.run`), late answers discarded, with the better of two steps, until the mean accuracy of
the runs reaches the target for three rounds on end. The plan rests on other draws: seed + 1000.
What counts: the time at the recommended deadline is at most 1.2 times that of the best on the grid.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import coding, datasets, delay_table, estimators, plan, privacy, sharing
from fedcommons.checks import FloatArray
from fedcommons.delays import Law, Units
from fedcommons.plan import deadline, timing
from fedcommons.plan.pilot import lasting
from fedcommons.policies import Policy
from fedcommons.schedule import Clock, run
from fedcommons.streams import stream
from fedcommons.tasks import softmax
from fedcommons.training import train

SITES, CLASSES, CLASS_SIZE, COPIES, PART = 10, 10, 30, 3, 0.2
PER_EXAMPLE = 2 * 7850 * 200.0
RATES = (0.01, 0.025)
SETTINGS = (("single-class", None), ("dirichlet", 0.1))
TARGETS = (0.7,)
GRID, MOST_ROUNDS, TESTED = 6, 60, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--stall", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    mnist = datasets.mnist()
    found = []
    for setting, alpha in SETTINGS:
        for copies in (0, COPIES):
            given = (arguments.seed, arguments.runs, arguments.stall)
            found += one_setting(mnist, setting, alpha, copies, *given)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


def one_setting(
    mnist: datasets.Dataset,
    setting: str,
    alpha: float | None,
    copies: int,
    seed: int,
    runs: int,
    stall: float,
) -> list[dict[str, Any]]:
    """For every target the time at the recommended deadlines and at the best of the grid."""
    sites = plan.sites_of(
        setting, n_sites=SITES, n_classes=CLASSES, class_size=CLASS_SIZE, alpha=alpha,
        straggler_prob=0.0, shareable=PART, seed=seed,
    )  # fmt: skip
    own = sites.counts.mean(axis=0).sum(axis=1)
    table = replace(delay_table.published(SITES), stall=np.full(SITES, stall))
    times = timing.of_table(
        table, own, own + 2 * CLASS_SIZE, per_example=PER_EXAMPLE, words="published"
    )
    question = plan.Question(
        sites, plan.pilot_geometry(mnist), plan.Prices(), plan.assumed_course(50), times
    )
    share = plan.shared(question, 1.0, copies)
    grid = deadline.tried(question, own + share.received, GRID).tolist()
    tried = [(1.0, outcome) for outcome in plan.at_many_deadlines(question, share)]
    curves = {}

    def seconds(T: float, target: float) -> float:
        if T not in curves:
            curves[T] = trainings(mnist, question, share, T, seed, runs)
        reached = [(ends, lasting(mean >= target)) for ends, mean in curves[T]]
        times = [ends[np.argmax(there)] for ends, there in reached if there.any()]
        return float(min(times, default=np.inf))

    found = []
    for target in TARGETS:
        course = plan.measured_course(
            question, tried, mnist, target, max_rounds=MOST_ROUNDS, rates=RATES, seed=seed + 1000
        )
        measured = plan.Question(sites, question.geometry, question.prices, course, times)
        best = min(seconds(T, target) for T in grid)
        said = {}
        for name, asked in (("assumed", question), ("measured", measured)):
            T = plan.at_deadline(asked, share, None).deadline
            assert T is not None
            said[name] = {"deadline": T, "ratio to the best": seconds(T, target) / best}
        found.append(
            {
                "setting": setting, "copies": copies, "target": target, "best seconds": best,
                "on the grid": {f"{T:.0f}": seconds(T, target) for T in grid}, **said,
            }
        )  # fmt: skip
        print(json.dumps(found[-1]), flush=True)
    return found


def trainings(
    mnist: datasets.Dataset,
    question: plan.Question,
    share: plan.Shared,
    T: float,
    seed: int,
    runs: int,
) -> list[tuple[FloatArray, FloatArray]]:
    """For each step when rounds end and how accurate the model is then, means over the runs."""
    outcome = plan.outcome(question, share, T)
    law = question.timing.delays if question.timing else None
    assert isinstance(law, Law)
    tested = stream(seed, "benchmark test").permutation(len(mnist.y_test))[:TESTED]
    ends, curves = [], []
    for number in range(runs):
        rng = stream(seed, "benchmark", number)
        labels_of = np.repeat(np.arange(CLASSES), CLASS_SIZE)
        rows = np.concatenate(
            [
                rng.choice(np.flatnonzero(mnist.y_train == label), CLASS_SIZE, replace=False)
                for label in range(CLASSES)
            ]
        )
        counts = question.sites.counts[number % len(question.sites.counts)].astype(int)
        owner = np.concatenate([np.repeat(np.arange(SITES), counts[:, k]) for k in range(CLASSES)])
        shareable = privacy.proportion(labels_of, owner, PART, n_clients=SITES, rng=rng)
        placement = sharing.randomised(owner, shareable, share.copies, n_clients=SITES, rng=rng)
        load = placement.label_counts(labels_of, n_classes=CLASSES).sum(axis=1).astype(float)
        units = Units(SITES, lambda block, n=number: stream(seed, "benchmark units", n, block))
        clock = Clock(
            Law(law.rate, law.spread, law.stall, law.link, law.failure, units),
            Policy("deadline", deadline=T),
            load,
        )
        ticks = run(clock, lambda _: np.ones(SITES, np.bool_), seconds=T * (MOST_ROUNDS + 1))
        task = softmax.SoftmaxRegression(
            mnist.inputs("train", rows), labels_of, mnist.inputs("test", tested),
            mnist.y_test[tested], CLASSES,
        )  # fmt: skip
        ends.append(ticks.ends[:MOST_ROUNDS])
        curves.append(
            [
                [
                    task.count_correct(one.params) / TESTED
                    for one in train(
                        task, coding.equal_split(placement), ticks.on_time[:MOST_ROUNDS],
                        outcome.straggler_prob, estimator=estimators.coded_sum, learning_rate=rate,
                    )
                ]
                for rate in RATES
            ]
        )  # fmt: skip
    return [
        (np.mean(ends, axis=0), np.mean([curve[k] for curve in curves], axis=0))
        for k in range(len(RATES))
    ]


if __name__ == "__main__":
    main()
