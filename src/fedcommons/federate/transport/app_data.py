"""An app's own data function as a site's examples: how it is called, and what it may return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context

from fedcommons.errors import ArgumentError, DataError
from fedcommons.federate.site.own_data import SiteData

Shareable = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.ArrayLike] | bool

FORMS = (
    "SiteData; arrays (x, y), (x, y, shareable) or (x, y, x_test, y_test); a dataset or loader of "
    "(x, y), alone, before a test set's, or before a mask of what is shareable"
)


def site_data(
    load: Callable[..., Any], context: Context, shareable: Shareable | None = None
) -> SiteData:
    """The examples that an app's data function loads at this site, in any of `FORMS`.

    A dataset is one of torch, Hugging Face or alike: it has a length and gives example k as (input,
    label), or as a mapping of these two, the label last. What may be shared is in what the function
    returns, or `shareable` tells it from inputs and labels; else all are private.
    """
    given = load(**_arguments(load, context))
    if isinstance(given, SiteData):
        if shareable is not None:
            raise ArgumentError("shareable must be said in the SiteData if data returns such")
        return given
    x, y, mask = _parts(given)
    if shareable is not None:
        if mask is not None:
            raise ArgumentError("shareable must be said once: data returns it as well")
        mask = np.full(len(y), shareable) if isinstance(shareable, bool) else shareable(x, y)
    if not len(y):
        return SiteData.none()
    return SiteData.from_arrays(x, y, mask)


def example_parts(example: Any) -> tuple[Any, Any]:
    """The input and the label of one example."""
    parts = list(example.values()) if isinstance(example, Mapping) else example
    if not isinstance(parts, Sequence) or isinstance(parts, str | bytes) or len(parts) != 2:
        raise DataError(
            "a dataset must have examples of an input and a label, as (x, y) or a mapping of these "
            f"two, got {_described(example)}"
        )
    return parts[0], parts[1]


def _arguments(load: Callable[..., Any], context: Context) -> dict[str, Any]:
    """The arguments of a data function by its parameters' names.

    A function of one thing that is in neither config gets the context; others what the node config
    and the run config have under these names, with dashes.
    """
    known = {
        **{name.replace("-", "_"): value for name, value in context.run_config.items()},
        **{name.replace("-", "_"): value for name, value in context.node_config.items()},
        "context": context,
    }
    required = [
        parameter.name
        for parameter in inspect.signature(load).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) == 1 and required[0] not in known:
        known[required[0]] = context
    for name in required:
        if name not in known:
            raise ArgumentError(
                "data must ask for context, or by name for what the node config and the run config "
                f"have, got {name!r}: there is no {name.replace('_', '-')}"
            )
    return {name: known[name] for name in required}


def _parts(given: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.ArrayLike | None]:
    """Inputs, labels and, where it is said, what is shareable."""
    parts = given if isinstance(given, tuple) else (given,)
    if len(parts) in (2, 3, 4) and all(hasattr(part, "shape") for part in parts[:2]):
        return np.asarray(parts[0]), np.asarray(parts[1]), parts[2] if len(parts) == 3 else None
    dataset = _dataset(parts[0]) if parts else None
    if dataset is None:
        raise DataError(f"data must return {FORMS}, got {_described(given)}")
    if len(parts) == 1 or _dataset(parts[1]) is not None:
        return *_arrays(dataset), None
    return *_arrays(dataset), parts[1]


def _dataset(given: Any) -> Any:
    """The dataset that this is or that is behind this loader; None if it is neither."""
    found = getattr(given, "dataset", given)
    indexed = hasattr(found, "__len__") and hasattr(found, "__getitem__")
    return found if indexed and not isinstance(found, Mapping | Sequence | np.ndarray) else None


def _arrays(dataset: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if not len(dataset):
        return np.empty((0, 1)), np.empty(0, np.int64)
    examples = [example_parts(dataset[k]) for k in range(len(dataset))]
    shapes = dict.fromkeys(np.shape(x) for x, _ in examples)
    if len(shapes) > 1:
        first, other, *_ = shapes
        raise DataError(f"a dataset must have inputs of one shape, got {first} and {other}")
    x, y = (np.stack([np.asarray(example[part]) for example in examples]) for part in (0, 1))
    again, _ = example_parts(dataset[0])
    if not np.array_equal(x[0], np.asarray(again)):
        raise DataError(
            "a dataset must give the same examples each time, got another input when example 0 was "
            "read again: random transforms belong into the training function"
        )
    return x, y


def _described(given: Any) -> str:
    kind = type(given).__name__
    return f"a {kind} of {len(given)}" if isinstance(given, Sequence | Mapping) else f"a {kind}"
