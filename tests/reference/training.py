"""The paper's experiment as a plain loop: clients, examples and rounds one after another."""

from __future__ import annotations

import numpy as np

from fedcommons import estimators
from fedcommons.datasets import Dataset
from fedcommons.simulate import draws
from fedcommons.simulate.curves import Curve
from tests.reference import loops


def train(
    dataset: Dataset,
    curve: Curve,
    *,
    n_clients: int,
    class_size: int,
    n_rounds: int,
    seed: int,
    run: int,
) -> dict[str, np.ndarray]:
    """Test examples right after each round, |g^|^2 and |g|^2 in each round."""
    data = draws.training_set(dataset, class_size, seed=seed, run=run)
    placement = draws.share(curve, data.labels, n_clients, seed=seed, run=run).placement
    shares = draws.shares(curve, placement, data.products).toarray()
    answered = draws.answered(curve, n_rounds, n_clients, seed=seed, run=run)
    x, M = data.inputs.astype(np.float64), len(data.labels)
    test = dataset.inputs("test", dtype=np.float64)
    beta = np.zeros((x.shape[1] + 1, dataset.n_classes))
    eta, p = curve.learning_rate, curve.straggler_prob
    memory = np.zeros((n_clients, beta.size))
    result: dict[str, list[float]] = {"correct": [], "second_moment": [], "gradient_norm2": []}

    def answer(i: int) -> np.ndarray:
        f = np.zeros(beta.size)
        for j in range(M):
            if shares[i, j]:
                f += shares[i, j] * loops.softmax_gradient(x[j], data.labels[j], beta)
        return f

    def count() -> float:
        right = 0
        for features, label in zip(test, dataset.y_test, strict=True):
            scores = np.append(features, 1.0) @ beta
            right += int(max(range(len(scores)), key=lambda k: (scores[k], -k)) == label)
        return right

    if curve.warm:
        memory = np.array([answer(i) for i in range(n_clients)])
    result["correct"].append(count())
    for t in range(n_rounds):
        f = [answer(i) for i in range(n_clients)]
        full = sum(f)
        if curve.estimator == estimators.wait_for_all.name:
            estimate = full
        elif curve.estimator == estimators.responder_average.name:
            arrived = [f[i] for i in range(n_clients) if answered[t, i]]
            estimate = n_clients * sum(arrived) / len(arrived) if arrived else 0 * full
        elif curve.estimator == estimators.memory.name:
            estimate = memory.sum(axis=0)
            for i in range(n_clients):
                if answered[t, i]:
                    estimate = estimate + (f[i] - memory[i]) / (1 - p)
            for i in range(n_clients):
                if answered[t, i]:
                    memory[i] = f[i]
        elif curve.estimator == estimators.latest.name:
            for i in range(n_clients):
                if answered[t, i]:
                    memory[i] = f[i]
            estimate = memory.sum(axis=0)
        elif curve.estimator == estimators.filled.name:
            for i in range(n_clients):
                if answered[t, i]:
                    memory[i] = f[i]
            heard = [i for i in range(n_clients) if curve.warm or answered[: t + 1, i].any()]
            W = [sum(shares[i]) for i in range(n_clients)]
            part = sum(W[i] for i in heard)
            estimate = memory.sum(axis=0) * (sum(W) / part if part else 1.0)
        elif curve.estimator == estimators.blended.name:
            W = np.array([sum(shares[i]) for i in range(n_clients)])
            before = answered[:t].any(axis=0) | curve.warm
            estimate = loops.blended(np.array(f), memory, W, answered[t], before)
            for i in range(n_clients):
                if answered[t, i]:
                    memory[i] = f[i]
        else:
            estimate = sum(f[i] / (1 - p) * answered[t, i] for i in range(n_clients))
        result["second_moment"].append(float(estimate @ estimate))
        result["gradient_norm2"].append(float(full @ full))
        beta = beta - eta / M * estimate.reshape(beta.shape)
        eta *= curve.decay
        result["correct"].append(count())
    return {name: np.array(values) for name, values in result.items()}
