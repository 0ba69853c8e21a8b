"""Random streams by name.

A stream is named by what it may depend on, never by the order of calls: two curves that should see
the same draw ask for the same name, everything else is independent.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedcommons import checks


def stream(seed: int, *name: str | int | float) -> np.random.Generator:
    """The generator of this name under this root seed: `stream(0, "stragglers", run)`."""
    seed = checks.integer("seed", seed, low=0)
    text = "\x1f".join(f"{type(part).__name__}:{part!r}" for part in name)
    digest = hashlib.sha256(text.encode()).digest()
    words = np.frombuffer(digest, np.uint32)
    return np.random.default_rng(np.random.SeedSequence([seed, *words.tolist()]))
