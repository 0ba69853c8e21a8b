"""What one run leaves behind, curve by curve and round by round."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray, FloatArray, IntArray


def nothing_measured() -> tuple[FloatArray, FloatArray]:
    """The measures of a run in which counts of right classes are all that is asked for."""
    return np.zeros((0, 0, 0)), np.zeros((0, 0, 0, 0))


@dataclass(frozen=True, slots=True)
class RunResult:
    """The statistics of one run: arrays over (curve, round).

    Attributes:
        correct: (C, T + 1) test examples that the model of each round gets right, the initial
            model first; -1 where the model is known to be lost to NaN or infinity. 0 where there
            are no classes.
        second_moment: (C, T) |g^|^2 of the estimate of each round.
        second_moment_exact: (C, T) its mean over the stragglers of that round, given the model.
        gradient_norm2: (C, T) |g|^2 of the full gradient.
        projection: (C, T) <g^, g> / |g|^2, whose mean is 1 for an unbiased estimate.
        heterogeneity: (C, 3) |X - Theta*|^2, |Y - Theta*|^2 and the expectation of the latter over
            the sharing, averaged over labels.
        theory: (C', T, len(THEORY)) what Theorem 2 and Figure 3 speak of, at each round's model,
            for the curves that it was asked for, in their order.
        measures: (C, measured rounds, metrics) metrics on the test set; NaN where undefined. Empty
            where accuracy is all that is asked for.
        site_measures: (C, measured rounds, sites, metrics) the same at each site.
        ticks: (C, T + 1) how many ticks had ended at each recorded time; empty without a clock.
        reached: (C,) when the target was reached, in seconds: infinity if it never was. Empty
            without a clock.

    Under a clock rounds are T + 1 times, evenly spread over the study's seconds.
    """

    correct: npt.NDArray[np.int32]
    second_moment: FloatArray
    second_moment_exact: FloatArray
    gradient_norm2: FloatArray
    projection: FloatArray
    heterogeneity: FloatArray
    theory: FloatArray
    measures: FloatArray = field(default_factory=lambda: nothing_measured()[0])
    site_measures: FloatArray = field(default_factory=lambda: nothing_measured()[1])
    ticks: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    reached: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def diverged(self) -> BoolArray:
        """(C,) whether the curve was lost to NaN or infinity; its `correct` is -1 from there on."""
        return np.asarray((self.correct < 0).any(axis=1))

    def marked(self) -> RunResult:
        """With -1 for `correct` from the first step or model on that is not finite."""
        lost = ~np.isfinite(self.second_moment) | (self.correct[:, 1:] < 0)
        lost = np.logical_or.accumulate(lost, axis=1)
        if not lost.any():
            return self
        correct = self.correct.copy()
        correct[:, 1:][lost] = -1
        return replace(self, correct=correct)

    @staticmethod
    def names() -> tuple[str, ...]:
        """The arrays that there always are."""
        return tuple(one.name for one in fields(RunResult) if one.name not in MEASURED)


MEASURED = ("measures", "site_measures", "ticks", "reached")

THEORY = (
    "type1",  # sum of scalar products of pairs of the same class
    "type2",  # and of different classes
    "reduction",  # E[|g^_X|^2 - |g^_Y|^2] over the stragglers, for this placement
    "reduction_expected",  # and over the sharing as well
    "theorem2_bound",
    "remark_bound",
    "mixed_margin",  # Assumption 1: both must be >= 0
    "shared_margin",
    "remark_margin",  # the Remark's premise: must be >= 0
)

THEOREM2 = (  # NaN unless every client owns one class whole, as the theorem supposes
    "theorem2_bound",
    "remark_bound",
    "mixed_margin",
    "shared_margin",
    "remark_margin",
)

RANDOMISED = ("reduction_expected", "theorem2_bound", "remark_bound")  # NaN for other schemes
