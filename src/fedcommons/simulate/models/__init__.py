"""Models that a study can name: softmax, linear, mlp, cnn, or a torch module by its path."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from fedcommons.errors import ArgumentError, StudyError
from fedcommons.registry import IMPORT_PATH, imported, source_of
from fedcommons.simulate.models.linear import Linear
from fedcommons.simulate.models.mlp import Perceptron
from fedcommons.simulate.models.model import Float32, Model
from fedcommons.simulate.models.on_examples import Examples, OnExamples, Plain
from fedcommons.simulate.models.perceptron_on_examples import PerceptronOnExamples
from fedcommons.tasks.cross_entropy import CrossEntropy
from fedcommons.tasks.loss import Loss

NAMES = ("softmax", "linear", "mlp", "cnn")
LINEAR = ("softmax", "linear")  # the same: with cross-entropy, and with other losses

__all__ = [
    "LINEAR",
    "NAMES",
    "Examples",
    "Model",
    "OnExamples",
    "check_name",
    "linear_name",
    "load",
    "needs_torch",
    "on_examples",
    "source",
]


def check_name(name: str) -> None:
    """Refuse what cannot be a model."""
    if name not in NAMES and not IMPORT_PATH.fullmatch(name):
        raise ArgumentError(
            f"model must be one of {', '.join(NAMES)}, or the import path of a torch module such "
            f"as 'package.module:factory', got {name!r}"
        )


def linear_name(loss: str) -> str:
    """What the linear model is called with the loss of this name."""
    return LINEAR[loss != CrossEntropy.name]


def needs_torch(name: str) -> bool:
    return name not in (*LINEAR, "mlp")


def load(name: str, example_shape: tuple[int, ...], loss: Loss) -> Model:
    """The model of this name for examples of this shape, with a score for each output of a loss."""
    check_name(name)
    n_features = 1
    for size in example_shape:
        n_features *= size
    if name in LINEAR:
        return Linear(n_features, loss)
    if name == "mlp":
        return Perceptron(n_features, loss)
    if find_spec("torch") is None:
        raise StudyError(f"model {name} needs PyTorch: pip install 'fedcommons[torch]'")
    from fedcommons.simulate.models.torch_module import TorchModel, cnn

    if name == "cnn":
        image = example_shape if len(example_shape) == 3 else (1, *example_shape)
        if len(image) != 3 or min(image[1:]) < 4:
            raise StudyError(
                "model cnn must have examples that are images of at least 4 x 4, (height, width) "
                f"or (channels, height, width), got shape {example_shape}"
            )
        return TorchModel(functools.partial(cnn, loss.n_outputs, image), image, loss, name)
    factory = _imported(name)
    if _takes_sizes(factory):
        factory = functools.partial(factory, loss.n_outputs, example_shape)
    return TorchModel(_reported(factory, name), example_shape, loss, name)


def on_examples(model: Model, examples: Examples, initial: Float32, n_tests: int) -> OnExamples:
    """The model on the examples of a block, for so many counts of what it gets right."""
    if isinstance(model, Perceptron) and PerceptronOnExamples.pays(model, examples, n_tests):
        return PerceptronOnExamples(model, examples, initial)
    return Plain(model, examples, initial)


def source(name: str) -> str:
    """The text of the files that define a model by import path: part of a study's digest.

    That of the module in the path, and where it only passes on what another defines, that too.
    """
    factory = inspect.unwrap(_imported(name))
    while isinstance(factory, functools.partial):
        factory = inspect.unwrap(factory.func)
    try:
        return source_of(name, defined_in=factory)
    except ArgumentError as error:
        raise StudyError(f"model {error}") from None


def _imported(name: str) -> Callable[..., Any]:
    """The factory of an import path; modules in the working folder are found as well."""
    try:
        found: Callable[..., Any] = imported(name, "model")
    except ArgumentError as error:
        raise StudyError(str(error)) from None
    if not callable(found):
        raise StudyError(f"model {name} must be a function or a class, got {found!r}")
    return found


def _takes_sizes(factory: Callable[..., Any]) -> bool:
    """Whether it is factory(n_classes, input_shape), or n_outputs as the first."""
    try:
        wanted = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return list(wanted)[:2] in (["n_classes", "input_shape"], ["n_outputs", "input_shape"])


def _reported(factory: Callable[..., Any], name: str) -> Callable[..., Any]:
    def make() -> Any:
        try:
            return factory()
        except (Exception, SystemExit) as error:
            raise StudyError(
                f"model {name} cannot be made: {type(error).__name__}: {error}"
            ) from None

    return make
