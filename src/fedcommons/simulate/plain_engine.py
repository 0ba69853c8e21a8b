"""The plain engine: any task that can answer for its clients, one curve after another.

Every curve goes through `fedcommons.training`. The example-space engine gives the same numbers for
softmax regression, much faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.datasets import Dataset
from fedcommons.estimators import ESTIMATORS
from fedcommons.simulate import draws
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.measures import Measures
from fedcommons.simulate.result import THEORY, RunResult, nothing_measured
from fedcommons.training import Task, train


class ScoringTask(Task, Protocol):
    """A task whose models can be measured."""

    def scores(self, params: FloatArray) -> FloatArray:
        """Of the test examples: (n, L)."""
        ...


def simulate_run(
    dataset: Dataset,
    make_task: Callable[[Dataset, draws.TrainingSet], ScoringTask],
    curves: Sequence[Curve],
    *,
    n_clients: int,
    class_size: int | None,
    n_rounds: int,
    seed: int,
    run: int,
    measures: Measures | None = None,
) -> RunResult:
    """Train every curve of one run."""
    data = draws.training_set(dataset, class_size, seed=seed, run=run)
    task = make_task(dataset, data)
    C, T = len(curves), n_rounds
    shared = draws.share_all(curves, data, n_clients, seed=seed, run=run)
    correct = np.full((C, T + 1), -1, np.int32)
    moment, exact, norm2, projection = (np.full((C, T), np.nan) for _ in range(4))
    measured = measures.nothing(C) if measures else nothing_measured()

    def measure(k: int, t: int, params: FloatArray) -> None:
        if measures and t in measures.rounds:
            at = measures.rounds.index(t)
            pooled, at_sites = measures.of(task.scores(params)[None])
            measured[0][k, at], measured[1][k, at] = pooled[0], at_sites[0]

    for k, curve in enumerate(curves):
        shares = draws.shares(curve, shared[k].placement, data.products)
        answered = draws.answered(curve, T, n_clients, seed=seed, run=run)
        estimator = ESTIMATORS[curve.estimator]
        p = curve.straggler_prob
        second_moment = estimator.second_moment(np.full(n_clients, p))
        correct[k, 0] = task.count_correct(task.initial())
        measure(k, 0, task.initial())
        rounds = train(
            task,
            shares,
            answered,
            p,
            estimator=estimator,
            warm=curve.warm,
            learning_rate=curve.learning_rate,
            decay=curve.decay,
        )
        for t, this in enumerate(rounds):
            full = this.answers.sum(axis=0)
            norm2[k, t] = full @ full
            if second_moment is not None:
                exact[k, t] = second_moment.of(this.answers, this.remembered)
            moment[k, t] = this.estimate @ this.estimate
            projection[k, t] = this.estimate @ full / norm2[k, t]
            if not np.isfinite(this.params).all():
                break
            correct[k, t + 1] = task.count_correct(this.params)
            measure(k, t + 1, this.params)
    het = np.array(
        [draws.heterogeneity_of(s, data.groups, c) for c, s in zip(curves, shared, strict=True)]
    )
    no_theory = np.empty((0, T, len(THEORY)))
    return RunResult(correct, moment, exact, norm2, projection, het, no_theory, *measured)
