"""A linear model with bias, in closed form: with cross-entropy the paper's softmax regression."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import IntArray
from fedcommons.simulate.models.model import Float32
from fedcommons.tasks.loss import Loss, Targets

TEST_AT_ONCE = 2000  # examples scored in one product


class Linear:
    """Parameters (F + 1, outputs), flat, the bias last: as in `tasks.softmax`."""

    examples_at_once = 1 << 17

    def __init__(self, n_features: int, loss: Loss) -> None:
        self.loss = loss
        self.shape = (n_features + 1, loss.n_outputs)

    def initial(self, *, rng: np.random.Generator) -> Float32:  # noqa: ARG002
        """Zero, as in the paper."""
        return np.zeros(self.shape[0] * self.shape[1], np.float32)

    def gradients(self, params: Float32, x: Float32, y: Targets, weight: Float32) -> Float32:
        beta = params.reshape(-1, *self.shape)
        Z = self.loss.residuals(x @ beta[:, :-1] + beta[:, -1:], y, weight)
        out = np.empty_like(beta)
        np.matmul(x.swapaxes(1, 2), Z, out=out[:, :-1])
        Z.sum(axis=1, out=out[:, -1])
        return out.reshape(params.shape)

    def scores(self, params: Float32, x: Float32) -> Float32:
        beta = params.reshape(-1, *self.shape)
        return x @ beta[:, :-1] + beta[:, -1:]

    def count_correct(self, params: Float32, x: Float32, y: IntArray) -> IntArray:
        beta = params.reshape(-1, *self.shape)
        side_by_side = np.ascontiguousarray(beta.transpose(1, 0, 2)).reshape(self.shape[0], -1)
        right = np.zeros(len(beta), np.int64)
        for start in range(0, len(x), TEST_AT_ONCE):
            part = slice(start, start + TEST_AT_ONCE)
            scores = x[part] @ side_by_side[:-1] + side_by_side[-1]
            best = scores.reshape(-1, *beta.shape[::2]).argmax(axis=-1)
            right += (best == y[part, None]).sum(axis=0)
        return right
