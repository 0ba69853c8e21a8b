"""Asynchronous training as its authors wrote it: event by event, with models and not gradients.

`events` lists, for each step of the server, who has answered and the step in which it was given its
model: (client, since), `since` counted from 0. `gradient(i, x)` is the mean gradient of client i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedcommons.schedule import Ticks

Events = Sequence[Sequence[tuple[int, int]]]
Gradient = Callable[[int, np.ndarray], np.ndarray]


def events_of(ticks: Ticks) -> list[list[tuple[int, int]]]:
    found = []
    for t in range(len(ticks)):
        now = [(i, t) for i in np.flatnonzero(ticks.on_time[t]).tolist()]
        found.append(now + [(i, int(ticks.since[t, i])) for i in np.flatnonzero(ticks.late[t])])
    return found


def _local(gradient: Gradient, i: int, start: np.ndarray, eta: float, steps: int) -> np.ndarray:
    x = start.copy()
    for _ in range(steps):
        x = x - eta * gradient(i, x)
    return x


def fedbuff(
    gradient: Gradient, x: np.ndarray, events: Events, *, eta: float, server: float, steps: int = 1
) -> list[np.ndarray]:
    """Nguyen et al. 2022, Algorithm 1 with Section 5's s(tau) = 1/sqrt(1 + tau)."""
    models = [x]
    for t, buffer in enumerate(events):
        total = np.zeros_like(x)
        for i, since in buffer:
            delta = models[since] - _local(gradient, i, models[since], eta, steps)
            total = total + delta / np.sqrt(1 + t - since)
        models.append(models[t] - server * total / max(1, len(buffer)))
    return models


def fedasync(
    gradient: Gradient, x: np.ndarray, events: Events, *, eta: float, alpha: float, steps: int = 1
) -> list[np.ndarray]:
    """Xie et al. 2019, Algorithm 1, polynomial staleness with a = 1/2; one answer a step."""
    models = [x]
    for t, [(i, since)] in enumerate(events):
        new = _local(gradient, i, models[since], eta, steps)
        mixing = alpha * (t - since + 1) ** -0.5
        models.append((1 - mixing) * models[t] + mixing * new)
    return models


def k_fastest(gradient: Gradient, x: np.ndarray, events: Events, *, eta: float) -> list[np.ndarray]:
    """Dutta et al. 2018, K-sync: the mean of the first K gradients, the others given up."""
    models = [x]
    for buffer in events:
        mean = np.mean([gradient(i, models[-1]) for i, _ in buffer], axis=0)
        models.append(models[-1] - eta * mean)
    return models


def mifa(
    gradient: Gradient, x: np.ndarray, events: Events, *, eta: float, n_clients: int
) -> list[np.ndarray]:
    """Gu et al. 2021, Algorithm 1: G_i is replaced when an answer comes, the step is their mean."""
    models = [x]
    G = [gradient(i, x) for i in range(n_clients)]
    for buffer in events:
        for i, since in buffer:
            G[i] = gradient(i, models[since])
        models.append(models[-1] - eta * np.mean(G, axis=0))
    return models


def fedvarp(
    gradient: Gradient, x: np.ndarray, events: Events, *, eta: float, n_clients: int
) -> list[np.ndarray]:
    """Jhunjhunwala et al. 2022, Algorithm 1: y_j are updated after the step."""
    models = [x]
    y = [np.zeros_like(x) for _ in range(n_clients)]
    for buffer in events:
        fresh = {i: gradient(i, models[-1]) for i, _ in buffer}
        v = np.mean(y, axis=0) + sum((fresh[i] - y[i] for i in fresh), np.zeros_like(x)) / len(
            fresh
        )
        models.append(models[-1] - eta * v)
        for i, value in fresh.items():
            y[i] = value
    return models
