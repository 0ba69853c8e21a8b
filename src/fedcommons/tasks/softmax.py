"""Multinomial logistic regression with bias, the paper's model.

The gradient of example j is the outer product of its input (with a 1 for the bias) and its residual
z_j = softmax(scores) - onehot(label). So scalar products of gradients need no gradients:
<g_j, g_k> = (<x_j, x_k> + 1) <z_j, z_k>.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from fedcommons.theory.expected_variance import Geometry


def residuals(scores: npt.ArrayLike, labels: npt.ArrayLike) -> FloatArray:
    """softmax(scores) - onehot(labels), from scores (M, L): shape (M, L)."""
    scores = checks.finite("scores", scores, ndim=2)
    labels, _ = checks.labels(labels, scores.shape[1])
    checks.same_length("labels", labels, len(scores))
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    Z = exps / exps.sum(axis=1, keepdims=True)
    Z[np.arange(len(labels)), labels] -= 1
    return Z


def initial_residuals(labels: npt.ArrayLike, n_classes: int) -> FloatArray:
    """The residuals at zero weights: 1/L - onehot(labels), shape (M, L)."""
    labels, n_classes = checks.labels(labels, n_classes)
    return residuals(np.zeros((len(labels), n_classes)), labels)


def input_products(inputs: npt.ArrayLike) -> FloatArray:
    """<x_j, x_k> + 1 from inputs (M, F): shape (M, M)."""
    X = checks.finite("inputs", inputs, ndim=2)
    return X @ X.T + 1


def gradient_products(inputs: npt.ArrayLike, residuals: npt.ArrayLike) -> FloatArray:
    """<g_j, g_k>, shape (M, M)."""
    X, Z = _same_examples(inputs, residuals)
    return input_products(X) * (Z @ Z.T)


def gradients(inputs: npt.ArrayLike, residuals: npt.ArrayLike) -> FloatArray:
    """Every example's gradient, shape (M, (F + 1) L), the bias last. Large: for M of hundreds."""
    X, Z = _same_examples(inputs, residuals)
    X = with_bias(X)
    return (X[:, :, None] * Z[:, None, :]).reshape(len(X), -1)


def initial_geometry(inputs: npt.ArrayLike, labels: npt.ArrayLike, n_classes: int) -> Geometry:
    """Mean scalar products of gradients at zero weights, within and between classes.

    From class sums of the inputs, without the (M, M) products; two examples of each class needed.
    """
    from fedcommons.theory.expected_variance import Geometry  # a deployed site does without

    labels, L = checks.labels(labels, n_classes)
    X = with_bias(checks.finite("inputs", inputs, ndim=2))
    checks.same_length("labels", labels, len(X))
    n = np.bincount(labels, minlength=L)
    if n.min() < 2:
        raise ArgumentError(f"labels must have two examples of each class, got {n.min()}")
    sums = np.stack([X[labels == label].sum(axis=0) for label in range(L)])
    norm2 = np.bincount(labels, (X**2).sum(axis=1), minlength=L)
    products = (sums @ sums.T - np.diag(norm2)) / (np.outer(n, n) - np.diag(n))
    residual_products = np.eye(L) - 1 / L
    return Geometry(norm2 / n * (1 - 1 / L), products * residual_products)


def _same_examples(
    inputs: npt.ArrayLike, residuals: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    X = checks.finite("inputs", inputs, ndim=2)
    Z = checks.finite("residuals", residuals, ndim=2)
    checks.same_length("residuals", Z, len(X))
    return X, Z


def weighted_gradient(
    beta: FloatArray, inputs: FloatArray, labels: IntArray, weights: FloatArray
) -> FloatArray:
    """sum_j b_j g_j = sum_j b_j x_j z_j^T at the parameters beta, (F + 1, L).

    `inputs` have the bias feature (`with_bias`). What a client answers, in the simulator and in a
    federation.
    """
    Z = residuals(inputs @ beta, labels)
    return inputs.T @ (weights[:, None] * Z)


class SoftmaxRegression:
    """The task of training it: parameters (F + 1, L), flat, the bias last."""

    def __init__(
        self,
        inputs: npt.ArrayLike,
        labels: npt.ArrayLike,
        test_inputs: npt.ArrayLike,
        test_labels: npt.ArrayLike,
        n_classes: int,
    ) -> None:
        self.inputs = with_bias(checks.finite("inputs", inputs, ndim=2))
        self.labels, self.n_classes = checks.labels(labels, n_classes)
        self.test_inputs = with_bias(checks.finite("test_inputs", test_inputs, ndim=2))
        self.test_labels, _ = checks.labels(test_labels, n_classes)

    def initial(self) -> FloatArray:
        return np.zeros(self.inputs.shape[1] * self.n_classes)

    def answers(self, params: FloatArray, shares: csr_array) -> FloatArray:
        """f_i = sum_j b_ij g_j = sum_j b_ij x_j z_j^T of every client: (N, P)."""
        beta = params.reshape(-1, self.n_classes)
        answers = np.empty((shares.shape[0], len(params)))
        for client in range(shares.shape[0]):
            row = slice(shares.indptr[client], shares.indptr[client + 1])
            held = shares.indices[row]
            answers[client] = weighted_gradient(
                beta, self.inputs[held], self.labels[held], shares.data[row]
            ).ravel()
        return answers

    def scores(self, params: FloatArray) -> FloatArray:
        """Of the test examples: (n, L)."""
        return self.test_inputs @ params.reshape(-1, self.n_classes)

    def count_correct(self, params: FloatArray) -> int:
        """Ties go to the lowest label."""
        return int((self.scores(params).argmax(axis=1) == self.test_labels).sum())


def with_bias(inputs: FloatArray) -> FloatArray:
    """Inputs with a last feature that is always 1."""
    return np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)


__all__ = [
    "SoftmaxRegression",
    "gradient_products",
    "gradients",
    "initial_geometry",
    "initial_residuals",
    "input_products",
    "residuals",
    "weighted_gradient",
    "with_bias",
]


def __dir__() -> list[str]:
    return __all__
