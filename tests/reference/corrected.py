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
    chosen: np.ndarray,
    refreshes: Sequence[Sequence[Refresh]],
    *,
    rate: float,
    decay: float = 1.0,
    warm: bool = False,
    missing: np.ndarray | None = None,
) -> list[np.ndarray]:
    """The models before the first tick and after each; the rate falls by `decay` a second.

    Whatever a client computed arrives when its job is done. With p, `missing` (T, N), only what is
    new is noisy, C_i/(1 - p_i) times a random chunk's, and answers are remembered after the step.
    """
    M, owner = placement.n_examples, placement.owner
    shared = [j for j in range(M) if placement.copies[j]]
    n = [sum(owner == i) for i in range(placement.n_clients)]
    a = [sum(owner[j] == i for j in shared) for i in range(placement.n_clients)]
    R, R_at = [gradient(j, x) if warm else np.zeros_like(x) for j in range(M)], [-1] * M
    other, other_at = [np.zeros_like(x) for _ in range(M)], [-1] * M
    models = [x]
    pending: dict[int, tuple[int, list[int], list[int]]] = {}
    for t in range(len(ticks)):
        for i in np.flatnonzero(ticks.asked[t]).tolist():
            chunk = list(chunks[i][chosen[t, i]])
            received = [j for r in refreshes[t] if r.holder == i for j in r.examples.tolist()]
            pending[i] = (t, chunk, received)
        came = np.flatnonzero(ticks.on_time[t] | ticks.late[t]).tolist()
        answers = {i: pending.pop(i) for i in came}

        def remember(answers=answers):
            for since, chunk, _ in answers.values():
                for j in chunk:
                    R[j], R_at[j] = gradient(j, models[since]), since

        if missing is None:
            remember()
        for since, _, received in answers.values():
            for j in received:
                if since > other_at[j]:
                    other[j], other_at[j] = gradient(j, models[since]), since
        v = sum(R, np.zeros_like(x))
        if missing is not None:
            for i in np.flatnonzero(ticks.on_time[t]).tolist():
                scale = len(chunks[i]) / (1 - missing[t, i])
                for j in answers[i][1]:
                    v = v + scale * (gradient(j, models[t]) - R[j])
        for j in shared:
            if ticks.away[t, owner[j]] and other_at[j] > R_at[j]:
                v = v + n[owner[j]] / a[owner[j]] * (other[j] - R[j])
        if missing is not None:
            remember()
        models.append(models[-1] - rate * decay ** ticks.begins[t] / M * v)
    return models
