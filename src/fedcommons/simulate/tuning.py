"""Choosing each line's learning rate on held-out data, so that a comparison is fair.

Every line has the same rates to choose from. They are tried in runs of their own, on a pool of
training examples from which a sixth is held out, and judged by the mean of the study's main metric
on what was held out over the second half of the rounds; a run that diverges counts as the worst
there is, 0 for accuracy. Where a clock has a target they are judged by the mean logarithm of the
seconds to it. The study's runs then draw from the same pool and are tested on the test set.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.errors import ResultsError
from fedcommons.simulate import times
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Line, Study
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.result import RunResult


def tuning_study(study: Study) -> Study:
    """The runs that the rates are chosen on."""
    return replace(
        study, name=f"{study.name}-tuning", runs=study.tune_runs, tune=False, pool="tuning"
    )


def with_rates(study: Study, rates: dict[Curve, float]) -> Study:
    """The study with one rate for each line: of the lines that differ in the rate, the chosen."""
    figures = []
    for figure in study.figures:
        lines: dict[tuple[str, Curve], Line] = {}
        for line in figure.lines:
            chosen = replace(line.curve, learning_rate=rates[_without_rate(line.curve)])
            lines[line.label, chosen] = Line(line.label, chosen)
        figures.append(replace(figure, lines=tuple(lines.values())))
    return replace(study, figures=tuple(figures), tune=False, pool="tuned")


def choose(study: Study, folder: Folder, n_test: int) -> tuple[Study, list[dict[str, Any]]]:
    """The study with the best rates, from the tuning study's folder; and all that were tried.

    Of equal rates the smallest is chosen.
    """
    tried, main = tuning_study(study), study.measured[0]
    total = np.zeros(len(tried.curves))
    for run in range(tried.runs):
        result = folder.read_run(run, tried.digest)
        late = np.where(result.diverged, main.worst, _late(study, result, n_test))
        total += late if study.target is None else _earliness(study, result, late)
    scores = dict(zip(tried.curves, (total / tried.runs).tolist(), strict=True))
    sign = main.sign if study.target is None else 1
    best: dict[Curve, Curve] = {}
    for curve in sorted(tried.curves, key=lambda c: c.learning_rate):
        line = _without_rate(curve)
        if line not in best or sign * scores[curve] > sign * scores[best[line]]:
            best[line] = curve
    rates = {line: curve.learning_rate for line, curve in best.items()}
    record = [
        {
            "curve": curve.key,
            f"held_out_{'earliness' if study.target is not None else main.name}": score
            if math.isfinite(score)
            else None,
            "chosen": curve in best.values(),
        }
        for curve, score in scores.items()
    ]
    return with_rates(study, rates), record


def _late(study: Study, result: RunResult, n_test: int) -> FloatArray:
    """Each curve's main metric over the second half of the rounds: (C,)."""
    half = study.rounds // 2 + 1
    if study.counts_alone:
        return np.asarray(result.correct[:, half:].mean(axis=1) / n_test)
    late = [k for k, t in enumerate(study.measured_rounds) if t >= half] or [-1]
    values = result.measures[:, late, 0]
    return np.where(np.isnan(values), study.measured[0].worst, values).mean(axis=1)


def _earliness(study: Study, result: RunResult, late: FloatArray) -> FloatArray:
    """-log of each curve's seconds to the target: (C,); a run that never gets there counts as ten
    times the study's, and among those the late metric decides."""
    assert study.clock is not None
    sooner = -times.logarithms(result.reached, study.clock.seconds)
    return np.asarray(sooner + np.where(np.isfinite(result.reached), 0.0, late))


def at_the_edge(study: Study, tuned: Study) -> tuple[int, int]:
    """How many curves chose the smallest and how many the largest of their rates.

    A rate beyond the list may serve these better.
    """
    tried: dict[Curve, list[float]] = {}
    for curve in study.curves:
        tried.setdefault(_without_rate(curve), []).append(curve.learning_rate)
    chosen = [(curve.learning_rate, tried[_without_rate(curve)]) for curve in tuned.curves]
    several = [(rate, rates) for rate, rates in chosen if len(rates) > 1]
    return sum(r == min(rs) for r, rs in several), sum(r == max(rs) for r, rs in several)


def untuned(study: Study) -> Study:
    """The study with some rate for each line: as much work as with the best."""
    return with_rates(study, {_without_rate(c): c.learning_rate for c in study.curves})


def expected(study: Study, folder: Folder) -> Study:
    """The study as its results folder has it, with the rates that were chosen then.

    With some rates where nothing is recorded yet, or where what is recorded is another study.
    """
    if (folder.path / "run.json").exists():
        rates = {_without_rate(curve): curve.learning_rate for curve in folder.study().curves}
        tried = {(_without_rate(curve), curve.learning_rate) for curve in study.curves}
        if rates.items() <= tried and {line for line, _ in tried} <= rates.keys():
            return with_rates(study, rates)
    return untuned(study)


def check_same_runs(study: Study, folder: Folder) -> None:
    """Refuse other tuning runs than those by which the rates of a folder's results were chosen."""
    if (folder.path / "run.json").exists() and any(folder.runs.glob("*.npz")):
        before = folder.study().tune_runs
        if before != study.tune_runs:
            raise ResultsError(
                f"tune_runs must be {before}, by which the rates in folder {folder.path} were "
                f"chosen, got {study.tune_runs}; choose another folder with --out, or remove it"
            )


def _without_rate(curve: Curve) -> Curve:
    return replace(curve, learning_rate=0.0)
