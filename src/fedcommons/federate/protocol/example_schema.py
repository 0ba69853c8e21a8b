"""The layout of a site's examples: what must be the same at all sites that share.

Features go by their position. Where they have names, a digest tells whether two sites have the same
ones in the same order, without saying what they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

LAYOUT = re.compile(r"([a-z]{1,8}[0-9]{0,3} [0-9]{1,19}(x[0-9]{1,19}){0,62})?")
DIGEST = 16  # bytes


class Described(Protocol):
    """Somebody's word on its examples; what is empty says nothing, and fits everything."""

    @property
    def site(self) -> str: ...

    @property
    def layout(self) -> str: ...

    @property
    def columns(self) -> str: ...


def layout_of(dtype: np.dtype[Any], shape: Sequence[int]) -> str:
    """The type and shape of one example: float32 28x28."""
    return f"{dtype} {'x'.join(map(str, shape))}"


def digest_of_columns(names: Sequence[str]) -> str:
    """The digest of the features' names, in their order."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()[: 2 * DIGEST]


def usual(sites: Iterable[Described]) -> tuple[str, str]:
    """The layout of most sites, and the columns of most of those; of several, the first by name."""
    in_order = sorted(sites, key=lambda one: one.site)
    layout = _of_most(one.layout for one in in_order)
    return layout, _of_most(one.columns for one in in_order if one.layout == layout)


def _of_most(said: Iterable[str]) -> str:
    counts = Counter(filter(None, said))
    return max(counts, key=counts.__getitem__, default="")


def misfit(site: Described, layout: str, columns: str) -> str:
    """How a site's examples differ from what they must be; empty if they fit."""
    if site.layout and layout and site.layout != layout:
        return f"its examples are {site.layout}, the others' {layout}"
    if site.columns and columns and site.columns != columns:
        return "its feature columns have other names than the others', or another order"
    return ""
