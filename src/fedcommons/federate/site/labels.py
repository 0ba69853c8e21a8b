"""A site's labels as the federation has them: class numbers, or targets of any type and shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import IntArray
from fedcommons.errors import ArgumentError, DataError
from fedcommons.federate.protocol.example_schema import CLASS_NUMBER, is_class_number
from fedcommons.federate.protocol.packing import DTYPES


def checked_labels(y: npt.ArrayLike, n_examples: int, source: str) -> npt.NDArray[Any]:
    """Labels of so many examples; raise if they are no numbers, or not finite.

    Integers and booleans of any width are int64: one of them for each example is a class number.
    Floating-point numbers keep their width.
    """
    y = np.asarray(y)
    if y.dtype.kind in "USOT":
        raise DataError(
            f"{source}: y must be numbers, got {_kind_of_text(y)}; labels that are words need the "
            "list of classes that all sites have, as attach(app, classes=[...])"
        )
    is_number = y.dtype.kind in "biuf" and str(y.dtype.newbyteorder("=")) in DTYPES
    if not is_number or y.ndim < 1 or 0 in y.shape[1:] or len(y) != n_examples:
        raise DataError(
            f"{source}: y must be numbers (examples, ...), a label for each of the {n_examples} "
            f"examples, got {y.dtype}, shape {y.shape}"
        )
    if y.dtype.kind == "f":
        y = y.astype(y.dtype.newbyteorder("="))
        if not np.isfinite(y).all():
            row, *_ = np.argwhere(~np.isfinite(y))[0]
            raise DataError(
                f"{source}: y must be finite, got {y[row]} in example {row}: leave examples out "
                "that have no label"
            )
        return y
    if y.size and y.dtype.kind == "u" and y.max() > checks.LARGEST:
        raise DataError(f"{source}: y must be at most {checks.LARGEST}, got {y.max()}")
    y = y.astype(CLASS_NUMBER)
    if is_class_number(y.dtype, y.shape[1:]) and y.size and y.min() < 0:
        raise DataError(
            f"{source}: y must be class numbers from 0 if they are integers, got {y.min()}; "
            "targets that are no classes must be floating-point numbers"
        )
    return y


def class_names(classes: Sequence[str]) -> tuple[str, ...]:
    """The names of the classes, in the order of their numbers."""
    names = tuple(classes)
    wrong = isinstance(classes, str) or not all(isinstance(name, str) for name in names)
    if wrong or not names or len(set(names)) != len(names):
        raise ArgumentError(f"classes must be different names, got {classes!r}")
    return names


def numbered(y: npt.ArrayLike, classes: Sequence[str], source: str) -> IntArray:
    """The class number of each label, which is looked up by its text."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise DataError(f"{source}: y must be one name of a class each, got shape {y.shape}")
    numbers = {name: number for number, name in enumerate(classes)}
    texts = [str(label).strip() for label in y.tolist()]
    for row, text in enumerate(texts):
        if text not in numbers:
            raise DataError(
                f"{source}: y must be one of {', '.join(map(repr, classes))}, got {text!r} in "
                f"example {row}"
            )
    return np.array([numbers[text] for text in texts], np.int64)


def in_words(y: npt.NDArray[Any]) -> str:
    """What labels there are: the class numbers, or the range of targets."""
    if is_class_number(y.dtype, y.shape[1:]):
        found = np.unique(y)
        return ", ".join(map(str, found[:20])) + (", ..." if len(found) > 20 else "")
    if not y.size:
        return "none"
    columns = y.reshape(len(y), -1)
    ranges = [
        f"{low:g} to {high:g}" for low, high in zip(columns.min(0), columns.max(0), strict=True)
    ]
    return ", ".join(ranges[:20]) + (", ..." if len(ranges) > 20 else "")


def _kind_of_text(y: npt.NDArray[Any]) -> str:
    return f"{y.dtype}" + (f" such as {y.flat[0]!r}" if y.size else "")
