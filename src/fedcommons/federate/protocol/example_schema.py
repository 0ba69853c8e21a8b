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

LAYOUT = re.compile(r"([a-z]{1,8}[0-9]{0,3} [0-9]{1,19}(x[0-9]{1,19}){0,62})?")
DIGEST = 16  # bytes


@dataclass(frozen=True, slots=True)
class ExampleForm:
    """What a site expects of every example, its own and those that it receives.

    Attributes:
        dtype, shape: of one example's inputs.
        n_classes: labels are below it; None if the number of classes is not known.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    n_classes: int | None = None

    @property
    def row_bytes(self) -> int:
        """The bytes of one example on the wire: inputs, label and share number."""
        return self.dtype.itemsize * math.prod(self.shape) + 16


class Described(Protocol):
    """What a site says about its examples; an empty text says nothing and fits everything."""

    @property
    def site(self) -> str: ...

    @property
    def layout(self) -> str: ...

    @property
    def columns(self) -> str: ...


def layout_of(dtype: np.dtype[Any], shape: Sequence[int]) -> str:
    """The type and shape of one example as text, for instance `float32 28x28`."""
    return f"{dtype} {'x'.join(map(str, shape))}"


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
        return f"its examples are {site.layout}, the others' {layout}"
    if site.columns and columns and site.columns != columns:
        return "its feature columns have other names than the others', or another order"
    return ""
