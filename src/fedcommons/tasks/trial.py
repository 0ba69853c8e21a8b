"""Trying somebody else's loss before anything is trained: is it what training takes it for?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import ArgumentError, FedcommonsError
from fedcommons.tasks.loss import Loss

if TYPE_CHECKING:
    from fedcommons.datasets import Dataset

EXAMPLES = 8
PLACES = 24  # scores by which the derivative is compared
STEP = 1e-3


def tried(name: str, fit: Callable[[], Loss], dataset: Dataset) -> Loss:
    """The loss that `fit` gives for the dataset; errors speak of it by its name."""
    try:
        loss = fit()
        _check_outputs(name, loss, dataset)
        _check_derivative(name, loss, loss.targets(dataset.y_train)[:EXAMPLES][None])
    except FedcommonsError:
        raise
    except Exception as error:  # whatever it does
        raise ArgumentError(f"loss {name} failed: {type(error).__name__}: {error}") from error
    return loss


def _check_outputs(name: str, loss: Loss, dataset: Dataset) -> None:
    if loss.kind == "classes" and loss.n_outputs != dataset.n_classes:
        raise ArgumentError(
            f"loss {name}: n_outputs must be the number of classes, {dataset.n_classes}, got "
            f"{loss.n_outputs}"
        )
    _check_length(f"loss {name}: targets", loss.targets(dataset.y_train), len(dataset.y_train))
    groups = loss.groups(dataset.y_train, 10)
    _check_length(f"loss {name}: groups", groups, len(dataset.y_train))


def _check_length(what: str, found: object, length: int) -> None:
    got = found.shape if isinstance(found, np.ndarray) else found
    if not isinstance(found, np.ndarray) or found.shape[:1] != (length,):
        raise ArgumentError(f"{what} must have a row for each of {length} examples, got {got!r}")


def _check_derivative(name: str, loss: Loss, y: npt.NDArray[Any]) -> None:
    """Compare residuals with differences of the values: y are targets, (1, H, ...)."""
    rng = np.random.default_rng(0)
    shape = (1, y.shape[1], loss.n_outputs)
    scores = rng.normal(size=shape)
    # What is no sum over examples has no weights in its values.
    drawn = rng.uniform(0.5, 1.5, shape[:2]) if loss.decomposable else np.ones(shape[:2])
    weight = drawn.astype(np.float32)
    found = loss.residuals(scores.astype(np.float32), y.copy(), weight.copy())
    _check_shape(f"loss {name}: residuals", found, shape)
    if found.dtype != np.float32:
        raise ArgumentError(f"loss {name}: residuals must be float32, got {found.dtype}")

    def value(at: npt.NDArray[Any]) -> float:
        values = loss.values(at, y.copy())
        _check_shape(f"loss {name}: values", values, shape[:2])
        return float((weight * values).sum())

    places, wrong = rng.permutation(scores.size)[:PLACES], []
    for place in places:
        step = np.zeros(scores.size)
        step[place] = STEP
        up, down = (value(scores + sign * step.reshape(shape)) for sign in (1, -1))
        expected, got = (up - down) / (2 * STEP), float(found.flat[place])
        if not abs(got - expected) <= 0.02 * abs(expected) + 1e-3:
            wrong.append((got, expected))
    if len(wrong) > len(places) // 8:  # a loss with kinks may have one in between
        got, expected = wrong[0]
        raise ArgumentError(
            f"loss {name}: residuals must be the derivative of the weighted values by the scores, "
            f"got {got:.4g} where the values change by {expected:.4g}"
        )


def _check_shape(what: str, found: object, shape: tuple[int, ...]) -> None:
    if not isinstance(found, np.ndarray) or found.shape != shape:
        got = found.shape if isinstance(found, np.ndarray) else found
        raise ArgumentError(f"{what} must be an array of shape {shape}, got {got!r}")
