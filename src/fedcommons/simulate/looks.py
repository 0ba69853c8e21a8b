"""Looking at models: what they get right on the test set, and what else is measured of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray, IntArray
from fedcommons.simulate.curve_runs import CurveRun
from fedcommons.simulate.measures import Measures
from fedcommons.simulate.models import OnExamples

Float32 = npt.NDArray[np.float32]
NUMBERS_AT_ONCE = 1 << 20  # parameters of the models that are scored together
SCORES_AT_ONCE = 1 << 22  # that are measured together
NOTHING = (np.zeros((0, 0)), np.zeros((0, 0, 0)))


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What was seen of one curve run.

    Attributes:
        right: how many test examples its models get right, at every look; 0 where there are no
            classes.
        pooled, at_sites: the measures, (rounds, K) and (rounds, S, K); empty without any.
    """

    right: IntArray
    pooled: FloatArray
    at_sites: FloatArray


def after_every_round(
    model: OnExamples, runs: IntArray, rounds: Iterator[Float32], measures: Measures | None
) -> list[Look]:
    """What is seen of the models of each round, (E, P).

    Some rounds are scored at once: how many follows from the block alone, as its rounding must.
    """
    has_classes = model.loss.kind == "classes"
    found, values, t = [], [], 0
    for first in rounds:
        n_rounds = max(1, NUMBERS_AT_ONCE // first.size)
        some = [first, *islice(rounds, n_rounds - 1)]
        params = np.concatenate(some)
        of_each = np.tile(runs, len(params) // len(runs))
        right = (
            model.count_correct(params, of_each) if has_classes else np.zeros(len(params), np.int64)
        )
        found.append(right.reshape(-1, len(runs)))
        if measures:
            wanted = [one for k, one in enumerate(some, start=t) if k in measures.rounds]
            values += [_measured(model, runs, one, measures) for one in wanted]
        t += len(some)
    right = np.concatenate(found).T
    pooled = [np.stack([one[e] for one, _ in values]) for e in range(len(runs) if values else 0)]
    sites = [np.stack([one[e] for _, one in values]) for e in range(len(pooled))]
    return [
        Look(right[e], *((pooled[e], sites[e]) if values else NOTHING)) for e in range(len(runs))
    ]


def by_the_clock(
    model: OnExamples,
    group: Sequence[CurveRun],
    ticks: Iterator[Float32],
    measures: Measures | None,
    n_points: int,
) -> list[Look]:
    """What is seen of the models of each tick, of those that go on: at each one's own looks.

    Measures are of the last look up to each of the times at which results are recorded.
    """
    looks = [e.timeline.looks() for e in group]
    right = [np.zeros(len(of), np.int64) for of in looks]
    empty = measures.nothing(len(group)) if measures else None
    wanted = [
        _measured_looks(e, of, measures, n_points) for e, of in zip(group, looks, strict=True)
    ]
    done, waiting = [0] * len(group), []
    for k, params in enumerate(ticks):
        for e in range(len(params)):
            if done[e] < len(looks[e]) and looks[e][done[e]] == k:
                waiting.append((e, done[e], params[e]))
                done[e] += 1
        if len(waiting) * params.shape[1] >= NUMBERS_AT_ONCE:
            _see(model, group, waiting, right, measures, wanted, empty)
            waiting = []
    if waiting:
        _see(model, group, waiting, right, measures, wanted, empty)
    found = [NOTHING] * len(group) if empty is None else list(zip(*empty, strict=True))
    return [Look(of, *parts) for of, parts in zip(right, found, strict=True)]


def _measured_looks(
    curve_run: CurveRun, looks: IntArray, measures: Measures | None, n_points: int
) -> dict[int, list[int]]:
    """Which look is at which of the measured times: place of the look -> places of the times."""
    found: dict[int, list[int]] = {}
    if measures:
        places = curve_run.timeline.last_looks(n_points, looks)
        for at, point in enumerate(measures.rounds):
            found.setdefault(int(places[point]), []).append(at)
    return found


def _see(
    model: OnExamples,
    group: Sequence[CurveRun],
    waiting: Sequence[tuple[int, int, Float32]],
    right: Sequence[IntArray],
    measures: Measures | None,
    wanted: Sequence[dict[int, list[int]]],
    measured: tuple[FloatArray, FloatArray] | None,
) -> None:
    """Look at some models: curve run, place of the look, parameters."""
    params = np.stack([one for _, _, one in waiting])
    runs = np.array([group[e].run for e, _, _ in waiting])
    if model.loss.kind == "classes":
        counts = model.count_correct(params, runs)
        for (e, place, _), count in zip(waiting, counts.tolist(), strict=True):
            right[e][place] = count
    if measures is None or measured is None:
        return
    for e, place, one in waiting:
        if place in wanted[e]:
            pooled, at_sites = _measured(model, np.array([group[e].run]), one[None], measures)
            measured[0][e, wanted[e][place]] = pooled[0]
            measured[1][e, wanted[e][place]] = at_sites[0]


def _measured(
    model: OnExamples, runs: IntArray, params: Float32, measures: Measures
) -> tuple[FloatArray, FloatArray]:
    """The measures of the models of one round: (E, K) and (E, S, K)."""
    at_once = max(1, SCORES_AT_ONCE // max(1, len(measures.truth) * model.loss.n_outputs))
    parts = [
        measures.of(model.scores(params[k : k + at_once], runs[k : k + at_once]))
        for k in range(0, len(params), at_once)
    ]
    pooled, at_sites = zip(*parts, strict=True)
    return np.concatenate(pooled), np.concatenate(at_sites)
