import numpy as np
import pytest

from fedcommons.tasks import softmax
from tests.reference import loops


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    x, y = rng.random((9, 4)), rng.integers(0, 3, 9)
    return x, y, rng.normal(size=(5, 3))


def test_gradients_are_the_definitions(problem):
    x, y, beta = problem
    scores = x @ beta[:-1] + beta[-1]
    gradients = softmax.gradients(x, softmax.residuals(scores, y))
    for j in range(len(x)):
        assert np.allclose(gradients[j], loops.softmax_gradient(x[j], y[j], beta))


def test_gradients_are_the_derivative_of_the_loss(problem):
    x, y, beta = problem

    def loss(beta: np.ndarray) -> float:
        scores = x @ beta[:-1] + beta[-1]
        return float((np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(9), y]).sum())

    full = softmax.gradients(x, softmax.residuals(x @ beta[:-1] + beta[-1], y)).sum(axis=0)
    for k in range(beta.size):
        step = np.zeros(beta.size)
        step[k] = 1e-5
        slope = (loss(beta + step.reshape(5, 3)) - loss(beta - step.reshape(5, 3))) / 2e-5
        assert full[k] == pytest.approx(slope, abs=1e-8)


def test_products_need_no_gradients(problem):
    x, y, beta = problem
    residuals = softmax.residuals(x @ beta[:-1] + beta[-1], y)
    gradients = softmax.gradients(x, residuals)
    assert np.allclose(softmax.gradient_products(x, residuals), gradients @ gradients.T)


def test_large_scores_do_not_overflow():
    residuals = softmax.residuals([[1e4, -1e4], [-1e4, 1e4]], [0, 0])
    assert np.allclose(residuals, [[0, 0], [-1, 1]])


def test_initial_residuals_are_uniform(problem):
    _, y, _ = problem
    residuals = softmax.initial_residuals(y, 3)
    assert np.allclose(residuals, 1 / 3 - np.eye(3)[y])
