"""A perceptron with one hidden layer of rectified units, in closed form.

Batched products and a written-out backward pass: for models this small several times faster than
automatic differentiation (benchmarks/models.py), and PyTorch is not needed.
"""

from __future__ import annotations

import numpy as np

from fedcommons.checks import IntArray
from fedcommons.simulate.models.model import Float32, count_largest, softmax_residuals

HIDDEN = 64
TEST_AT_ONCE = 2000  # examples scored in one product


class Perceptron:
    """Parameters: the hidden layer's (F, H) and (H,), then the output's (H, L) and (L,)."""

    examples_at_once = 1 << 14

    def __init__(self, n_features: int, n_classes: int, hidden: int = HIDDEN) -> None:
        self.shapes = ((n_features, hidden), (hidden,), (hidden, n_classes), (n_classes,))
        self.ends = np.cumsum([np.prod(shape) for shape in self.shapes])

    def initial(self, *, rng: np.random.Generator) -> Float32:
        """Uniform in +-1/sqrt(inputs of the layer), as PyTorch's linear layers."""
        (n_features, hidden), *_ = self.shapes
        widths = np.repeat([n_features, n_features, hidden, hidden], np.diff(self.ends, prepend=0))
        return (rng.uniform(-1, 1, len(widths)) / np.sqrt(widths)).astype(np.float32)

    def gradients(self, params: Float32, x: Float32, y: IntArray, weight: Float32) -> Float32:
        w1, b1, w2, b2 = self._layers(params)
        hidden = x @ w1
        hidden += b1[:, None]
        np.maximum(hidden, 0, out=hidden)
        Z = softmax_residuals(hidden @ w2 + b2[:, None], y, weight)
        back = Z @ w2.swapaxes(1, 2)
        back *= hidden > 0
        out = np.empty_like(params)
        d1, e1, d2, e2 = self._layers(out)
        np.matmul(x.swapaxes(1, 2), back, out=d1)
        back.sum(axis=1, out=e1)
        np.matmul(hidden.swapaxes(1, 2), Z, out=d2)
        Z.sum(axis=1, out=e2)
        return out

    def count_correct(self, params: Float32, x: Float32, y: IntArray) -> IntArray:
        w1, b1, w2, b2 = self._layers(params)
        B, F, H = w1.shape
        stacked = np.ascontiguousarray(w1.swapaxes(1, 2)).reshape(B * H, F)
        out = np.ascontiguousarray(w2.swapaxes(1, 2))
        right = np.zeros(B, np.int64)
        for start in range(0, len(x), TEST_AT_ONCE):
            part = slice(start, start + TEST_AT_ONCE)
            hidden = stacked @ x[part].T
            hidden += b1.reshape(-1, 1)
            np.maximum(hidden, 0, out=hidden)
            scores = out @ hidden.reshape(B, H, -1) + b2[:, :, None]
            right += count_largest(scores, y[part])
        return right

    def _layers(self, params: Float32) -> list[Float32]:
        parts = np.split(params, self.ends[:-1], axis=1)
        return [part.reshape(-1, *shape) for part, shape in zip(parts, self.shapes, strict=True)]
