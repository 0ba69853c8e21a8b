"""A model on the examples of some runs: what the batched engine trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedcommons.checks import FloatArray, IntArray
from fedcommons.simulate.models.model import Float32, Model, summed_gradients
from fedcommons.tasks.loss import Loss, Targets


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """The examples of R runs, M each, and the test set of all.

    Attributes:
        x: (R, M, F).
        y: (R, M, ...) targets of the loss.
        test_x: (n, F).
        test_y: (n, ...).
    """

    x: Float32
    y: Targets
    test_x: Float32
    test_y: Targets


class OnExamples(Protocol):
    """Models as vectors (B, P), each on the examples of one run: `runs` are their places, (B,).

    Sums and multiples of these vectors are those of the parameters, so that steps, answers and
    what is remembered are linear in them.
    """

    loss: Loss

    def start(self) -> Float32:
        """The models before the first round: (R, P)."""
        ...

    def gradients(
        self, params: Float32, runs: IntArray, examples: IntArray | None, weight: Float32
    ) -> Float32:
        """The gradient of the loss of the model's run with these weights, for every b.

        `examples` are places in the run, (B, H), or None for all M; -1 comes with weight 0.
        """
        ...

    def norms2(self, vectors: Float32, runs: IntArray) -> FloatArray:
        """|v|^2 of the parameters that they stand for: (B,)."""
        ...

    def parameters(self, vectors: Float32, runs: IntArray) -> Float32:
        """The models' own parameters: (B, P')."""
        ...

    def scores(self, params: Float32, runs: IntArray) -> Float32:
        """What each gives for the test examples: (B, n, outputs)."""
        ...

    def count_correct(self, params: Float32, runs: IntArray) -> IntArray:
        """How many test examples each gets right: (B,)."""
        ...


class Plain:
    """Any model, its parameters as they are."""

    def __init__(self, model: Model, examples: Examples, initial: Float32) -> None:
        self.model, self.data, self.initial = model, examples, initial
        self.loss = model.loss

    def start(self) -> Float32:
        return self.initial

    def gradients(
        self, params: Float32, runs: IntArray, examples: IntArray | None, weight: Float32
    ) -> Float32:
        x, y = self.data.x, self.data.y
        if examples is not None:
            chosen = (x[runs[:, None], examples], y[runs[:, None], examples])
        elif len(x) == 1:  # without a copy for each
            chosen = (np.broadcast_to(x, (len(runs), *x.shape[1:])), y[runs])
        else:
            chosen = (x[runs], y[runs])
        return summed_gradients(self.model, params, *chosen, weight)

    def norms2(self, vectors: Float32, runs: IntArray) -> FloatArray:  # noqa: ARG002
        return np.einsum("bp,bp->b", vectors, vectors, dtype=np.float64)

    def parameters(self, vectors: Float32, runs: IntArray) -> Float32:  # noqa: ARG002
        return vectors

    def scores(self, params: Float32, runs: IntArray) -> Float32:  # noqa: ARG002
        return self.model.scores(params, self.data.test_x)

    def count_correct(self, params: Float32, runs: IntArray) -> IntArray:  # noqa: ARG002
        return self.model.count_correct(params, self.data.test_x, self.data.test_y)
