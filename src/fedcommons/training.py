"""Coded gradient descent as a plain loop: any task that can answer for its clients.

It keeps the model's parameters and every client's answer, and goes through `estimators.estimate`
like the federation does. Studies have faster engines for the same rounds, which are compared with
this one; the planner's pilot trains with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import estimators
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.optimizers import USUAL, Constants, Optimizer, sgd
from fedcommons.schedule import Ticks


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


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a training.

    Attributes:
        answers: (N, P) of all clients, also of those that straggled.
        remembered: (N, P) what the estimator remembered before it; None if it does not.
        estimate: (P,) of the full gradient.
        params: (P,) the parameters after it.
    """

    answers: FloatArray
    remembered: FloatArray | None
    estimate: FloatArray
    params: FloatArray


def train(
    task: Task,
    shares: csr_array,
    answered: BoolArray | Ticks,
    straggler_prob: npt.ArrayLike,
    *,
    estimator: estimators.Estimator,
    warm: bool = False,
    learning_rate: float,
    decay: float = 1.0,
    optimizer: Optimizer = sgd,
    constants: Constants = USUAL,
) -> Iterator[Round]:
    """Train under a code, (N, M): one round after another.

    Args:
        answered: (rounds, N) who answers in time, where nothing is ever late; or the ticks of a
            clock. An answer that comes late was made at the model of its question.
    """
    ticks = answered if isinstance(answered, Ticks) else Ticks.of_rounds(answered)
    params = task.initial()
    first = task.answers(params, shares) if warm else None
    state = estimators.start(estimator, shares.shape[0], len(params), warm=first)
    moments, M = optimizer.start(params.shape), shares.shape[1]
    W = np.asarray(shares.sum(axis=1), np.float64).ravel()
    arrivals, kept = ticks.arrivals.from_the_start(W, warm=warm), ticks.kept
    owed: dict[int, FloatArray] = {}
    for t in range(len(ticks)):
        answers, remembered = task.answers(params, shares), state
        came = answers
        if ticks.late[t].any():
            came = answers.copy()
            for i in np.flatnonzero(ticks.late[t]).tolist():
                came[i] = owed.pop(i)
        owed |= {i: answers[i] for i in np.flatnonzero(kept[t]).tolist()}
        estimate, state = estimators.estimate(
            estimator, state, came, arrivals.of_round(t), straggler_prob, weights=W
        )
        direction, moments = optimizer.direction(moments, estimate, M, constants)
        params = params - learning_rate * decay**t / M * direction
        yield Round(answers, remembered, estimate, params)


__all__ = ["Round", "Task", "train"]


def __dir__() -> list[str]:
    return __all__
