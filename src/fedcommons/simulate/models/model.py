"""What the batched engine needs of a model: many parameter vectors at once, float32 throughout."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray

Float32 = npt.NDArray[np.float32]


class Model(Protocol):
    """A classifier on flat inputs, its parameters one vector.

    Attributes:
        examples_at_once: how many examples to hand to `gradients` in one call, about.
    """

    examples_at_once: int

    def initial(self, *, rng: np.random.Generator) -> Float32:
        """The parameters before the first round: (P,)."""
        ...

    def gradients(self, params: Float32, x: Float32, y: IntArray, weight: Float32) -> Float32:
        """sum_h weight_bh times the gradient of the cross-entropy of example h, for every b.

        Shapes: params (B, P), x (B, H, F), y (B, H), weight (B, H) -> (B, P).
        """
        ...

    def count_correct(self, params: Float32, x: Float32, y: IntArray) -> IntArray:
        """How many of the examples (n, F) each model gets right; ties go to the lowest label."""
        ...


def softmax_residuals(scores: Any, y: IntArray, weight: Float32) -> Float32:
    """weight times (softmax(scores) - onehot(y)), in place: scores (B, H, L)."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    B, H = y.shape
    scores[np.arange(B)[:, None], np.arange(H), y] -= 1
    scores *= weight[..., None]
    return scores


def count_largest(scores: Float32, y: IntArray) -> IntArray:
    """How often the label's score is the largest, of scores (B, L, n): (B,). Ties: lowest label."""
    mine = np.take_along_axis(scores, y[None, None], axis=1)
    ahead = np.arange(scores.shape[1])[:, None] < y  # classes that would win a tie
    beaten = (scores > mine) | ((scores == mine) & ahead)
    finite = np.isfinite(mine[:, 0])
    return np.count_nonzero(finite & ~beaten.any(axis=1), axis=1)


def summed_gradients(
    model: Model, params: Float32, x: Float32, y: IntArray, weight: Float32
) -> Float32:
    """`model.gradients` in pieces of about `examples_at_once`, of models and of examples."""
    B, H = y.shape
    n_models = max(1, model.examples_at_once // max(H, 1))
    n_examples = max(1, model.examples_at_once)
    total = np.zeros_like(params)
    for b in range(0, B, n_models):
        some = slice(b, b + n_models)
        for h in range(0, H, n_examples):
            part = slice(h, h + n_examples)
            total[some] += model.gradients(
                params[some], x[some, part], y[some, part], weight[some, part]
            )
    return total
