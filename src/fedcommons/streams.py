"""Random streams by name.

A stream is named by what it may depend on, never by the order of calls: two curves that should see
the same draw ask for the same name, everything else is independent.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedcommons import checks
from fedcommons.errors import ArgumentError


def stream(seed: int, *name: str | int | float) -> np.random.Generator:
    """The generator of this name under this root seed: `stream(0, "stragglers", run)`.

    Parts are told apart by value and kind, so "3", 3 and 3.0 name different streams; NumPy's
    numbers count as Python's.
    """
    seed = checks.integer("seed", seed, low=0)
    text = "\x1f".join(map(_spelling, name))
    digest = hashlib.sha256(text.encode()).digest()
    words = np.frombuffer(digest, np.uint32)
    return np.random.default_rng(np.random.SeedSequence([seed, *words.tolist()]))


def _spelling(part: object) -> str:
    if isinstance(part, str):
        return f"str:{part!r}"
    if isinstance(part, int | np.integer) and not isinstance(part, bool):
        return f"int:{int(part)}"
    if isinstance(part, float | np.floating):
        return f"float:{float(part)!r}"
    raise ArgumentError(f"name must be strings and numbers, got {part!r}")
