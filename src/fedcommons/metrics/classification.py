"""Metrics of classes and of labels. Averages over several of them count each alike.

Scores are (B, n, L): of classes any for which softmax gives the probabilities, and the truth (n,);
of labels their log odds, and the truth (n, L) of 0 and 1.
"""

from __future__ import annotations

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.metrics.metric import Array, Metric


def _of_labels(truth: Array) -> bool:
    return truth.ndim == 2


def accuracy_of(scores: Array, truth: Array) -> FloatArray:
    """The share of right classes, ties to the lowest; of labels, the share of right labels."""
    if _of_labels(truth):
        return np.asarray(((scores > 0) == truth).mean(axis=(1, 2)))
    return np.asarray((scores.argmax(axis=2) == truth).mean(axis=1))


def _counts(scores: Array, truth: Array) -> tuple[FloatArray, FloatArray, FloatArray]:
    """True positives, those predicted, (B, L) each, and those there are, (L,)."""
    if _of_labels(truth):
        chosen, true = (scores > 0).astype(np.float64), (truth == 1).astype(np.float64)
        return (chosen * true).sum(axis=1), chosen.sum(axis=1), true.sum(axis=0)
    best, L = scores.argmax(axis=2), scores.shape[2]
    right, predicted = (np.zeros((len(scores), L)) for _ in range(2))
    for label in range(L):
        chosen = best == label
        predicted[:, label] = chosen.sum(axis=1)
        right[:, label] = (chosen & (truth == label)).sum(axis=1)
    return right, predicted, np.bincount(truth, minlength=L).astype(float)


def balanced_accuracy_of(scores: Array, truth: Array) -> FloatArray:
    """The mean over the classes that there are of the share of each that is right."""
    right, _, there = _counts(scores, truth)
    present = there > 0
    return np.asarray((right[:, present] / there[present]).mean(axis=1))


def f1_of(scores: Array, truth: Array) -> FloatArray:
    """Macro: the mean of 2 TP / (2 TP + FP + FN) over the classes that occur or are predicted.

    Over all labels, where there are labels: one that neither occurs nor is predicted counts 0.
    """
    right, predicted, there = _counts(scores, truth)
    total = predicted + there
    of_class = np.divide(2 * right, total, out=np.zeros_like(right), where=total > 0)
    if _of_labels(truth):
        return np.asarray(of_class.mean(axis=1))
    return np.asarray(of_class.sum(axis=1) / (total > 0).sum(axis=1))


def auc_of(scores: Array, truth: Array) -> FloatArray:
    """The area under the ROC curve, ties half.

    Of two classes, of the second; of more, one against the rest, the mean over the classes that
    there are. Of labels the mean over those that have both values.
    """
    if _of_labels(truth):
        return _mean_area(scores, truth == 1)
    if scores.shape[2] == 2:
        return _mean_area(scores[:, :, 1:] - scores[:, :, :1], (truth == 1)[:, None])
    scores = scores.astype(np.float64)
    odds = np.stack(
        [
            scores[:, :, label] - _log_sum_exp(np.delete(scores, label, axis=2))
            for label in range(scores.shape[2])
        ],
        axis=2,
        dtype=np.float32,  # equal odds differ in what is past that
        casting="same_kind",
    )
    return _mean_area(odds, truth[:, None] == np.arange(scores.shape[2]))


def _mean_area(scores: Array, positive: Array) -> FloatArray:
    """Over the columns with positives and negatives, scores (B, n, L), positive (n, L): (B,)."""
    n, n_positive = len(positive), positive.sum(axis=0)
    areas = []
    for column in np.flatnonzero((n_positive > 0) & (n_positive < n)):
        mine = positive[:, column]
        areas.append([_area(one[mine], one[~mine]) for one in scores[:, :, column]])
    return np.mean(areas, axis=0) if areas else np.full(len(scores), np.nan)


def _area(positive: Array, negative: Array) -> float:
    """The chance that the first are larger than the others, ties half."""
    below = np.sort(negative)
    left, right = (np.searchsorted(below, positive, side) for side in ("left", "right"))
    return float((left + right).sum()) / (2 * len(positive) * len(negative))


def _log_sum_exp(scores: Array) -> FloatArray:
    """Over the last axis."""
    largest = scores.max(axis=-1)
    return np.asarray(largest + np.log(np.exp(scores - largest[..., None]).sum(axis=-1)))


def log_loss_of(scores: Array, truth: Array) -> FloatArray:
    """The mean of -log of the probability of what is true; of labels, over all labels as well."""
    scores = scores.astype(np.float64)
    if _of_labels(truth):
        return np.asarray((np.logaddexp(0, scores) - truth * scores).mean(axis=(1, 2)))
    mine = np.take_along_axis(scores, truth[None, :, None], axis=2)[..., 0]
    return np.asarray((_log_sum_exp(scores) - mine).mean(axis=1))


BOTH = ("classes", "labels")
accuracy = Metric("accuracy", "test accuracy", BOTH, True, accuracy_of)
balanced_accuracy = Metric(
    "balanced_accuracy", "balanced accuracy", ("classes",), True, balanced_accuracy_of
)
auc = Metric("auc", "AUC", BOTH, True, auc_of, "all of one class")
f1 = Metric("f1", "F1 (macro)", BOTH, True, f1_of)
log_loss = Metric("log_loss", "log-loss", BOTH, False, log_loss_of, worst=np.inf)
