"""A perceptron with one hidden layer of rectified units, in closed form.

Batched products and a written-out backward pass: for models this small several times faster than
automatic differentiation (benchmarks/models.py), and PyTorch is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedcommons.checks import IntArray
from fedcommons.simulate.models.model import Float32, count_largest
from fedcommons.tasks.loss import Loss, Targets

HIDDEN = 64
HIDDEN_AT_ONCE = 1 << 19  # hidden units scored in one product, about: they stay in the cache
FEWEST_AT_ONCE = 100  # examples: products of fewer are slow


class Perceptron:
    """Parameters: the hidden layer's (F, H) and (H,), then the output's (H, O) and (O,)."""

    examples_at_once = 1 << 14

    def __init__(self, n_features: int, loss: Loss, hidden: int = HIDDEN) -> None:
        self.loss, n_outputs = loss, loss.n_outputs
        self.shapes = ((n_features, hidden), (hidden,), (hidden, n_outputs), (n_outputs,))

    def initial(self, *, rng: np.random.Generator) -> Float32:
        """Uniform in +-1/sqrt(inputs of the layer), as PyTorch's linear layers."""
        (n_features, hidden), *_ = self.shapes
        sizes = [math.prod(shape) for shape in self.shapes]
        widths = np.repeat([n_features, n_features, hidden, hidden], sizes)
        return (rng.uniform(-1, 1, len(widths)) / np.sqrt(widths)).astype(np.float32)

    def gradients(self, params: Float32, x: Float32, y: Targets, weight: Float32) -> Float32:
        w1, b1, w2, b2 = self.layers(params)
        hidden = x @ w1
        hidden += b1[:, None]
        np.maximum(hidden, 0, out=hidden)
        Z = self.loss.residuals(hidden @ w2 + b2[:, None], y, weight)
        back = Z @ w2.swapaxes(1, 2)
        back *= hidden > 0
        out = np.empty_like(params)
        d1, e1, d2, e2 = self.layers(out)
        np.matmul(x.swapaxes(1, 2), back, out=d1)
        back.sum(axis=1, out=e1)
        np.matmul(hidden.swapaxes(1, 2), Z, out=d2)
        Z.sum(axis=1, out=e2)
        return out

    def scores(self, params: Float32, x: Float32) -> Float32:
        w1, b1, w2, b2 = self.layers(params)
        return hidden_scores(w1, x.T, b1[:, :, None], w2, b2)

    def count_correct(self, params: Float32, x: Float32, y: IntArray) -> IntArray:
        w1, b1, w2, b2 = self.layers(params)
        return count_right(w1, x.T, b1[:, :, None], w2, b2, y)

    def layers(self, params: Float32) -> list[Float32]:
        return split(params, self.shapes)


def split(vectors: Float32, shapes: Sequence[tuple[int, ...]]) -> list[Float32]:
    """Vectors (B, P) as arrays of these shapes, one after the other."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(vectors, ends[:-1], axis=1)
    return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


def hidden_scores(
    first: Float32, inputs: Float32, offset: Float32, w2: Float32, b2: Float32
) -> Float32:
    """What each perceptron gives for n examples, (B, n, O); shapes as in `count_right`."""
    (B, _, H), n = first.shape, inputs.shape[1]
    offset = np.broadcast_to(offset, (B, H, n))
    found = np.empty((B, n, w2.shape[2]), np.float32)
    at_once = max(FEWEST_AT_ONCE, HIDDEN_AT_ONCE // (B * H))
    for start in range(0, n, at_once):
        part = slice(start, start + at_once)
        hidden = first.swapaxes(1, 2) @ inputs[:, part] + offset[:, :, part]
        np.maximum(hidden, 0, out=hidden)
        found[:, part] = hidden.swapaxes(1, 2) @ w2 + b2[:, None]
    return found


def count_right(
    first: Float32, inputs: Float32, offset: Float32, w2: Float32, b2: Float32, y: IntArray
) -> IntArray:
    """How many of n examples each perceptron gets right: (B,).

    Shapes: first layers (B, K, H) on inputs (K, n), plus an offset that broadcasts to
    (B, H, n); the output's (B, H, L) and (B, L); labels (n,).
    """
    B, K, H = first.shape
    offset = np.broadcast_to(offset, (B, H, len(y)))
    side_by_side = first.swapaxes(0, 1).reshape(K, B * H)
    at_once = max(FEWEST_AT_ONCE, HIDDEN_AT_ONCE // (B * H))
    right = np.zeros(B, np.int64)
    for start in range(0, len(y), at_once):
        part = slice(start, start + at_once)
        hidden = (side_by_side.T @ inputs[:, part]).reshape(B, H, -1)
        hidden += offset[:, :, part]
        np.maximum(hidden, 0, out=hidden)
        right += count_largest(w2.swapaxes(1, 2) @ hidden + b2[:, :, None], y[part])
    return right
