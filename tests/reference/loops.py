"""Plain loops that read like the paper: what every fast kernel is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np

from fedcommons.placement import Placement


def holders(placement: Placement) -> list[set[int]]:
    result = []
    for j in range(placement.n_examples):
        copies = placement.recipients[placement.indptr[j] : placement.indptr[j + 1]]
        result.append({int(placement.owner[j])} | {int(i) for i in copies})
    return result


def dense_holdings(placement: Placement) -> np.ndarray:
    H = np.zeros((placement.n_clients, placement.n_examples), int)
    for j, clients in enumerate(holders(placement)):
        for i in clients:
            H[i, j] = 1
    return H


def straggler_patterns(p: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    """Every pattern of answers with its probability."""
    for pattern in product([False, True], repeat=len(p)):
        answered = np.array(pattern)
        yield answered, float(np.prod(np.where(answered, 1 - p, p)))


def sharing_outcomes(
    owner: np.ndarray, shareable: np.ndarray, copies: int, n_clients: int
) -> Iterator[Placement]:
    """Every outcome of randomised sharing, all equally likely."""
    givers = np.flatnonzero(shareable)
    choices = [
        list(combinations([i for i in range(n_clients) if i != owner[j]], copies)) for j in givers
    ]
    for picks in product(*choices):
        examples = [j for j, pick in zip(givers, picks, strict=True) for _ in pick]
        recipients = [i for pick in picks for i in pick]
        yield Placement.from_copies(
            owner, np.array(examples, int), np.array(recipients, int), n_clients=n_clients
        )


def label_proportions(placement: Placement, labels: np.ndarray, n_classes: int) -> np.ndarray:
    counts = np.zeros((placement.n_clients, n_classes))
    for j, clients in enumerate(holders(placement)):
        for i in clients:
            counts[i, labels[j]] += 1
    with np.errstate(invalid="ignore"):  # a class that nobody has
        return counts / counts.sum(axis=0)


def distance(Y: np.ndarray) -> np.ndarray:
    """|Y - Theta*|^2 per label, client by client."""
    total = np.zeros(Y.shape[1])
    for row in Y:
        total += (row - 1 / len(Y)) ** 2
    return total


def pair_sums(gradients: np.ndarray, groups: np.ndarray, shareable: np.ndarray) -> dict[str, float]:
    sums = dict.fromkeys(
        (f"{who}_{what}" for who in ("same", "diff") for what in ("private", "mixed", "shared")),
        0.0,
    )
    sums["self_shared"] = 0.0
    for j in range(len(gradients)):
        for k in range(len(gradients)):
            value = float(gradients[j] @ gradients[k])
            what = ("private", "mixed", "shared")[int(shareable[j]) + int(shareable[k])]
            sums[("same_" if groups[j] == groups[k] else "diff_") + what] += value
            if j == k and shareable[j]:
                sums["self_shared"] += value
    return sums


def coded_sum(
    H: np.ndarray, gradients: np.ndarray, answered: np.ndarray, p: np.ndarray
) -> np.ndarray:
    """Equations 2 and 3 of the paper, for clients with their own p."""
    d = H.sum(axis=0)
    estimate = np.zeros(gradients.shape[1])
    for i in range(len(H)):
        if not answered[i]:
            continue
        for j in np.flatnonzero(H[i]):
            estimate += gradients[j] / ((1 - p[i]) * d[j])
    return estimate


def best_received(start: np.ndarray, caps: np.ndarray, spend: int) -> float:
    """The smallest |Y - Theta*|^2 over all ways to spend exactly `spend`."""
    best = np.inf
    for received in product(*(range(cap + 1) for cap in caps)):
        if sum(received) == spend:
            Y = (start + np.array(received)) / (start.sum() + spend)
            best = min(best, float(((Y - 1 / len(start)) ** 2).sum()))
    return best


def softmax_gradient(x: np.ndarray, y: int, beta: np.ndarray) -> np.ndarray:
    """One example's gradient by its definition; beta is (F + 1, L), the bias last."""
    features = np.append(x, 1.0)
    scores = features @ beta
    prob = np.exp(scores) / np.exp(scores).sum()
    gradient = np.zeros_like(beta)
    for label in range(beta.shape[1]):
        gradient[:, label] = features * (prob[label] - (label == y))
    return gradient.ravel()


def blended_part(
    answers: np.ndarray,
    remembered: np.ndarray,
    W: np.ndarray,
    answered: np.ndarray,
    heard: np.ndarray,
) -> float:
    """What part of the latest answers `blended` takes: client by client, from its definition."""
    there = [i for i in range(len(W)) if answered[i]]
    agreement = spread = 0.0
    for i in there:
        others = [k for k in there if k != i]
        if heard[i] and others:
            mean = sum(answers[k] for k in others) / sum(W[k] for k in others)
            from_mean = remembered[i] / W[i] - mean
            agreement += W[i] * from_mean @ (answers[i] / W[i] - mean)
            spread += W[i] * from_mean @ from_mean
    return min(max(agreement / spread, 0.0), 1.0) if spread > 0 else 1.0


def blended(
    answers: np.ndarray,
    remembered: np.ndarray,
    W: np.ndarray,
    answered: np.ndarray,
    heard: np.ndarray,
) -> np.ndarray:
    """The estimate of `blended`: every missing client is foretold, then all are added up."""
    N = len(W)
    there = [i for i in range(N) if answered[i]]
    part = blended_part(answers, remembered, W, answered, heard) if there else 1.0
    mean = sum(answers[i] for i in there) / sum(W[i] for i in there) if there else 0.0
    total, known = np.zeros(answers.shape[1]), 0.0
    for i in range(N):
        if answered[i]:
            total, known = total + answers[i], known + W[i]
        elif heard[i]:
            total = total + part * remembered[i] + (1 - part) * W[i] * mean
            known += W[i]
    return total * (sum(W) / known if known else 1.0)
