"""What a study of one's own found: which line is best where.

Estimators that wait for everybody are left out: they are the ceiling, not a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow

from fedcommons.checks import FloatArray
from fedcommons.estimators import ESTIMATORS
from fedcommons.simulate import choices, findings, times
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Figure, Line, Study
from fedcommons.simulate.ranking import Setting, ranked
from fedcommons.simulate.tables import final

RANKED = ("curves", "grid")  # kinds of figures that compare ways to train


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
    compared: list[tuple[str, list[Line]]] = []
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
            compared.append((figure.name, named))
            settings += _settings(figure.name, named, values, place, main.sign)
            if seconds is not None:
                by_time += _settings(figure.name, named, seconds, place, -1)
    first: list[str] = []
    names = choices.names(compared, tuned=study.pool == "tuned")
    if study.target is not None:
        first = [
            *times.sentences(study, runs, labels),
            *findings.praises(choices.renamed(by_time, names), f"fastest line to {study.target:g}"),
        ]
    said = findings.sentences(choices.renamed(settings, names))
    return Summary(main.name, tuple(settings), (*first, *said), tuple(by_time))


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
            found.append(ranked(name, p, of_line, sign))
    return found
