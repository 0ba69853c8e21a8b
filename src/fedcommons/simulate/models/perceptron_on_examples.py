"""The perceptron with its first layer in example space.

Whatever is trained on a run's M examples, the first layer is W + X^T A with one row of A for each
example: gradients are X^T times what comes back through the hidden units, and steps, answers and
memories are sums of such. X has a last column of ones, for the biases. So it is A that is kept,
(M, H) instead of (F + 1, H), a gradient needs no product with the inputs, and the test set is
scored through its products with the run's examples, computed once. With M = 300 images of 784
pixels that is a fraction of the work.
"""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray, IntArray
from fedcommons.simulate.models.mlp import Perceptron, count_right, hidden_scores, split
from fedcommons.simulate.models.model import Float32
from fedcommons.simulate.models.on_examples import Examples

MOST_EXAMPLES = 1000  # of a run: more products than that are too many


class PerceptronOnExamples:
    """Vectors: A (M, H), then the output's (H, O) and (O,)."""

    @staticmethod
    def pays(model: Perceptron, examples: Examples, n_tests: int) -> bool:
        """Whether the products cost less than they save in `n_tests` counts on the test set."""
        (F, H), M = model.shapes[0], examples.x.shape[1]
        return M < F and M <= MOST_EXAMPLES and n_tests * H * (F - M) > len(examples.x) * M * F

    def __init__(self, model: Perceptron, examples: Examples, initial: Float32) -> None:
        first, b1, self.w2, self.b2 = model.layers(initial)
        self.first, self.b1 = first.reshape(len(first), -1), b1
        (R, M, F), (_, H), L = examples.x.shape, model.shapes[0], model.shapes[3][0]
        self.loss = model.loss
        self.data, n = examples, len(examples.test_y)
        self.shapes = ((M, H), (H, L), (L,))
        x, test = examples.x, examples.test_x.T
        self.products = np.stack([a @ a.T for a in x]) + 1  # (R, M, M)
        self.before = x @ first + b1[:, None]  # what the initial first layer gives, (R, M, H)
        self.test_products = (x.reshape(R * M, F) @ test).reshape(R, M, n)
        self.test_products += 1
        flat = first.swapaxes(1, 2).reshape(R * H, F)
        self.test_before = (flat @ test).reshape(R, H, n) + b1[:, :, None]

    def start(self) -> Float32:
        layers = (np.zeros_like(self.before), self.w2, self.b2)
        return np.concatenate([layer.reshape(len(layer), -1) for layer in layers], axis=1)

    def gradients(
        self, params: Float32, runs: IntArray, examples: IntArray | None, weight: Float32
    ) -> Float32:
        A, w2, b2 = split(params, self.shapes)
        hidden = np.empty((*weight.shape, A.shape[2]), np.float32)
        for b, run in enumerate(runs):
            rows = self.products[run] if examples is None else self.products[run, examples[b]]
            np.matmul(rows, A[b], out=hidden[b])
        chosen = runs if examples is None else (runs[:, None], examples)
        hidden += self.before[chosen]
        np.maximum(hidden, 0, out=hidden)
        scores = w2.swapaxes(1, 2) @ hidden.swapaxes(1, 2) + b2[:, :, None]
        Z = self.loss.residuals(scores.swapaxes(1, 2), self.data.y[chosen], weight)
        back = Z @ w2.swapaxes(1, 2)
        back *= hidden > 0
        out = np.empty_like(params)
        d1, d2, e2 = split(out, self.shapes)
        if examples is None:
            d1[:] = back
        else:
            spread = np.zeros((len(runs), d1.shape[1] + 1, d1.shape[2]), np.float32)
            spread[np.arange(len(runs))[:, None], examples] = back  # what fills up, in the last
            d1[:] = spread[:, :-1]
        np.matmul(hidden.swapaxes(1, 2), Z, out=d2)
        Z.sum(axis=1, out=e2)
        return out

    def norms2(self, vectors: Float32, runs: IntArray) -> FloatArray:
        A = split(vectors, self.shapes)[0]
        rest = vectors[:, A[0].size :]
        through = np.empty_like(A)
        for b, run in enumerate(runs):
            np.matmul(self.products[run], A[b], out=through[b])
        first = np.einsum("bmh,bmh->b", A, through, dtype=np.float64)
        return first + np.einsum("bp,bp->b", rest, rest, dtype=np.float64)

    def parameters(self, vectors: Float32, runs: IntArray) -> Float32:
        A = split(vectors, self.shapes)[0]
        rest = vectors[:, A[0].size :]
        through = (self.data.x[runs].swapaxes(1, 2) @ A).reshape(len(A), -1)
        return np.concatenate([through + self.first[runs], A.sum(axis=1) + self.b1[runs], rest], 1)

    def scores(self, params: Float32, runs: IntArray) -> Float32:
        A, w2, b2 = split(params, self.shapes)
        found = np.empty((len(params), len(self.data.test_x), self.loss.n_outputs), np.float32)
        for run in np.unique(runs):
            mine = runs == run
            found[mine] = hidden_scores(
                A[mine], self.test_products[run], self.test_before[run], w2[mine], b2[mine]
            )
        return found

    def count_correct(self, params: Float32, runs: IntArray) -> IntArray:
        A, w2, b2 = split(params, self.shapes)
        right = np.zeros(len(params), np.int64)
        for run in np.unique(runs):
            mine = runs == run
            right[mine] = count_right(
                A[mine], self.test_products[run], self.test_before[run], w2[mine], b2[mine],
                self.data.test_y,
            )  # fmt: skip
        return right
