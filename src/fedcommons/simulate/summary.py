"""What a study of one's own found: which line is best where, by paired differences.

All lines of a run share the training examples, and those with the same p the stragglers, so lines
are compared run by run. A line is as good as the best one if the 95 % interval of their paired
difference contains 0; intervals are Student's, and not corrected for how many there are. Estimators
that wait for everybody are left out: they are the ceiling, not a choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow

from fedcommons.checks import FloatArray
from fedcommons.estimators import ESTIMATORS
from fedcommons.intervals import mean_and_half
from fedcommons.simulate import times
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Figure, Line, Study
from fedcommons.simulate.tables import final

MOST_DUELS = 6  # sentences; the table has the rest
RANKED = ("curves", "grid")  # kinds of figures that compare ways to train


@dataclass(frozen=True, slots=True)
class Rank:
    """One line among those of its setting.

    Attributes:
        mean, half: the study's main metric after the last round, and half of its 95 % interval.
        behind, behind_half: how far it is behind the best line, run by run, and half of that
            interval; 0 for the best line. None where there are fewer than two runs in common.
        as_good: whether it is the best line or cannot be told from it.
    """

    label: str
    mean: float
    half: float | None
    behind: float | None
    behind_half: float | None
    as_good: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """The lines of one figure at one p, the best first; lost ones, by label, are apart.

    `beats` are pairs of labels whose paired difference has its 95 % interval on the first's side.
    """

    figure: str
    straggler_prob: float
    ranks: tuple[Rank, ...]
    lost: tuple[str, ...]
    beats: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """What was found in every setting by the main metric, and in words.

    `by_time` ranks by natural logarithms of the seconds to the target, where a clock has one
    (`times.logarithms`); lines of which no run got there are lost.
    """

    metric: str
    settings: tuple[Setting, ...]
    sentences: tuple[str, ...]
    by_time: tuple[Setting, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarise(
    study: Study, runs: pyarrow.Table, labels: Callable[[Figure], Sequence[str]]
) -> Summary:
    """The summary of a study from its runs.parquet; `labels` names each line of a figure."""
    n_curves = len(study.curves)
    main = study.measured[0]
    values = runs[final(main.name)].to_numpy().reshape(-1, n_curves)
    values = np.where(runs["diverged"].to_numpy().reshape(-1, n_curves), np.nan, values)
    place = {curve: k for k, curve in enumerate(study.curves)}
    settings, by_time = [], []
    seconds = None
    if study.clock is not None and study.target is not None:
        every = runs[times.SECONDS].to_numpy().reshape(-1, n_curves)
        seconds = times.logarithms(every, study.clock.seconds)
        seconds[:, ~np.isfinite(every).any(axis=0)] = np.nan
    for figure in study.figures:
        if figure.kind in RANKED:
            named = [
                Line(label, line.curve)
                for label, line in zip(labels(figure), figure.lines, strict=True)
                if not ESTIMATORS[line.curve.estimator].needs_everybody
            ]
            settings += _settings(figure.name, named, values, place, main.sign)
            if seconds is not None:
                by_time += _settings(figure.name, named, seconds, place, -1)
    first: list[str] = []
    if study.target is not None:
        first = [
            *times.sentences(study, runs, labels),
            *_praises(by_time, f"fastest line to {study.target:g}"),
        ]
    return Summary(main.name, tuple(settings), (*first, *_sentences(settings)), tuple(by_time))


def _settings(
    name: str, lines: Sequence[Line], values: FloatArray, place: Mapping[Curve, int], sign: int
) -> list[Setting]:
    """One for each p of a figure that has several lines."""

    def prob(line: Line) -> float:
        return line.curve.straggler_prob

    found = []
    for p, same in groupby(sorted(lines, key=prob), key=prob):
        of_line = {line.label: values[:, place[line.curve]] for line in same}
        if len(of_line) > 1:
            found.append(_ranked(name, p, of_line, sign))
    return found


def _ranked(figure: str, p: float, of_line: Mapping[str, FloatArray], sign: int) -> Setting:
    """The best first: those with the highest values, or with sign -1 the lowest."""
    lost = [label for label, runs in of_line.items() if np.isnan(runs).all()]
    means = {label: np.nanmean(runs) for label, runs in of_line.items() if label not in lost}
    order = sorted(means, key=lambda label: -sign * means[label])
    ranks = []
    for label in order:
        own, best = of_line[label], of_line[order[0]]
        behind, behind_half = mean_and_half(sign * (best - own))
        is_best = label == order[0]
        ranks.append(
            Rank(
                label,
                *_known(mean_and_half(own)),
                0.0 if is_best else behind,
                0.0 if is_best else behind_half,
                is_best or behind is None or behind_half is None or behind <= behind_half,
            )
        )
    beats = [
        (one, other)
        for k, one in enumerate(order)
        for other in order[k + 1 :]
        if _is_ahead(*mean_and_half(sign * (of_line[one] - of_line[other])))
    ]
    return Setting(figure, p, tuple(ranks), tuple(lost), tuple(beats))


def _is_ahead(difference: float | None, half: float | None) -> bool:
    return difference is not None and half is not None and difference > half


def _known(found: tuple[float | None, float | None]) -> tuple[float, float | None]:
    mean, half = found
    return (math.nan if mean is None else mean), half


def _praises(settings: Sequence[Setting], what: str = "best line") -> list[str]:
    """Which lines are the best, or as good, and in how many settings."""
    n = len(settings)
    labels = sorted({rank.label for setting in settings for rank in setting.ranks})
    good = {label: sum(_is_as_good(label, setting) for setting in settings) for label in labels}
    return [
        _praise(label, good[label], sum(_is_alone(label, s) for s in settings), n, what)
        for label in sorted(labels, key=lambda label: -good[label])
        if good[label]
    ]


def _sentences(settings: Sequence[Setting]) -> list[str]:
    """What can be said of all settings together."""
    n = len(settings)
    labels = sorted({rank.label for setting in settings for rank in setting.ranks})
    good = {label: sum(_is_as_good(label, setting) for setting in settings) for label in labels}
    found = _praises(settings)
    found += _duels(settings, {label for label in labels if n == 1 or good[label] == n})
    found += [
        f"{label} is behind the best line in all {n} settings."
        for label in labels
        if n > 1 and not good[label] and all(_is_there(label, setting) for setting in settings)
    ]
    return found


def _duels(settings: Sequence[Setting], best: set[str]) -> list[str]:
    """Who beats whom in every setting, for lines whose place the other sentences do not say."""
    n = len(settings)
    always = [
        pair
        for pair in (settings[0].beats if settings else ())
        if all(pair in s.beats for s in settings)
    ]
    return [
        f"{one} beats {other} in {'both' if n == 2 else f'all {n}'} settings."
        for one, other in always
        if one not in best
    ][:MOST_DUELS]


def _praise(label: str, good: int, alone: int, n: int, what: str) -> str:
    if n == 1:
        return f"{label} is the {what}{'' if alone else ', or cannot be told from it'}."
    where = f"in {'all' if good == n else good} of {n} settings"
    if alone == good:
        return f"{label} is the {what} {where}."
    return f"{label} is the {what}, or cannot be told from it, {where}."


def _is_there(label: str, setting: Setting) -> bool:
    return any(rank.label == label for rank in setting.ranks)


def _is_as_good(label: str, setting: Setting) -> bool:
    return any(rank.label == label and rank.as_good for rank in setting.ranks)


def _is_alone(label: str, setting: Setting) -> bool:
    """Whether it is the best line and no other is as good."""
    return [rank.label for rank in setting.ranks if rank.as_good] == [label]
