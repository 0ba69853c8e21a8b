"""The form of a site's examples: what must be the same at all sites that share.

Features are matched by position. If they have names, a digest of the names shows whether two sites
have the same features in the same order, without revealing the names.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

DTYPE, SHAPE = r"[a-z]{1,8}[0-9]{0,3}", r"[0-9]{1,19}(x[0-9]{1,19}){0,62}"
LAYOUT = re.compile(rf"({DTYPE} {SHAPE}( -> {DTYPE}( {SHAPE})?)?)?")
DIGEST = 16  # bytes
CLASS_NUMBER = np.dtype(np.int64)  # a label that is one integer: the number of a class


@dataclass(frozen=True, slots=True)
class ExampleForm:
    """What a site expects of every example, its own and those that it receives.

    Attributes:
        dtype, shape: of one example's inputs.
        label_dtype, label_shape: of its label: a class number, or a target of any kind.
        n_classes: class numbers are below it; None if the number of classes is not known.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    label_dtype: np.dtype[Any] = CLASS_NUMBER
    label_shape: tuple[int, ...] = ()
    n_classes: int | None = None

    @property
    def has_class_numbers(self) -> bool:
        """Whether a label is one integer, which counts classes from 0."""
        return is_class_number(self.label_dtype, self.label_shape)

    @property
    def row_bytes(self) -> int:
        """The bytes of one example on the wire: inputs, label and share number."""
        inputs = self.dtype.itemsize * math.prod(self.shape)
        return inputs + self.label_dtype.itemsize * math.prod(self.label_shape) + 8


class Described(Protocol):
    """What a site says about its examples; an empty text says nothing and fits everything."""

    @property
    def site(self) -> str: ...

    @property
    def layout(self) -> str: ...

    @property
    def columns(self) -> str: ...


def is_class_number(dtype: np.dtype[Any], shape: Sequence[int]) -> bool:
    """Whether labels of this type and shape are class numbers."""
    return dtype == CLASS_NUMBER and not shape


def layout_of(form: ExampleForm) -> str:
    """The type and shape of one example as text, for instance `float32 28x28`.

    Labels that are no class numbers are a part of it: `float32 13 -> float64 2`.
    """
    inputs = _array(form.dtype, form.shape)
    if form.has_class_numbers:
        return inputs
    return f"{inputs} -> {_array(form.label_dtype, form.label_shape)}"


def _array(dtype: np.dtype[Any], shape: Sequence[int]) -> str:
    return f"{dtype} {'x'.join(map(str, shape))}".rstrip()


def digest_of_columns(names: Sequence[str]) -> str:
    """The digest of the features' names, in order."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()[: 2 * DIGEST]


def usual(sites: Iterable[Described]) -> tuple[str, str]:
    """The most frequent layout, and the most frequent columns among the sites that have it.

    A tie goes to the site whose name comes first.
    """
    in_order = sorted(sites, key=lambda one: one.site)
    layout = _of_most(one.layout for one in in_order)
    return layout, _of_most(one.columns for one in in_order if one.layout == layout)


def _of_most(said: Iterable[str]) -> str:
    counts = Counter(filter(None, said))
    return max(counts, key=counts.__getitem__, default="")


def misfit(site: Described, layout: str, columns: str) -> str:
    """How a site's examples differ from this layout and these columns; empty if they fit."""
    if site.layout and layout and site.layout != layout:
        (inputs, labels), (usual_inputs, usual_labels) = _parts(site.layout), _parts(layout)
        if inputs == usual_inputs:
            return f"its labels are {labels}, the others' {usual_labels}"
        return f"its examples are {site.layout}, the others' {layout}"
    if site.columns and columns and site.columns != columns:
        return "its feature columns have other names than the others', or another order"
    return ""


def _parts(layout: str) -> tuple[str, str]:
    """Inputs and labels of a layout, in words."""
    inputs, _, labels = layout.partition(" -> ")
    return inputs, labels or "class numbers"
