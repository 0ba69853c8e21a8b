"""Multinomial logistic regression with bias, the paper's model.

The gradient of example j is the outer product of its input (with a 1 for the bias) and its residual
z_j = softmax(scores) - onehot(label). So scalar products of gradients need no gradients:
<g_j, g_k> = (<x_j, x_k> + 1) <z_j, z_k>.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import FloatArray


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
    Z = checks.finite("residuals", residuals, ndim=2)
    return input_products(inputs) * (Z @ Z.T)


def gradients(inputs: npt.ArrayLike, residuals: npt.ArrayLike) -> FloatArray:
    """Every example's gradient, shape (M, (F + 1) L), the bias last. Large: for M of hundreds."""
    X = checks.finite("inputs", inputs, ndim=2)
    Z = checks.finite("residuals", residuals, ndim=2)
    X = np.concatenate([X, np.ones((len(X), 1))], axis=1)
    return (X[:, :, None] * Z[:, None, :]).reshape(len(X), -1)
