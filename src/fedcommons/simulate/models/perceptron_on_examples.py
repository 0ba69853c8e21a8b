"""The perceptron with its first layer in example space.

Whatever is trained on a run's M examples, the first layer is W + X^T A with one row of A for each
example: gradients are X^T times what comes back through the hidden units, and steps, answers and
memories are sums of such. So it is A that is kept, (M, H) instead of (F, H), a gradient needs no
product with the inputs, and the test set is scored through its products with the run's examples,
computed once. With M = 300 images of 784 pixels that is a fraction of the work.
"""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray, IntArray
from fedcommons.simulate.models.mlp import TEST_AT_ONCE, Perceptron
from fedcommons.simulate.models.model import Float32, count_largest, softmax_residuals
from fedcommons.simulate.models.on_examples import Examples

MOST_EXAMPLES = 1000  # of a run: more products than that are too many


class PerceptronOnExamples:
    """Vectors: A (M, H), then the hidden biases (H,), the output's (H, L) and (L,)."""

    @staticmethod
    def pays(model: Perceptron, examples: Examples, n_tests: int) -> bool:
        """Whether the products cost less than they save in `n_tests` counts on the test set."""
        (F, H), M = model.shapes[0], examples.x.shape[1]
        return M < F and M <= MOST_EXAMPLES and n_tests * H * (F - M) > len(examples.x) * M * F

    def __init__(self, model: Perceptron, examples: Examples, initial: Float32) -> None:
        (F, H), _, (_, L), _ = model.shapes
        self.data, M = examples, examples.x.shape[1]
        self.shapes = ((M, H), (H,), (H, L), (L,))
        self.ends = np.cumsum([M * H, H, H * L, L])
        first, self.rest = initial[:, : F * H].reshape(-1, F, H), initial[:, F * H :]
        self.products = examples.x @ examples.x.swapaxes(1, 2)  # (R, M, M)
        self.before = examples.x @ first  # what the initial first layer gives, (R, M, H)
        self.test_products = examples.x @ examples.test_x.T  # (R, M, n)
        self.test_before = first.swapaxes(1, 2) @ examples.test_x.T  # (R, H, n)

    def start(self) -> Float32:
        R, (M, H) = len(self.rest), self.shapes[0]
        return np.concatenate([np.zeros((R, M * H), np.float32), self.rest], axis=1)

    def gradients(
        self, params: Float32, runs: IntArray, examples: IntArray | None, weight: Float32
    ) -> Float32:
        A, b1, w2, b2 = self._layers(params)
        hidden = np.empty((*weight.shape, A.shape[2]), np.float32)
        for b, run in enumerate(runs):
            rows = self.products[run] if examples is None else self.products[run, examples[b]]
            np.matmul(rows, A[b], out=hidden[b])
        if examples is None:
            hidden += self.before[runs]
            y = self.data.y[runs]
        else:
            hidden += self.before[runs[:, None], examples]
            y = self.data.y[runs[:, None], examples]
        hidden += b1[:, None]
        np.maximum(hidden, 0, out=hidden)
        Z = softmax_residuals(hidden @ w2 + b2[:, None], y, weight)
        back = Z @ w2.swapaxes(1, 2)
        back *= hidden > 0
        out = np.empty_like(params)
        d1, e1, d2, e2 = self._layers(out)
        if examples is None:
            d1[:] = back
        else:
            spread = np.zeros((len(runs), d1.shape[1] + 1, d1.shape[2]), np.float32)
            spread[np.arange(len(runs))[:, None], examples] = back  # what fills up, in the last
            d1[:] = spread[:, :-1]
        back.sum(axis=1, out=e1)
        np.matmul(hidden.swapaxes(1, 2), Z, out=d2)
        Z.sum(axis=1, out=e2)
        return out

    def norms2(self, vectors: Float32, runs: IntArray) -> FloatArray:
        A, rest = self._layers(vectors)[0], vectors[:, self.ends[0] :]
        through = np.stack([self.products[run] @ A[b] for b, run in enumerate(runs)])
        first = np.einsum("bmh,bmh->b", A, through, dtype=np.float64)
        return first + np.einsum("bp,bp->b", rest, rest, dtype=np.float64)

    def count_correct(self, params: Float32, runs: IntArray) -> IntArray:
        right = np.zeros(len(params), np.int64)
        for run in np.unique(runs):
            right[runs == run] = self._count(params[runs == run], int(run))
        return right

    def _count(self, params: Float32, run: int) -> IntArray:
        A, b1, w2, b2 = self._layers(params)
        B, M, H = A.shape
        stacked = np.ascontiguousarray(A.swapaxes(1, 2)).reshape(B * H, M)
        out = np.ascontiguousarray(w2.swapaxes(1, 2))
        right = np.zeros(B, np.int64)
        for start in range(0, len(self.data.test_y), TEST_AT_ONCE):
            part = slice(start, start + TEST_AT_ONCE)
            hidden = (stacked @ self.test_products[run, :, part]).reshape(B, H, -1)
            hidden += self.test_before[run, :, part]
            hidden += b1[:, :, None]
            np.maximum(hidden, 0, out=hidden)
            right += count_largest(out @ hidden + b2[:, :, None], self.data.test_y[part])
        return right

    def _layers(self, params: Float32) -> list[Float32]:
        parts = np.split(params, self.ends[:-1], axis=1)
        return [part.reshape(-1, *shape) for part, shape in zip(parts, self.shapes, strict=True)]
