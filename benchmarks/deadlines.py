"""How good the planner's deadlines are: training in time, at its deadline and on a grid.

    python benchmarks/deadlines.py [--seed 0] [--runs 12] [--stall 60] [--json FILE]

Ten sites whose speeds are those of the published table, with times as if they had 200 times their
30 examples, and stalls of a minute on average with a heavy tail, so that waiting for all is costly.
At every deadline softmax regression on MNIST trains in a study with this clock, late answers
discarded, with the best of the steps that the pilot has, until the mean accuracy of the runs
reaches the target and stays there for a while. The plan rests on other draws: seed + 1000. What
counts: the time at the recommended deadline is at most 1.2 times that of the best on the grid.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fedcommons as fc
from fedcommons import datasets, delay_table, plan
from fedcommons.plan import deadline, timing
from fedcommons.plan.pilot import RATES, crossing

SITES, CLASSES, CLASS_SIZE, COPIES, PART = 10, 10, 30, 3, 0.2
PER_EXAMPLE = 2 * 7850 * 200.0
SETTINGS = (("single-class", None), ("dirichlet", 0.1))
TARGET = 0.7
GRID, MOST_ROUNDS, TESTED = 7, 60, 1000
SECONDS, POINTS, LASTING = 9000.0, 450, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--stall", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="one setting, two deadlines, one step")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = []
    for setting, alpha in SETTINGS[: 1 if arguments.quick else None]:
        for copies in (COPIES,) if arguments.quick else (0, COPIES):
            found.append(one_setting(setting, alpha, copies, arguments))
            print(json.dumps(found[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


def one_setting(
    setting: str, alpha: float | None, copies: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """The time at the recommended deadlines and at the best of the grid."""
    seed, quick, mnist = arguments.seed, arguments.quick, datasets.mnist()
    sites = plan.sites_of(
        setting, n_sites=SITES, n_classes=CLASSES, class_size=CLASS_SIZE, alpha=alpha,
        straggler_prob=0.0, shareable=PART, seed=seed,
    )  # fmt: skip
    own = sites.counts.mean(axis=0).sum(axis=1)
    table = replace(delay_table.published(SITES), stall=np.full(SITES, arguments.stall))
    times = timing.of_table(
        table, own, own + 2 * CLASS_SIZE, per_example=PER_EXAMPLE, words="published"
    )
    assumed = plan.Question(
        sites, plan.pilot_geometry(mnist), plan.Prices(), plan.assumed_course(50), times
    )
    share = plan.shared(assumed, 1.0, copies)
    course = plan.measured_course(
        assumed, [(1.0, one) for one in plan.at_many_deadlines(assumed, share)], mnist, TARGET,
        max_rounds=MOST_ROUNDS, rates=RATES[-1:] if quick else RATES, seed=seed + 1000,
    )  # fmt: skip
    said = {
        name: plan.at_deadline(replace(assumed, course=of), share, None)
        for name, of in (("assumed", assumed.course), ("measured", course))
    }
    longest = 4 * float(times.mean(own + share.received).max())
    grid = deadline.tried(assumed, own + share.received, 40)
    grid = np.geomspace(grid[0], min(grid[-1], longest), 2 if quick else GRID).tolist()
    chosen = {name: float(one.deadline or 0) for name, one in said.items()}
    took = seconds_to_target(setting, alpha, copies, [*grid, *chosen.values()], arguments)
    best = min(took[T] for T in grid)
    return {
        "setting": setting,
        "copies": copies,
        "best seconds": best,
        "on the grid": {f"{T:.0f}": took[T] for T in grid},
        "error of the course": course.error,
        **{
            name: {
                "deadline": T,
                "ratio to the best": took[T] / best,
                "hours said": said[name].hours,
                "hours": took[T] / 3600,
            }
            for name, T in chosen.items()
        },
    }


def seconds_to_target(
    setting: str,
    alpha: float | None,
    copies: int,
    deadlines: list[float],
    arguments: argparse.Namespace,
) -> dict[float, float]:
    """When the mean accuracy at each deadline reaches the target, with the best step."""
    grid = {
        "partition": setting,
        "c": PART,
        "d": copies,
        "policy": "deadline",
        "deadline": sorted(set(deadlines)),
        "p": "law",
        "learning_rate": [RATES[-1]] if arguments.quick else list(RATES),
    }
    study = fc.simulate.study(
        "deadlines",
        grid={**grid, "alpha": alpha} if alpha else grid,
        clock={"seconds": SECONDS, "stall": arguments.stall, "multiply_adds": PER_EXAMPLE},
        clients=SITES, class_size=CLASS_SIZE, rounds=POINTS, test_size=TESTED,
        runs=arguments.runs, seed=arguments.seed,
    )  # fmt: skip
    rows = fc.simulate.run(study, workers=1).curves.to_pylist()
    found = dict.fromkeys(deadlines, np.inf)
    for curve in {(row["deadline"], row["learning_rate"]) for row in rows}:
        mine = [row for row in rows if (row["deadline"], row["learning_rate"]) == curve]
        accuracy = np.array([row["accuracy_mean"] for row in mine])
        when = np.array([row["seconds"] for row in mine])
        at = crossing(accuracy, TARGET, lasting=LASTING)
        if np.isfinite(at):
            found[curve[0]] = min(found[curve[0]], float(np.interp(at, np.arange(len(when)), when)))
    return found


if __name__ == "__main__":
    main()
