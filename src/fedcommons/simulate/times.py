"""Seconds to the target: what every line of a study with a clock takes, beside the simple policies.

A run that never reaches the target counts as infinity: medians and quantiles are of all runs, and
there is a mean, of logarithms, only where every run got there. Simple policies need nothing of this
project: full batches, equal mini-batches or mini-batches sized to each client's speed, waiting for
all or for the k fastest, without sharing, memory or late answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow

from fedcommons import policies
from fedcommons.checks import FloatArray
from fedcommons.errors import ResultsError
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Figure, Study
from fedcommons.simulate.folder import Folder

FILE = "times.parquet"
SECONDS = "seconds_to_target"  # the column of runs.parquet
SIMPLE_WORK = ("full", "mini", "sized")
SIMPLE_ESTIMATORS = ("coded_sum", "responder_average", "wait_for_all")
NEVER = 10.0  # times a study's seconds
LOW, HIGH = 0.1, 0.9  # the quantiles that a band shows
NUMBERS = {
    "median": "seconds to the target: the median run",
    "low": "the run that a tenth is at least as fast as",
    "high": "the run that nine tenths are at least as fast as",
    "log_mean": "exp of the mean logarithm; NaN if some run never got there",
    "log_sem": "standard error of that mean logarithm",
    "ratio_median": "the best simple policy's seconds over these, run by run: the median",
    "ratio_low": "a tenth of the runs are at most that",
    "ratio_high": "nine tenths are at most that",
    "ratio_log_mean": "exp of the mean logarithm; NaN if some run of either never got there",
    "ratio_log_sem": "its standard error",
}
SCHEMA = pyarrow.schema(
    [
        ("figure", pyarrow.string()),
        ("label", pyarrow.string()),
        ("curve", pyarrow.string()),
        ("target", pyarrow.float64()),
        ("runs", pyarrow.int64()),
        ("reached", pyarrow.int64()),
        *((name, pyarrow.float64()) for name in NUMBERS),
        ("simple", pyarrow.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Time:
    """How long a line takes to the target. The numbers are those of `NUMBERS`."""

    runs: int
    reached: int
    median: float
    low: float
    high: float
    log_mean: float
    log_sem: float


def is_simple(curve: Curve) -> bool:
    """Whether it is a policy that needs nothing of this project."""
    return (
        policies.parse(curve.policy).wait != "deadline"
        and curve.late == "discard"
        and curve.work.partition(":")[0] in SIMPLE_WORK
        and curve.estimator in SIMPLE_ESTIMATORS
        and not (curve.copies and curve.proportion)
        and curve.procedure.sharing in ("none", "proportion-and-copies")
    )


def of(seconds: FloatArray) -> Time:
    """Of the runs of a line, infinity for one that never got there: (runs,)."""
    # Of the runs as they are, without interpolation: infinity has no middle.
    low, median, high = np.quantile(seconds, (LOW, 0.5, HIGH), method="inverted_cdf")
    there = np.isfinite(seconds)
    return Time(
        *(len(seconds), int(there.sum()), float(median), float(low), float(high)),
        *_log_mean(seconds),
    )


def _log_mean(values: FloatArray) -> tuple[float, float]:
    """exp of the mean logarithm and its standard error; NaN where they do not exist."""
    if not len(values) or not (np.isfinite(values) & (values > 0)).all():
        return math.nan, math.nan
    logs = np.log(values)
    sem = float(logs.std(ddof=1) / math.sqrt(len(logs))) if len(logs) > 1 else math.nan
    return float(np.exp(logs.mean())), sem


def logarithms(seconds: FloatArray, budget: float) -> FloatArray:
    """Natural logarithms; a run that never got there counts as `NEVER` times the training."""
    return np.log(np.maximum(np.minimum(seconds, NEVER * budget), np.finfo(np.float64).tiny))


def ratios(simple: FloatArray, own: FloatArray) -> FloatArray:
    """How many times as fast a line is, run by run; NaN where neither got there."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(
            np.isfinite(simple), simple / own, np.where(np.isfinite(own), np.inf, np.nan)
        )


def best_simple(figure: Figure, seconds: dict[Curve, FloatArray]) -> Curve | None:
    """The simple policy of a figure that most runs reach the target with, then the fastest."""
    simple = [line.curve for line in figure.lines if is_simple(line.curve)]
    if not simple:
        return None
    times = {curve: of(seconds[curve]) for curve in simple}
    return min(simple, key=lambda c: (-times[c].reached, times[c].median, times[c].low))


def sentences(
    study: Study, runs: pyarrow.Table, labels: Callable[[Figure], Sequence[str]]
) -> Iterator[str]:
    """Which line of each figure reaches the target first, and what the best simple policy takes."""
    every = runs[SECONDS].to_numpy().reshape(-1, len(study.curves))
    seconds = dict(zip(study.curves, every.T, strict=True))
    for figure in study.figures:
        named = dict(zip((line.curve for line in figure.lines), labels(figure), strict=True))
        time = {curve: of(seconds[curve]) for curve in named}
        first = min(named, key=lambda c: (-time[c].reached, time[c].median, time[c].low))
        where = f"In the figure {figure.name}, " if len(study.figures) > 1 else ""
        if not time[first].reached:
            yield f"{where}no line reaches {study.target:g}."
            continue
        simple = best_simple(figure, seconds)
        said = f"{where}{named[first]} reaches {study.target:g} first, {_takes(time[first])}"
        if simple == first:
            yield f"{said}: it is a simple policy."
        elif simple is None:
            yield f"{said}."
        else:
            yield f"{said}; the best simple policy, {named[simple]}, {_takes(time[simple])}."


def _takes(time: Time) -> str:
    if not np.isfinite(time.median):
        return f"in {time.reached} of {time.runs} runs"
    those = "" if time.reached == time.runs else f" ({time.reached} of {time.runs} get there)"
    return f"in {time.median:.3g} s in the median of {time.runs} runs{those}"


def table(study: Study, folder: Folder, labels: Callable[[Figure], Sequence[str]]) -> pyarrow.Table:
    """times.parquet, from the finished runs."""
    digest = study.digest
    every = np.stack([folder.read_run(run, digest).reached for run in range(study.runs)])
    seconds = dict(zip(study.curves, every.T, strict=True))
    rows = [
        row for figure in study.figures for row in _rows(study, figure, seconds, labels(figure))
    ]
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    return pyarrow.table(columns, schema=SCHEMA)


def _rows(
    study: Study, figure: Figure, seconds: dict[Curve, FloatArray], labels: Sequence[str]
) -> Iterator[dict[str, Any]]:
    assert study.clock is not None
    best = best_simple(figure, seconds)
    named = dict(zip((line.curve for line in figure.lines), labels, strict=True))
    for label, line in zip(labels, figure.lines, strict=True):
        own = seconds[line.curve]
        time = of(own)
        row: dict[str, Any] = {
            "figure": figure.name,
            "label": label,
            "curve": line.curve.key,
            "target": study.clock.target,
            "simple": None if best is None else named[best],
            **dict.fromkeys(NUMBERS, math.nan),
            **{name: getattr(time, name) for name in Time.__slots__},
        }
        if best is not None:
            faster = ratios(seconds[best], own)
            known = faster[~np.isnan(faster)]
            if len(known):
                names = ("ratio_low", "ratio_median", "ratio_high")
                found = np.quantile(known, (LOW, 0.5, HIGH), method="inverted_cdf")
                row |= dict(zip(names, found.tolist(), strict=True))
            row["ratio_log_mean"], row["ratio_log_sem"] = _log_mean(faster)
        yield row


def read(folder: Folder, study: Study) -> pyarrow.Table | None:
    """times.parquet; None where the study has no target."""
    if study.clock is None or study.clock.target is None:
        return None
    found = folder.read_table(FILE, SCHEMA, ("simple",))
    lines = [line.curve.key for figure in study.figures for line in figure.lines]
    if found["curve"].to_pylist() != lines:
        raise ResultsError(
            f"{folder.path / FILE} must hold every line of run.json's study; run the study to its "
            "end first"
        )
    return found
