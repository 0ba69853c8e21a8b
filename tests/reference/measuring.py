"""Losses and metrics as plain loops over examples and pairs, from their definitions."""

from __future__ import annotations

import math

import numpy as np


def softmax(scores):
    exps = [math.exp(s - max(scores)) for s in scores]
    return [e / sum(exps) for e in exps]


def sigmoid(s):
    return 1 / (1 + math.exp(-s))


def cox(scores, times, events, weights):
    """The weighted negative log partial likelihood, ties by Breslow."""
    total = 0.0
    for j in range(len(scores)):
        if events[j] and weights[j]:
            at_risk = sum(
                weights[k] * math.exp(scores[k]) for k in range(len(scores)) if times[k] >= times[j]
            )
            total -= weights[j] * (scores[j] - math.log(at_risk))
    return total


def discrete_time(scores, time, event, cuts):
    interval = sum(time > cut for cut in cuts)
    total = -sum(math.log(1 - sigmoid(s)) for s in scores[:interval])
    return total - (math.log(sigmoid(scores[interval])) if event else 0)


def area(scores, positive):
    """The chance that a positive example's score is above a negative one's, ties half."""
    pairs = [
        (a, b)
        for a, p in zip(scores, positive, strict=True)
        for b, q in zip(scores, positive, strict=True)
        if p > q
    ]
    return np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs])


def auc(scores, y):
    """One against the rest, by probability; of two classes that of the second."""
    L = len(scores[0])
    chance = [[round(p, 9) for p in softmax(s)] for s in scores]
    wanted = [1] if L == 2 else [k for k in range(L) if k in y]
    return np.mean([area([p[k] for p in chance], [label == k for label in y]) for k in wanted])


def f1(predicted, y):
    found = []
    for k in sorted({*predicted, *y}):
        right = sum(a == b == k for a, b in zip(predicted, y, strict=True))
        wrong = sum((a == k) != (b == k) for a, b in zip(predicted, y, strict=True))
        found.append(2 * right / (2 * right + wrong))
    return np.mean(found)


def c_index(risks, times, events):
    concordant = pairs = 0.0
    for i in range(len(risks)):
        for j in range(len(risks)):
            later = times[j] > times[i] or (times[j] == times[i] and not events[j])
            if events[i] and later and i != j:
                pairs += 1
                concordant += (risks[i] > risks[j]) + 0.5 * (risks[i] == risks[j])
    return concordant / pairs
