"""What the batched engine needs of a model: many parameter vectors at once, float32 throughout."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.tasks.loss import Loss, Targets

Float32 = npt.NDArray[np.float32]


class Model(Protocol):
    """A model on flat inputs, its parameters one vector.

    Attributes:
        loss: what it is trained with, which says how many scores it gives.
        examples_at_once: how many examples to hand to `gradients` in one call, about.
    """

    loss: Loss
    examples_at_once: int

    def initial(self, *, rng: np.random.Generator) -> Float32:
        """The parameters before the first round: (P,)."""
        ...

    def gradients(self, params: Float32, x: Float32, y: Targets, weight: Float32) -> Float32:
        """The gradient of the loss of the examples with these weights, for every b.

        Shapes: params (B, P), x (B, H, F), y targets (B, H, ...), weight (B, H) -> (B, P).
        """
        ...

    def scores(self, params: Float32, x: Float32) -> Float32:
        """What each model gives for the examples (n, F): (B, n, outputs)."""
        ...

    def count_correct(self, params: Float32, x: Float32, y: IntArray) -> IntArray:
        """How many of the examples (n, F) each gets right, with labels; ties go to the lowest."""
        ...


def count_largest(scores: Float32, y: IntArray) -> IntArray:
    """How often the label's score is the largest, of scores (B, L, n): (B,). Ties: lowest label."""
    mine = np.take_along_axis(scores, y[None, None], axis=1)
    ahead = np.arange(scores.shape[1])[:, None] < y  # classes that would win a tie
    beaten = (scores > mine) | ((scores == mine) & ahead)
    finite = np.isfinite(mine[:, 0])
    return np.count_nonzero(finite & ~beaten.any(axis=1), axis=1)


def summed_gradients(
    model: Model, params: Float32, x: Float32, y: Targets, weight: Float32
) -> Float32:
    """`model.gradients` in pieces of about `examples_at_once`, of models and of examples.

    The examples stay together where the loss is no sum over them.
    """
    B, H = weight.shape
    n_models = max(1, model.examples_at_once // max(H, 1))
    n_examples = max(1, model.examples_at_once if model.loss.decomposable else H)
    total = np.zeros_like(params)
    for b in range(0, B, n_models):
        some = slice(b, b + n_models)
        for h in range(0, H, n_examples):
            part = slice(h, h + n_examples)
            total[some] += model.gradients(
                params[some], x[some, part], y[some, part], weight[some, part]
            )
    return total
