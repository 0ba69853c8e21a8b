"""From the finished runs to the tables that figures and claims are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow

from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.datasets import Dataset
from fedcommons.errors import ResultsError
from fedcommons.simulate import settings, times
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Figure, Study
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.result import THEORY, RunResult
from fedcommons.simulate.run_moments import RunMoments
from fedcommons.simulate.run_summaries import SUMMARIES, summaries
from fedcommons.tasks.cross_entropy import CrossEntropy

OF_CLOCK = ("seconds", "ticks_mean", "ticks_sem")  # columns of curves.parquet beside `round`
LATE = 10  # from this round on a good method has caught up
PER_ROUND = ("accuracy", "second_moment", "second_moment_exact", "gradient_norm2")
HETEROGENEITY = tuple(f"heterogeneity_{name}" for name in ("before", "after", "after_expected"))
MEASURES = (*PER_ROUND, *HETEROGENEITY, *THEORY)
TYPES = {
    str: pyarrow.string(),
    float: pyarrow.float64(),
    int: pyarrow.int64(),
    bool: pyarrow.bool_(),
}


def _described(curve: Curve) -> dict[str, Any]:
    """The columns of curves.parquet that say which curve it is."""
    return {"setting" if k == "partition" else k: v for k, v in curve.as_row().items()}


NULL_FOR_NONE = tuple(
    key
    for key, field in settings.keys(Curve).items()
    if settings.defaults(Curve).get(field, "") is None
)
LINES = pyarrow.schema(
    {
        "figure": TYPES[str],
        "label": TYPES[str],
        **{
            "setting" if key == "partition" else key: TYPES[settings.value_types(Curve)[field]]
            for key, field in settings.keys(Curve).items()
        },
        "round": TYPES[int],
    }
)
CURVES = pyarrow.schema(
    [
        *LINES,
        *((f"{name}_{of}", TYPES[float]) for name in MEASURES for of in ("mean", "sem")),
        ("runs", TYPES[int]),
        ("diverged", TYPES[int]),
    ]
)


SITES = pyarrow.schema(
    {
        "curve": TYPES[str],
        "site": TYPES[str],
        "round": TYPES[int],
        "metric": TYPES[str],
        "mean": TYPES[float],
        "sem": TYPES[float],
        "runs": TYPES[int],
    }
)


def beside_accuracy(study: Study) -> dict[str, int]:
    """The metrics that have columns of their own: name -> place among those of the study."""
    names = {metric.name: k for k, metric in enumerate(study.measured)}
    return {name: k for name, k in names.items() if name != "accuracy"}


def _curves_schema(study: Study, *, sites: bool) -> pyarrow.Schema:
    names = list(beside_accuracy(study))
    if sites:
        names += [worst_site(metric.name) for metric in study.measured]
    columns = [(f"{name}_{of}", TYPES[float]) for name in names for of in ("mean", "sem")]
    columns += [(name, TYPES[float]) for name in OF_CLOCK] if study.clock is not None else []
    return pyarrow.schema([*CURVES, *columns])


def worst_site(metric: str) -> str:
    """How a metric at the worst site of each run is called."""
    return f"worst_site_{metric}"


def build(study: Study, folder: Folder, dataset: Dataset) -> None:
    """Write the tables from the finished runs, one run at a time."""
    digest, curves = study.digest, study.curves
    C, n_test = len(curves), len(dataset.y_test)
    of_clock = ("ticks",) if study.clock is not None else ()
    names = (*PER_ROUND, "heterogeneity", "theory", *of_clock)
    moments = {name: RunMoments(C) for name in names}
    keys = [curve.key for curve in curves]
    asked = [k for k, curve in enumerate(curves) if curve in study.theory_curves]
    sites = dataset.sites if dataset.site_test is not None else ()
    measured = _Measured(study, len(sites))

    def run_tables() -> Iterator[pyarrow.Table]:
        for run in range(study.runs):
            result = _with_theory_for_all(folder.read_run(run, digest), asked)
            counts = ~result.diverged
            measured.add(result, counts)
            last = {name: result.measures[:, -1, k] for name, k in beside_accuracy(study).items()}
            if study.loss == CrossEntropy.name:
                accuracy = np.where(result.correct < 0, np.nan, result.correct / n_test)
            else:
                accuracy = measured.accuracy(result)
            moments["accuracy"].add(accuracy, counts)
            for name in PER_ROUND[1:]:
                values = getattr(result, name)
                # There is no estimate after the last round.
                nothing = np.full((len(values), 1), np.nan)
                moments[name].add(np.concatenate([values, nothing], axis=1), counts)
            moments["heterogeneity"].add(result.heterogeneity, counts)
            moments["theory"].add(result.theory, counts)
            if study.clock is not None:
                moments["ticks"].add(result.ticks.astype(np.float64), counts)
            yield _run_table(study, run, keys, accuracy, result, last)

    folder.write_tables("runs.parquet", run_tables())
    folder.write_tables("curves.parquet", [_curve_table(study, moments, measured.columns())])
    if sites:
        folder.write_tables("sites.parquet", [measured.site_table(keys, sites)])
    if study.clock is not None and study.clock.target is not None:
        folder.write_tables(times.FILE, [times.table(study, folder, line_labels)])


def line_labels(figure: Figure) -> list[str]:
    return [line.label for line in figure.lines]


class _Measured:
    """Means over runs of the metrics that need more than counts of right classes."""

    def __init__(self, study: Study, n_sites: int) -> None:
        C, R, K = len(study.curves), len(study.measured_rounds), len(study.measured)
        self.study, self.n_sites = study, n_sites
        self.pooled, self.worst = RunMoments(C, R, K), RunMoments(C, R, K)
        self.at_sites = RunMoments(C, R, n_sites, K)
        self.signs = np.array([metric.sign for metric in study.measured])

    def add(self, result: RunResult, counts: BoolArray) -> None:
        """One run; what is undefined counts for nothing."""
        pairs = [(self.pooled, result.measures)] if result.measures.size else []
        if self.n_sites:
            at_sites = result.site_measures
            least = np.where(np.isnan(at_sites), np.inf, at_sites * self.signs).min(axis=2)
            worst = np.where(np.isinf(least), np.nan, least * self.signs)
            pairs += [(self.at_sites, at_sites), (self.worst, worst)]
        for moments, values in pairs:
            of_curve = counts[(slice(None), *[None] * (values.ndim - 1))]
            moments.add(values, of_curve & ~np.isnan(values))

    def accuracy(self, result: RunResult) -> FloatArray:
        """Accuracy where there are no classes: measured, or unknown, (C, T + 1)."""
        found = np.full(result.correct.shape, np.nan)
        names = [metric.name for metric in self.study.measured]
        if "accuracy" in names:
            found[:, list(self.study.measured_rounds)] = result.measures[
                :, :, names.index("accuracy")
            ]
        return found

    def columns(self) -> dict[str, FloatArray]:
        """The columns of curves.parquet by name, (C, T + 1) each; NaN after other rounds."""
        rounds, T = list(self.study.measured_rounds), self.study.rounds
        found = {}

        def add(name: str, moments: RunMoments, k: int) -> None:
            for of in ("mean", "sem"):
                values = np.full((len(self.study.curves), T + 1), np.nan)
                values[:, rounds] = getattr(moments, of)[:, :, k]
                found[f"{name}_{of}"] = values

        for name, k in beside_accuracy(self.study).items():
            add(name, self.pooled, k)
        for k, metric in enumerate(self.study.measured if self.n_sites else ()):
            add(worst_site(metric.name), self.worst, k)
        return found

    def site_table(self, keys: list[str], sites: Sequence[str]) -> pyarrow.Table:
        """sites.parquet: a row for each curve, site, round and metric."""
        rounds, names = self.study.measured_rounds, [m.name for m in self.study.measured]
        shape = (len(keys), len(rounds), len(sites), len(names))

        def flat(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            """(C, rounds, S, K) in the order of the rows: curve, site, round, metric."""
            return values.transpose(0, 2, 1, 3).ravel()

        def places(axis: int) -> IntArray:
            return flat(np.indices(shape)[axis])

        return pyarrow.table(
            {
                "curve": np.array(keys, object)[places(0)],
                "site": np.array(sites, object)[places(2)],
                "round": np.array(rounds)[places(1)],
                "metric": np.array(names, object)[places(3)],
                "mean": flat(self.at_sites.mean),
                "sem": flat(self.at_sites.sem),
                "runs": flat(self.at_sites.n).astype(np.int64),
            },
            schema=SITES,
        )


def _with_theory_for_all(result: RunResult, asked: list[int]) -> RunResult:
    """The result with a theory row for every curve: NaN where it was not asked for."""
    theory = np.full((len(result.correct), *result.theory.shape[1:]), np.nan)
    theory[asked] = result.theory
    return replace(result, theory=theory)


def _curve_table(
    study: Study, moments: dict[str, RunMoments], measured: Mapping[str, FloatArray]
) -> pyarrow.Table:
    """One row per figure, line and round."""
    place = {curve: k for k, curve in enumerate(study.curves)}
    mean = {name: of.mean for name, of in moments.items()}
    sem = {name: of.sem for name, of in moments.items()}
    columns: dict[str, list[Any]] = _line_columns(study)

    def add(name: str, values: Any) -> None:
        columns.setdefault(name, []).extend(values)

    n_rows = study.rounds + 1
    for figure in study.figures:
        for line in figure.lines:
            k = place[line.curve]
            for name in PER_ROUND:
                add(f"{name}_mean", mean[name][k])
                add(f"{name}_sem", sem[name][k])
            for j, name in enumerate(HETEROGENEITY):
                add(f"{name}_mean", [mean["heterogeneity"][k, j]] * n_rows)
                add(f"{name}_sem", [sem["heterogeneity"][k, j]] * n_rows)
            for j, name in enumerate(THEORY):
                add(f"{name}_mean", [*mean["theory"][k, :, j], np.nan])
                add(f"{name}_sem", [*sem["theory"][k, :, j], np.nan])
            for name, values in measured.items():
                add(name, values[k])
            if study.clock is not None:
                add("seconds", np.linspace(0, study.clock.seconds, n_rows))
                add("ticks_mean", mean["ticks"][k])
                add("ticks_sem", sem["ticks"][k])
            add("runs", [study.runs] * n_rows)
            add("diverged", [study.runs - int(moments["accuracy"].n[k])] * n_rows)
    sites = any(name.startswith(worst_site("")) for name in measured)
    return pyarrow.table(columns, schema=_curves_schema(study, sites=sites))


def _line_columns(study: Study) -> dict[str, list[Any]]:
    """The `LINES` of curves.parquet: figure by figure, line by line, round by round."""
    columns: dict[str, list[Any]] = {name: [] for name in LINES.names}
    for figure in study.figures:
        for line in figure.lines:
            row = {"figure": figure.name, "label": line.label, **_described(line.curve)}
            for t in range(study.rounds + 1):
                for name, value in {**row, "round": t}.items():
                    columns[name].append(value)
    return columns


def read(folder: Folder) -> tuple[Study, pyarrow.Table, pyarrow.Table]:
    """The study, curves.parquet and runs.parquet, seen to belong together.

    The study has the number of runs that the tables hold: a longer one may be under way.
    """
    study = folder.study()
    curves = folder.read_table("curves.parquet", _curves_schema(study, sites=False), NULL_FOR_NONE)
    if not curves.select(LINES.names).equals(pyarrow.table(_line_columns(study), schema=LINES)):
        raise ResultsError(
            f"{folder.path / 'curves.parquet'} must hold every line of run.json's figures; "
            "run the study to its end first"
        )
    runs = folder.read_table("runs.parquet", _runs_schema(study))
    n_runs, keys = curves["runs"][0].as_py(), [curve.key for curve in study.curves]
    if not runs.select(["run", "curve"]).equals(
        pyarrow.table({"run": np.repeat(np.arange(n_runs), len(keys)), "curve": keys * n_runs})
    ):
        raise ResultsError(
            f"{folder.path / 'runs.parquet'} must hold every curve of run.json's study for each "
            f"of the {n_runs} runs that curves.parquet counts; run the study to its end first"
        )
    return replace(study, runs=n_runs), curves, runs


def read_sites(folder: Folder, study: Study) -> pyarrow.Table | None:
    """sites.parquet; None where sites are not known."""
    if not (folder.path / "sites.parquet").exists():
        return None
    table = folder.read_table("sites.parquet", SITES)
    if not set(table["curve"].unique().to_pylist()) >= {curve.key for curve in study.curves}:
        raise ResultsError(
            f"{folder.path / 'sites.parquet'} must hold every curve of run.json's study; "
            "run the study to its end first"
        )
    return table


def last_round(folder: Folder, main: str = "accuracy") -> list[dict[str, Any]]:
    """What every line reached: figure, label, p, the main metric, its error, runs, diverged."""
    table = folder.read_table("curves.parquet")
    names = ("figure", "label", "p", "round", "runs", "diverged", f"{main}_mean", f"{main}_sem")
    rows = table.select(names).to_pylist()
    last = max(row["round"] for row in rows)
    return [
        {
            **{name: row[name] for name in ("figure", "label", "p", "runs", "diverged")},
            main: _or_none(row[f"{main}_mean"]),
            "sem": _or_none(row[f"{main}_sem"]),
        }
        for row in rows
        if row["round"] == last
    ]


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


def final(metric: str) -> str:
    """The column of runs.parquet with a metric after the last round."""
    return f"final_{metric}"


def _run_table(
    study: Study,
    run: int,
    keys: list[str],
    accuracy: FloatArray,
    result: RunResult,
    last: Mapping[str, FloatArray],
) -> pyarrow.Table:
    """One row per curve of one run."""
    n_late = _n_late(accuracy.shape[1] - 1)
    late = np.full((len(accuracy), n_late), np.nan, np.float32)
    late[:, : accuracy.shape[1] - LATE] = accuracy[:, LATE:]
    return pyarrow.table(
        {
            "run": np.full(len(keys), run),
            "curve": keys,
            **summaries(accuracy, result),
            "diverged": result.diverged,
            "late_accuracies": pyarrow.FixedSizeListArray.from_arrays(
                pyarrow.array(late.ravel()), n_late
            ),
            **{final(name): values for name, values in last.items()},
            **({} if study.target is None else {times.SECONDS: result.reached}),
        },
        schema=_runs_schema(study),
    )


def _n_late(n_rounds: int) -> int:
    return max(1, n_rounds - LATE + 1)  # a list of a fixed length is never empty


def _runs_schema(study: Study) -> pyarrow.Schema:
    return pyarrow.schema(
        {
            "run": TYPES[int],
            "curve": TYPES[str],
            **dict.fromkeys(SUMMARIES, TYPES[float]),
            "diverged": TYPES[bool],
            "late_accuracies": pyarrow.list_(pyarrow.float32(), _n_late(study.rounds)),
            **{final(name): TYPES[float] for name in beside_accuracy(study)},
            **({} if study.target is None else {times.SECONDS: TYPES[float]}),
        }
    )
