"""Seconds to a target over models, data, partitions and delays: the studies and their table.

    python experiments/clock_cells.py [--results results] [--fashion fashion-mnist.npz] [CELL ...]

runs what is missing of the cells, such as `softmax-mnist-single-table`, in the order of `CELLS`.
What every line took goes into docs/data/clock.csv (`results.py`): a row for each cell and line,
with the seconds of each run.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fedcommons as fc
from fedcommons.checks import FloatArray
from fedcommons.simulate import times
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Study
from fedcommons.simulate.folder import Folder

DATA = Path(__file__).parent.parent / "docs" / "data" / "clock.csv"
PARTITIONS: dict[str, dict[str, Any]] = {
    "single": {"partition": "single-class"},
    "dirichlet": {"partition": "dirichlet", "alpha": 0.1},
}
TABLE: dict[str, Any] = {"delays": "coded-padded-fl"}
DELAYS: dict[str, dict[str, Any]] = {
    "table": TABLE,  # the published one
    "away": {  # speeds that scatter as much as the table's, and everybody is away at times
        "delays": "lognormal", "rate": 6.3e6, "rate_spread": 1.2, "spread": 0.5, "link": 0.26,
        "failure": 0.1, "away": {"share": 0.3, "seconds": 80},
    },
    "stalls": {**TABLE, "stall": 5.0, "tail": 1.5},  # in every job, whatever the work
    "tied": {  # the owners of three classes are away most of the time
        **TABLE, "away": {"share": [0.8] * 3 + [0.1] * 7, "seconds": 80, "by": "class"},
    },
}  # fmt: skip
FITS = 2.6  # seconds that work is cut to fit, ten times the link; "@10" after a line for another
MULTIPLY_ADDS = {  # of an example, times 60,000 / 5,000: convolutions use their weights many times
    "softmax": 188_400,
    "mlp": 1_221_360,
    "cnn": 1_881_600,
}
RATES = {
    "softmax": {
        "full": [0.6, 1.2, 2.4, 4.8], "late": [0.6, 1.2, 2.4], "sized": [0.3, 0.6, 1.2, 2.4],
        "chunk": [0.6, 1.2, 2.4, 4.8], "sagachunk": [0.3, 0.6, 1.2, 2.4],
    },
    "mlp": {
        "full": [0.4, 0.8, 1.6], "sized": [0.2, 0.4, 0.8], "chunk": [0.4, 0.8, 1.6],
        "sagachunk": [0.2, 0.4, 0.8],
    },
    "cnn": {
        "full": [0.2, 0.4, 0.8], "sized": [0.1, 0.2, 0.4], "chunk": [0.2, 0.4, 0.8],
        "sagachunk": [0.1, 0.2, 0.4],
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One study: lines to compare, and how long each may take.

    A line is "all" (waiting for all with full batches), "f15" (waiting for the 15 fastest with
    batches sized to speed), "late" (late answers remembered, full batches), "chunk", "sagachunk",
    "chunkf20" (a tick ends at the 20th answer), "cchunk" (corrected), or "fits" (nothing chosen).
    """

    model: str
    data: str
    partition: str
    delays: str
    target: float
    seconds: float
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        return "-".join([self.model, self.data, self.partition, self.delays])

    @property
    def waits(self) -> Cell:
        """The same for waiting for all, which takes so long that it has a study of its own."""
        return replace(self, seconds=WAITING[self.delays], lines=("all",))

    @property
    def untuned(self) -> Cell:
        """The same with nothing chosen: work that fits, and steps that clients allow."""
        return replace(self, seconds=2.5 * self.seconds, lines=("fits",))

    @property
    def folder(self) -> str:
        """Where its results are, in the folder of all results."""
        apart = {("all",): "-all", ("fits",): "-untuned"}
        return f"clock-{self.name}{apart.get(self.lines, '')}"

    def study(self, fashion: str) -> Study:
        tuned = self.lines != ("fits",)
        return fc.simulate.study(
            self.folder,
            data={"mnist": "mnist", "fashion": fashion}[self.data],
            clock={
                **DELAYS[self.delays],
                "seconds": self.seconds,
                "target": self.target,
                "multiply_adds": MULTIPLY_ADDS[self.model],
            },
            grid=[self.grid(line) for line in self.lines],
            clients=25, class_size=500, test_size=2000, rounds=50, runs=3, seed=11, decay=1.0,
            tune=tuned, tune_runs=1,
        )  # fmt: skip

    def grid(self, line: str) -> dict[str, Any]:
        """The table of a line."""
        kind, _, seconds = line.partition("@")
        rates, base = RATES[self.model], {"model": self.model, **PARTITIONS[self.partition]}
        late = {"policy": "deadline", "late": "remember", "deadline": float(seconds or FITS)}
        if kind == "all":
            own = {"policy": "all", "estimator": "responder_average"}
            return {**base, **own, "learning_rate": rates["full"]}
        if kind == "fits":
            own = {"work": "fits", "step_control": True, "learning_rate": 1.0}
            return {**base, **late, **own, "deadline": "adaptive"}
        if kind == "late":
            return {**base, **late, "estimator": "memory", "learning_rate": rates["late"]}
        if kind[0] == "f":
            own = {
                "policy": f"fastest:{kind[1:]}",
                "work": "sized",
                "estimator": "responder_average",
            }
            return {**base, **late, **own, "late": "discard", "learning_rate": rates["sized"]}
        corrected = {"c": 0.1, "d": 3, "correct": True} if kind.startswith("cch") else {}
        work, _, fastest = kind.removeprefix("c" if corrected else "").partition("f")
        policy = {"policy": f"fastest:{fastest}"} if fastest else {}
        return {**base, **late, **corrected, **policy, "work": work, "learning_rate": rates[work]}


WAITING = {"table": 10_000.0, "away": 30_000.0, "stalls": 20_000.0, "tied": 40_000.0}
CELLS = (
    Cell("softmax", "mnist", "single", "table", 0.9, 600, ("f15", "f20", "late", "chunk")),
    Cell("softmax", "mnist", "single", "away", 0.9, 1200, ("f10", "f15", "chunk")),
    Cell("softmax", "mnist", "single", "stalls", 0.9, 1500, ("f15", "f15@10", "chunk", "chunk@10")),
    Cell("softmax", "mnist", "single", "tied", 0.9, 1000, ("f10", "f15", "chunk", "cchunk")),
    Cell(
        "mlp", "mnist", "single", "table", 0.9, 600,
        ("f20", "sagachunk", "sagachunkf20", "chunkf20"),
    ),
    Cell("mlp", "mnist", "single", "tied", 0.92, 2000, ("f10", "chunk", "cchunk")),  # not tuned
    Cell("mlp", "mnist", "single", "away", 0.9, 1200, ("f10", "f15", "sagachunk")),
    Cell("mlp", "mnist", "single", "stalls", 0.9, 1500, ("f15@10", "sagachunk@10")),
    Cell("cnn", "mnist", "single", "table", 0.9, 800, ("f20", "sagachunk")),
    Cell("softmax", "fashion", "single", "table", 0.8, 400, ("f15", "f20", "chunk")),
    Cell("softmax", "fashion", "single", "tied", 0.8, 800, ("f10", "f15", "chunk", "cchunk")),
    Cell("softmax", "fashion", "single", "away", 0.8, 800, ("f10", "f15", "chunk")),
    Cell("softmax", "mnist", "dirichlet", "table", 0.9, 600, ("f15", "f20", "chunk")),
    Cell("softmax", "mnist", "dirichlet", "away", 0.9, 1200, ("f10", "f15", "chunk")),
    Cell("softmax", "mnist", "dirichlet", "tied", 0.9, 1000, ("f10", "f15", "chunk", "cchunk")),
    Cell("softmax", "fashion", "dirichlet", "table", 0.8, 400, ("f15", "f20", "chunk")),
    Cell("softmax", "fashion", "single", "stalls", 0.8, 1000, ("f15@10", "chunk@10")),
    Cell("softmax", "mnist", "dirichlet", "stalls", 0.9, 1500, ("f15", "chunk@10")),
    Cell("softmax", "fashion", "dirichlet", "away", 0.8, 800, ("f10", "f15", "chunk")),
    Cell("softmax", "fashion", "dirichlet", "stalls", 0.8, 1000, ("f15", "chunk@10")),
    Cell("softmax", "fashion", "dirichlet", "tied", 0.8, 800, ("f10", "chunk", "cchunk")),
)  # fmt: skip
NOTHING_CHOSEN = "nothing chosen"
COLUMNS = (*Cell.__slots__[:6], "line", "simple", "learning_rate", "edge", "took")


@dataclass(frozen=True, slots=True)
class Took:
    """What a line took to the target, run by run; infinity for a run that never got there."""

    cell: str
    target: float
    seconds: float  # that it was given
    line: str
    simple: bool
    learning_rate: float
    edge: bool  # whether that is the first or the last of the rates that were tried
    took: FloatArray

    @property
    def untuned(self) -> bool:
        """Whether nothing of it was chosen."""
        return self.line == NOTHING_CHOSEN


def collect(results: Path) -> None:
    """Write docs/data/clock.csv of the cells that are finished."""
    write(DATA, _finished(results))


def write(path: Path, found: Iterable[tuple[Sequence[str | float], Took]]) -> None:
    """What lines took, each with the first five `COLUMNS`; nothing if there is none."""
    if not (lines := list(found)):
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for own, took in lines:
            seconds = " ".join(f"{value:.1f}" for value in took.took)
            simple, edge = int(took.simple), int(took.edge)
            table.writerow(
                [*own, took.seconds, took.line, simple, took.learning_rate, edge, seconds]
            )


def _finished(results: Path) -> Iterator[tuple[Sequence[str | float], Took]]:
    for cell in CELLS:
        own = [getattr(cell, name) for name in COLUMNS[:5]]
        for one in (cell.waits, cell, cell.untuned):
            for took in lines_of(results / one.folder):
                yield own, took


def lines_of(path: Path) -> Iterator[Took]:
    """What every line of a study took; nothing if it is not finished."""
    if not (path / "times.parquet").exists():
        return
    folder, tuning = Folder(path), Folder(path.with_name(f"{path.name}-tuning"))
    study = folder.study()
    tried = tuning.study().curves if tuning.path.exists() else ()
    assert study.clock is not None
    assert study.clock.target is not None
    digest = folder.record()["digest"]
    every = np.stack([folder.read_run(k, digest).reached for k in range(study.runs)])
    for curve, seconds in zip(study.curves, every.T, strict=True):
        yield Took(
            path.name, study.clock.target, study.clock.seconds, words(curve),
            times.is_simple(curve), curve.learning_rate, _at_the_edge(curve, tried), seconds,
        )  # fmt: skip


def words(curve: Curve) -> str:
    """What a line is."""
    if curve.step_control:
        return NOTHING_CHOSEN
    if curve.policy == "all":
        return "waiting for all, full batches"
    if curve.work == "full":
        return "late answers, full batches"
    _, _, fastest = curve.policy.partition(":")
    if curve.work == "sized":
        found = f"{fastest} fastest, sized batches"
    else:
        found = f"`{curve.work}`" + (f", {fastest} fastest" if fastest else "")
    corrected = ", corrected, (0.1, 3)" if curve.corrected else ""
    within = f", T = {curve.deadline:g} s" if curve.deadline not in (None, FITS) else ""
    return found + corrected + within


def _at_the_edge(curve: Curve, tried: tuple[Curve, ...]) -> bool:
    rates = [
        one.learning_rate
        for one in tried
        if replace(one, learning_rate=curve.learning_rate) == curve
    ]
    return bool(rates) and curve.learning_rate in (min(rates), max(rates))


@cache
def took(path: Path = DATA) -> tuple[Took, ...]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return tuple(
        Took(
            "-".join(row[name] for name in COLUMNS[:4]),
            float(row["target"]),
            float(row["seconds"]),
            row["line"],
            row["simple"] == "1",
            float(row["learning_rate"]),
            row["edge"] == "1",
            np.array([float(value) for value in row["took"].split()]),
        )
        for row in rows
    )


def best_simple(lines: list[Took]) -> Took:
    """The simple policy that most runs reach the target with, then the fastest.

    Of those that are given as long as the others: waiting for all is not.
    """
    given = min(one.seconds for one in lines)
    return min(
        (one for one in lines if one.simple and one.seconds == given),
        key=lambda one: (-np.isfinite(one.took).sum(), *_quantiles(one.took)),
    )


def _quantiles(values: FloatArray) -> tuple[float, float]:
    middle, low = np.quantile(values, (0.5, 0.0), method="inverted_cdf")
    return float(middle), float(low)


HEADER = (
    *("data", "partition", "delays", "target", "line", "η"),
    *("seconds: median (all runs)", "got there", "times as fast"),
)


def rows(model: str) -> Iterator[list[str]]:
    """Of the cells of a model, line by line."""
    for cell in CELLS:
        lines = [one for one in took() if one.cell == cell.name and not one.untuned]
        if cell.model != model or not any(one.simple for one in lines):
            continue
        best = best_simple(lines)
        for one in lines:
            about = (cell.data, cell.partition, cell.delays, f"{cell.target:g}")
            yield [*about, *beside(one, best)]


def beside(one: Took, *others: Took) -> list[str]:
    """A line, its rate, its seconds, how many runs got there, times as fast as each other line."""
    rate = f"{one.learning_rate:g}{'*' if one.edge else ''}"
    there = f"{int(np.isfinite(one.took).sum())} of {len(one.took)}"
    return [one.line, rate, _seconds(one), there, *(_faster(other, one) for other in others)]


UNTUNED = (
    "model",
    "data",
    "partition",
    "delays",
    "target",
    "tuned",
    "untuned",
    "got there",
    "times as long",
)


def untuned_rows() -> Iterator[list[str]]:
    """What nothing chosen costs, beside the fastest tuned line that shares nothing."""
    for cell in CELLS:
        lines = [one for one in took() if one.cell == cell.name]
        mine = [one for one in lines if not one.simple and "corrected" not in one.line]
        tuned = [one for one in mine if not one.untuned]
        for one in (one for one in mine if one.untuned):
            there = int(np.isfinite(one.took).sum())
            best = min(
                tuned, key=lambda t: (-np.isfinite(t.took).sum(), *_quantiles(t.took)), default=None
            )
            longer = (
                "–" if best is None else f"{_quantiles(one.took)[0] / _quantiles(best.took)[0]:.2g}"
            )
            yield [
                *(cell.model, cell.data, cell.partition, cell.delays, f"{cell.target:g}"),
                *("–" if best is None else _seconds(best), _seconds(one)),
                *(f"{there} of {len(one.took)}", longer),
            ]


def _seconds(one: Took) -> str:
    values = np.sort(one.took)
    median = float(np.quantile(values, 0.5, method="inverted_cdf"))

    def words(value: float) -> str:
        return f"{value:,.0f}" if np.isfinite(value) else f"> {one.seconds:,.0f}"

    return f"{words(median)} ({words(values[0])} – {words(values[-1])})"


def _faster(best: Took, one: Took) -> str:
    """Run by run how many times as fast as the best simple policy, with the logarithm's error."""
    if one is best:
        return "1"
    ours, theirs = np.isfinite(one.took).all(), np.isfinite(best.took).all()
    if not (ours or theirs):
        return "–"
    n = min(len(best.took), len(one.took))  # runs of the same numbers
    theirs_took, took = np.minimum(best.took, best.seconds), np.minimum(one.took, one.seconds)
    logs = np.log(theirs_took[:n] / took[:n])
    error = logs.std(ddof=1) / np.sqrt(len(logs))
    sign = "" if ours and theirs else "> " if ours else "< "
    return f"{sign}{np.exp(logs.mean()):.2g} ({error:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--fashion", default="fashion-mnist.npz")
    parser.add_argument("cells", nargs="*", default=[cell.name for cell in CELLS])
    options = parser.parse_args()
    for cell in CELLS:
        if cell.name in options.cells:
            for one in (cell, cell.waits, cell.untuned):
                fc.simulate.run(one.study(options.fashion), out=options.results / one.folder)
                print(one.folder)


if __name__ == "__main__":
    main()
