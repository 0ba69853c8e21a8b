"""Which examples a client takes in each of its local steps: the simulator's and a site's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedcommons.checks import IntArray


def batches(
    n: int, size: int | None, n_steps: int, *, rng: np.random.Generator | None
) -> Iterator[IntArray]:
    """Their places in every step: all n, or `size` in a random order, all before any comes again.

    All n if `size` is None or not below n, or without `rng`.
    """
    order, at = np.arange(n), n
    for _ in range(n_steps):
        if rng is None or size is None or size >= n:
            yield order
            continue
        if at + size > n:
            order, at = rng.permutation(n), 0
        yield order[at : at + size]
        at += size
