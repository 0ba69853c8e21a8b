"""From the ticks of a curve run to its results on seconds, a step function at common times."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.simulate.looks import Look
from fedcommons.simulate.measures import Measures
from fedcommons.simulate.timelines import Timeline


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What is recorded of a curve run at T + 1 times.

    Attributes:
        correct: (T + 1,) what the last model that was looked at gets right; -1 for a lost one.
        moment: (T,) |g^|^2 of the tick that is under way; 0 if there is none.
        ticks: (T + 1,) how many have ended.
    """

    correct: npt.NDArray[np.int32]
    moment: FloatArray
    ticks: IntArray


def recorded(
    line: Timeline, look: Look, finite: BoolArray, moments: FloatArray, n_points: int
) -> Recorded:
    """From what was seen at the looks, and from every tick's `finite` and moment."""
    times, looks = line.times(n_points), line.looks()
    n_ticks = len(line.ticks)
    right = np.where(_kept_finite(finite, n_ticks)[looks], look.right, -1)
    ticks = line.ticks_by(times)
    moment = np.zeros(n_points)
    if n_ticks:
        moment = moments[np.minimum(ticks[:-1], n_ticks - 1)]
    correct = right[line.last_looks(n_points, looks)].astype(np.int32)
    return Recorded(correct, moment, ticks)


def reached(line: Timeline, look: Look, finite: BoolArray, enough: float) -> float:
    """When so many test examples were right for the first time; infinity if they never were."""
    looks = line.looks()
    good = (look.right >= enough) & _kept_finite(finite, len(line.ticks))[looks]
    if not good.any():
        return math.inf
    ticks = int(looks[int(np.argmax(good))])
    return float(line.ticks.ends[ticks - 1]) if ticks else 0.0


def measured_by(line: Timeline, look: Look, measures: Measures, target: float) -> float:
    """The first of the recorded times at which the main metric is as good as that; or infinity."""
    main = measures.metrics[0]
    with np.errstate(invalid="ignore"):  # of a lost model
        good = main.sign * look.pooled[:, 0] >= main.sign * target
    if not good.any():
        return math.inf
    assert line.seconds is not None
    return line.seconds * measures.rounds[int(np.argmax(good))] / measures.rounds[-1]


def _kept_finite(finite: BoolArray, n_ticks: int) -> BoolArray:
    """Whether all models up to each have been finite."""
    return np.asarray(np.logical_and.accumulate(finite[: n_ticks + 1]))
