"""Corrected chunks as a plain loop: example by example, tick by tick.

`gradient(j, x)` is the gradient of example j at the model x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedcommons.corrections import Refresh
from fedcommons.placement import Placement
from fedcommons.schedule import Ticks

Gradient = Callable[[int, np.ndarray], np.ndarray]


def train(
    gradient: Gradient,
    x: np.ndarray,
    ticks: Ticks,
    placement: Placement,
    chunks: Sequence[Sequence[Sequence[int]]],
    refreshes: Sequence[Sequence[Refresh]],
    *,
    rate: float,
    decay: float = 1.0,
    warm: bool = False,
) -> list[np.ndarray]:
    """The models before the first tick and after each; the rate falls by `decay` a second.

    Every client works on its chunks in turn; whatever it computed arrives when its job is done.
    """
    M, owner = placement.n_examples, placement.owner
    shared = [j for j in range(M) if placement.copies[j]]
    n = [sum(owner == i) for i in range(placement.n_clients)]
    a = [sum(owner[j] == i for j in shared) for i in range(placement.n_clients)]
    R, R_at = [gradient(j, x) if warm else np.zeros_like(x) for j in range(M)], [-1] * M
    other, other_at = [np.zeros_like(x) for _ in range(M)], [-1] * M
    models, jobs = [x], [0] * placement.n_clients
    pending: dict[int, tuple[int, list[int], list[int]]] = {}
    for t in range(len(ticks)):
        for i in np.flatnonzero(ticks.asked[t]).tolist():
            chunk = list(chunks[i][jobs[i] % len(chunks[i])])
            jobs[i] += 1
            received = [j for r in refreshes[t] if r.holder == i for j in r.examples.tolist()]
            pending[i] = (t, chunk, received)
        for i in np.flatnonzero(ticks.on_time[t] | ticks.late[t]).tolist():
            since, chunk, received = pending.pop(i)
            for j in chunk:
                R[j], R_at[j] = gradient(j, models[since]), since
            for j in received:
                if since > other_at[j]:
                    other[j], other_at[j] = gradient(j, models[since]), since
        v = sum(R, np.zeros_like(x))
        for j in shared:
            if ticks.away[t, owner[j]] and other_at[j] > R_at[j]:
                v = v + n[owner[j]] / a[owner[j]] * (other[j] - R[j])
        models.append(models[-1] - rate * decay ** ticks.begins[t] / M * v)
    return models
