"""The general engine: any task that can answer for its clients, one curve after another.

It keeps the model's parameters and every client's answer, and goes through `estimators.estimate`
like the federation does. The example-space engine gives the same numbers for softmax regression,
much faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array

from fedcommons import estimators
from fedcommons.checks import FloatArray
from fedcommons.datasets import Dataset
from fedcommons.simulate import draws
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.result import THEORY, RunResult
from fedcommons.theory import second_moment


class Task(Protocol):
    """A model on the training set of one run."""

    def initial(self) -> FloatArray:
        """The parameters before the first round: (P,)."""
        ...

    def answers(self, params: FloatArray, shares: csr_array) -> FloatArray:
        """f_i = sum_j b_ij g_j of every client: (N, P)."""
        ...

    def count_correct(self, params: FloatArray) -> int:
        """How many test examples the model gets right."""
        ...


def simulate_run(
    dataset: Dataset,
    make_task: Callable[[Dataset, draws.TrainingSet], Task],
    curves: Sequence[Curve],
    *,
    n_clients: int,
    class_size: int,
    n_rounds: int,
    seed: int,
    run: int,
) -> RunResult:
    """Train every curve of one run."""
    data = draws.training_set(dataset, class_size, seed=seed, run=run)
    task = make_task(dataset, data)
    C, M, T = len(curves), len(data.labels), n_rounds
    shared = draws.share_all(curves, data.labels, n_clients, seed=seed, run=run)
    correct = np.empty((C, T + 1), np.int32)
    moment, exact, norm2, projection = (np.empty((C, T)) for _ in range(4))
    for k, curve in enumerate(curves):
        shares = draws.shares(curve, shared[k].placement, data.products)
        answered = draws.answered(curve, T, n_clients, seed=seed, run=run)
        estimator = estimators.ESTIMATORS[curve.estimator]
        p = curve.straggler_prob
        alpha, beta = second_moment.moment_coefficients(estimator, p, n_clients)
        params = task.initial()
        warm = task.answers(params, shares) if curve.warm else None
        state = estimators.start(estimator, n_clients, len(params), warm=warm)
        correct[k, 0] = task.count_correct(params)
        for t in range(T):
            answers = task.answers(params, shares)
            full = answers.sum(axis=0)
            norm2[k, t] = full @ full
            noisy = answers if state is None else answers - state
            exact[k, t] = alpha * norm2[k, t] + beta @ (noisy**2).sum(axis=1)
            estimate, state = estimators.estimate(estimator, state, answers, answered[t], p)
            moment[k, t] = estimate @ estimate
            projection[k, t] = estimate @ full / norm2[k, t]
            params = params - curve.learning_rate * curve.decay**t / M * estimate
            correct[k, t + 1] = task.count_correct(params)
    het = np.array(
        [
            draws.heterogeneity_of(s, data.labels, c.copies)
            for c, s in zip(curves, shared, strict=True)
        ]
    )
    no_theory = np.empty((0, T, len(THEORY)))
    return RunResult(correct, moment, exact, norm2, projection, het, no_theory)
