"""Counting what models get right on the test set, many models in one product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.datasets import Dataset

Float32 = npt.NDArray[np.float32]
TEST_BLOCK = 1200  # test examples scored at once, at most, and
MODELS_AT_ONCE = 200  # models (curves x rounds): large products whose scores stay in the cache


class Evaluation:
    """The test set in blocks of one true class: its label, and its inputs (F, examples)."""

    def __init__(self, dataset: Dataset) -> None:
        self.n_classes = dataset.n_classes
        self.blocks: list[tuple[int, Float32]] = []
        self.order = np.argsort(dataset.y_test, kind="stable")  # of the examples in the blocks
        for label in range(dataset.n_classes):
            members = np.flatnonzero(dataset.y_test == label)
            for part in np.array_split(members, -(-len(members) // TEST_BLOCK) or 1):
                if len(part):
                    inputs = dataset.inputs("test", part)
                    self.blocks.append((label, np.ascontiguousarray(inputs.T)))


class Scorer:
    """Counts how many test examples the models get right, several rounds in one product.

    Only differences of scores matter, so the last class is subtracted from the others and its own
    scores are never computed. Ties go to the lowest label.
    """

    def __init__(self, inputs: Float32, test: Evaluation, correct: npt.NDArray[np.int32]) -> None:
        self.correct, self.order = correct, test.order
        self.blocks = [(label, inputs @ block) for label, block in test.blocks]
        for _, products in self.blocks:
            products += 1  # the bias
        self.n_curves, n_rounds = correct.shape
        self.at_once = max(1, min(n_rounds, MODELS_AT_ONCE // self.n_curves))
        models = self.at_once * self.n_curves
        others = test.n_classes - 1
        self.pending = np.empty((others, models, len(inputs)), np.float32)
        widest = max(block.shape[1] for _, block in self.blocks)
        self.scores = np.empty(others * models * widest, np.float32)
        self.largest = np.empty(models * widest, np.float32)
        self.n_pending = self.n_done = 0

    def add(self, A: Float32) -> None:
        """The coefficients of the next round's models, (L, C, M)."""
        place = slice(self.n_pending * self.n_curves, (self.n_pending + 1) * self.n_curves)
        np.subtract(A[:-1], A[-1], out=self.pending[:, place])
        self.n_pending += 1
        if self.n_pending == self.at_once:
            self.flush()

    def flush(self) -> None:
        """Count for the models that wait."""
        if self.n_pending == 0:
            return
        models = self.n_pending * self.n_curves
        counts = self._count(self.pending[:, :models], models).reshape(self.n_pending, -1)
        self.correct[:, self.n_done : self.n_done + self.n_pending] = counts.T
        self.n_done += self.n_pending
        self.n_pending = 0

    def all_scores(self, A: Float32) -> Float32:
        """Of all test examples in their own order, by the coefficients (L, C, M): (C, n, L)."""
        L, C, M = A.shape
        found = np.empty((len(self.order), L * C), np.float32)
        begin = 0
        for _, products in self.blocks:
            end = begin + products.shape[1]
            found[self.order[begin:end]] = (A.reshape(L * C, M) @ products).T
            begin = end
        return found.reshape(-1, L, C).transpose(2, 0, 1)

    def _count(self, differences: Float32, models: int) -> IntArray:
        others = len(differences)
        flat = differences.reshape(others * models, differences.shape[2])
        total = np.zeros(models, np.int64)
        for label, block in self.blocks:
            width = block.shape[1]
            scores = self.scores[: others * models * width].reshape(others * models, width)
            np.matmul(flat, block, out=scores)
            by_class = scores.reshape(others, models, width)
            largest = self.largest[: models * width].reshape(models, width)
            mine = by_class[label] if label < others else np.float32(0)  # the last class has 0
            np.maximum.reduce(by_class[label + 1 :], axis=0, initial=0, out=largest)
            right = mine >= largest
            if label > 0:
                np.maximum.reduce(by_class[:label], axis=0, out=largest)
                right &= mine > largest
            total += np.count_nonzero(right, axis=1)
        return total
