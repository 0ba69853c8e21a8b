"""A site's coded answer, made of what the app's training function returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedcommons import coding
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays, is_trained
from fedcommons.federate.protocol.refusals import LocalStepsIgnored
from fedcommons.federate.transport.weighted_examples import WeightedExamples


class Train(Protocol):
    """Trains from the question's model, or from `at`: the trained "arrays", or the "gradient"."""

    def __call__(
        self, examples: WeightedExamples, at: NamedArrays | None = None
    ) -> Mapping[str, NamedArrays]: ...


EXACT_SPREAD_UP_TO = 1000  # shared examples whose gradients are taken one by one


def answer(
    model: NamedArrays, examples: WeightedExamples, train: Train, *, is_other: bool = False
) -> NamedArrays:
    """What the training function makes of the examples, as an answer.

    It may return the trained model ("arrays"), as any Flower app does: the answer is then W times
    how far it went down, for shares that sum to W and a loss that is a mean of weight times loss.
    Or it may return the "gradient", the weighted sum over all examples, where one full step is
    asked for. Nothing else leaves the site. The model is the question's, or another one.
    """
    if not len(examples) or not examples.counts:  # nothing that the site could add
        return {name: np.zeros_like(array) for name, array in model.items()}
    returned = train(examples, model) if is_other else train(examples)
    if "gradient" in returned:
        if examples.local_steps > 1 or examples.batch_size:
            raise LocalStepsIgnored("a gradient is one step on all examples")
        scale = examples.counts / len(examples)
        return {
            name: _scaled(array, scale)
            if is_trained(name, str(array.dtype))
            else model.get(name, array)
            for name, array in returned["gradient"].items()
        }
    if "arrays" not in returned:
        raise FederationError(
            f"the training function must return 'arrays' or 'gradient', got {sorted(returned)}"
        )
    trained = returned["arrays"]
    given, found = ModelSchema.of(model), ModelSchema.of(trained)
    if found != given:
        raise FederationError(
            "the training function must return the arrays that it was given, got "
            f"{found.first_difference(given)}"
        )
    return {
        name: _descent(array, trained[name], examples.counts)
        if is_trained(name, str(array.dtype))
        else array
        for name, array in model.items()
    }


def owner_share(
    model: NamedArrays,
    train: Train,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    shared: npt.NDArray[np.bool_],
    copies: IntArray,
) -> float:
    """The best w of this owner at this model (`coding.best_owner_share`).

    Args:
        x, y: the owner's own examples.
        shared: which of them were shared.
        copies: how many copies there are of each.
    """

    def gradient(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> FloatArray:
        """The sum of the gradients of these examples, up to a factor common to all."""
        arrays = answer(model, WeightedExamples(x, y, np.ones(len(y)), one_step=True), train)
        return ModelSchema.of(arrays).vector(arrays)

    if not shared.any():
        return 1.0
    S = gradient(x[shared], y[shared])
    P = gradient(x[~shared], y[~shared]) if not shared.all() else np.zeros_like(S)
    rows = np.flatnonzero(shared)
    some = rows[:: -(-len(rows) // EXACT_SPREAD_UP_TO)]
    norms = [float((gradient(x[[row]], y[[row]]) ** 2).sum()) / copies[row] for row in some]
    spread = sum(norms) * len(rows) / len(some)
    return float(coding.best_owner_share([P @ S], [S @ S], [spread])[0])


def _descent(start: npt.NDArray[Any], end: npt.NDArray[Any], counts: float) -> npt.NDArray[Any]:
    return _scaled(np.subtract(start, end, dtype=np.float64), counts, start.dtype)


def _scaled(
    array: npt.NDArray[Any], scale: float, dtype: npt.DTypeLike | None = None
) -> npt.NDArray[Any]:
    """The array times a number, computed in float64, rounded once, without a copy in between."""
    found = np.empty(array.shape, dtype or array.dtype)
    return np.multiply(array, scale, out=found, dtype=np.float64, casting="same_kind")
