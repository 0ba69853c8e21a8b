"""Cross-entropy: each example has one of L classes. The paper's loss, and the default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from fedcommons.checks import IntArray
from fedcommons.errors import DataError
from fedcommons.tasks.loss import Float32, Loss, Targets, described

if TYPE_CHECKING:
    from fedcommons.datasets import Dataset


class CrossEntropy(Loss):
    """-log softmax(s)_y."""

    name = "cross-entropy"
    kind = "classes"

    def __init__(self, n_classes: int) -> None:
        self.n_outputs = n_classes

    @classmethod
    def fitted_to(cls, dataset: Dataset, **_constants: Any) -> Self:
        if not dataset.has_labels:
            raise DataError(
                f"dataset {dataset.name}: y must be integer labels for loss {cls.name}, got "
                f"{described(dataset.y_train)}; a loss that fits must be named, such as binary, "
                "squared or discrete-time"
            )
        return cls(dataset.n_classes)

    def targets(self, y: Targets) -> IntArray:
        return y

    def residuals(self, scores: Any, y: IntArray, weight: Float32) -> Float32:
        return softmax_residuals(scores, y, weight)

    def values(self, scores: npt.NDArray[Any], y: Targets) -> npt.NDArray[Any]:
        mine = np.take_along_axis(scores, y[..., None], axis=-1)[..., 0]
        return np.asarray(logsumexp(scores, axis=-1) - mine)

    def groups(self, y: Targets, bins: int) -> IntArray:  # noqa: ARG002
        return y


def softmax_residuals(scores: Any, y: IntArray, weight: Float32) -> Float32:
    """weight times (softmax(scores) - onehot(y)), in place: scores (B, H, L)."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    B, H = y.shape
    scores[np.arange(B)[:, None], np.arange(H), y] -= 1
    scores *= weight[..., None]
    return scores
