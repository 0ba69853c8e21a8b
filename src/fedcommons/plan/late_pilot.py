"""How long an accuracy takes where late answers are remembered: a few trainings under the clock.

How many rounds training on late answers takes no formula knows, and they are of other lengths. So
the schedule itself is trained, with the estimator that a federation has by default.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.datasets import Dataset
from fedcommons.delays import Absences, Delays, Law, Recorded, Units
from fedcommons.errors import ArgumentError
from fedcommons.estimators import filled
from fedcommons.plan.outcome import Question
from fedcommons.plan.pilot import RATES, Trial, crossing, trial
from fedcommons.plan.timing import Timing
from fedcommons.policies import Policy
from fedcommons.schedule import Clock, Ticks, run
from fedcommons.streams import stream
from fedcommons.training import train

POINTS = 200  # times at which runs are averaged
LASTING = 6  # of these, for which the accuracy must stay


def seconds_if_remembered(
    question: Question,
    part: float,
    copies: int,
    deadline: float,
    dataset: Dataset,
    accuracy: float,
    *,
    seconds: float,
    runs: int = 4,
    rates: Sequence[float] = RATES,
    seed: int = 0,
) -> float:
    """When the mean accuracy of the runs is reached, with the best of the steps; or infinity.

    Softmax regression as in `pilot.course`, for so many `seconds` at most. A site that is missing
    whatever the deadline is not asked in that tick.
    """
    timing, sites = question.timing, question.sites
    if timing is None:
        raise ArgumentError("delays must be given for seconds, got none")
    horizon = checks.positive("seconds", seconds)
    times = np.linspace(0, horizon, POINTS + 1)
    curves = np.zeros((len(rates), POINTS + 1))
    for number in range(checks.integer("runs", runs, low=1)):
        missing = np.zeros(sites.n_sites)  # the estimator needs no p
        one = trial(sites, part, copies, missing, dataset, question.code, seed, number)
        ticks = _ticks(question, timing, one, deadline, horizon, seed, number)
        seen = np.searchsorted(ticks.ends, times, side="right")
        for k, rate in enumerate(rates):
            rounds = train(
                one.task, one.shares, ticks, missing, estimator=filled, learning_rate=rate
            )
            reached = [one.accuracy(one.task.initial())]
            reached += [one.accuracy(this.params) for this in rounds]
            curves[k] += np.array(reached)[seen] / runs
    at = min(crossing(curve, accuracy, lasting=LASTING) for curve in curves)
    return float(at * horizon / POINTS)


def _ticks(
    question: Question,
    timing: Timing,
    one: Trial,
    deadline: float,
    horizon: float,
    seed: int,
    number: int,
) -> Ticks:
    sites, N = question.sites, question.sites.n_sites
    held, away = one.placement.held_counts().astype(np.float64), timing.presence
    absences = None
    if away.away.any():
        rng = stream(seed, "pilot absences", number)
        lengths = np.where(away.away > 0, away.seconds, 1.0)
        absences = Absences(away.away, lengths, N, horizon=horizon, rng=rng)
    clock = Clock(
        _drawn(timing.at(held), seed, number),
        Policy("deadline", deadline=deadline, late="remember"),
        held,
        absences=absences,
        weight=held,
    )

    def wanted(t: int) -> BoolArray:
        there: FloatArray = stream(seed, "pilot missing", number, t).random(N)
        found = there >= sites.straggler_prob
        return found if found.any() else np.ones(N, np.bool_)

    return run(clock, wanted, seconds=horizon)


def _drawn(delays: Delays, seed: int, number: int) -> Delays:
    """The law with draws of this run; a recording, from somewhere in it on."""
    if isinstance(delays, Law):
        units = Units(len(delays.rate), lambda block: stream(seed, "pilot jobs", number, block))
        return Law(
            *(delays.rate, delays.spread, delays.stall, delays.link, delays.failure, units),
            delays.service, delays.tail,
        )  # fmt: skip
    assert isinstance(delays, Recorded)
    rng = stream(seed, "pilot jobs", number)
    return Recorded(delays.took, np.array([rng.integers(len(took)) for took in delays.took]))


__all__ = ["seconds_if_remembered"]


def __dir__() -> list[str]:
    return __all__
