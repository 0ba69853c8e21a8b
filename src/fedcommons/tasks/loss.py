"""What a loss is: what it needs of the data, how many scores it takes, and its derivative.

A model gives scores s for each example; training needs no more of a loss than its derivative by
them. Weights of examples come from the code: a client's answer is the gradient of
sum_j b_ij loss_j. Where a loss is a sum over examples (`decomposable`), coded answers of all
clients add up to the full gradient, and estimates of it are unbiased.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.errors import DataError

if TYPE_CHECKING:
    from fedcommons.datasets import Dataset

Float32 = npt.NDArray[np.float32]
Targets = npt.NDArray[Any]
Kind = Literal["classes", "labels", "numbers", "times"]
KINDS: tuple[str, ...] = get_args(Kind)


class Loss(ABC):
    """One loss, fitted to a dataset.

    Attributes:
        name: how studies call it.
        kind: of task: one of L classes, any number of labels, numbers, or times until an event.
        decomposable: whether it is a sum over examples.
        n_outputs: how many scores a model gives for each example.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    decomposable: ClassVar[bool] = True
    n_outputs: int

    def __init__(self, dataset: str, *splits: Targets) -> None:  # noqa: ARG002
        """For a dataset of this name, whose y in training and test are given."""
        self.n_outputs = 1 if splits[0].ndim == 1 else splits[0].shape[1]

    @classmethod
    def fitted_to(cls, dataset: Dataset, *, huber_delta: float, time_intervals: int) -> Self:  # noqa: ARG003
        """It, for a dataset; what does not fit is refused."""
        return cls(dataset.name, dataset.y_train, dataset.y_test)

    @abstractmethod
    def targets(self, y: Targets) -> Targets:
        """What it computes with, from y of a dataset: (M, ...)."""

    @abstractmethod
    def residuals(self, scores: Any, y: Any, weight: Float32) -> Float32:
        """The derivative of sum_h weight_bh loss_bh by the scores; it may work in place.

        Shapes: scores (B, H, outputs), y targets (B, H, ...), weight (B, H).
        """

    @abstractmethod
    def values(self, scores: npt.NDArray[Any], y: Targets) -> npt.NDArray[Any]:
        """The loss of each example, from scores (B, H, outputs): (B, H).

        Of a loss that is no sum over examples: what each adds among these.
        """

    def truth(self, y: Targets) -> Targets:
        """What metrics compare predictions with: (M, ...)."""
        return self.targets(y)

    def predictions(self, scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What metrics take, from scores (B, n, outputs)."""
        return scores

    @abstractmethod
    def groups(self, y: Targets, bins: int) -> IntArray:
        """By what partitions tell examples apart, where no strata are given: (M,)."""


def refused(dataset: str, loss: str, needs: str, got: object) -> DataError:
    """The error of data that a loss cannot be computed on."""
    return DataError(f"dataset {dataset}: y must be {needs} for loss {loss}, got {got}")


def described(y: Targets) -> str:
    """What an array of targets is, in a few words."""
    kind = "integers" if np.issubdtype(y.dtype, np.integer) else str(y.dtype)
    return f"{kind} of shape {y.shape}"


def quantile_bins(values: npt.NDArray[Any], bins: int) -> IntArray:
    """Which of about `bins` equally full intervals each value is in, without empty ones: (M,)."""
    inner = np.quantile(values, np.arange(1, bins) / bins)
    found = np.searchsorted(np.unique(inner), values, side="left")
    return np.asarray(np.unique(found, return_inverse=True)[1].reshape(-1), np.int64)
