"""CodedPaddedFL's task by the clock: least squares on 2,000 random features of images, no sharing.

    python -m experiments.coded_padded_fl [--results results] [--fashion fashion.npz] [DATA ...]

writes the features of a data set, once, and runs what is missing of its studies: 25 clients sorted
by label with the published delays. What every line took goes into docs/data/coded-padded-fl.csv
(`results.py`), in the columns of docs/data/clock.csv.

The features stand for a radial basis kernel exp(-|x - y|^2 / (2 WIDTH^2)) of pixels in [0, 1]
(Rahimi and Recht, NIPS 2007): sqrt(2/2000) cos(w x + b), w normal, b uniform, times SCALE. The
linear model has a bias, and the task has none: beside features of length SCALE the bias is one of
length 1, a hundredth of their square, and hardly matters.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from experiments import clock_cells

import fedcommons as fc
from fedcommons.simulate.definition import Study

DATA = clock_cells.DATA.with_name("coded-padded-fl.csv")
FEATURES, WIDTH, SCALE = 2000, 5.0, 10.0
TRAINING = 30_000  # of its images: runs draw from these
AT_ONCE = 5000  # images
CLASS_SIZE = 1000  # of some 6,000; an example counts as 60,000 / 10,000
MULTIPLY_ADDS = 2 * 10 * FEATURES * 60_000 / (10 * CLASS_SIZE)


class LeastSquares(fc.tasks.CrossEntropy):
    """Half of the squared distance of the scores from the label, written as zeros and a one."""

    name = "least-squares"

    def residuals(self, scores: Any, y: Any, weight: Any) -> Any:
        return (scores - np.eye(self.n_outputs, dtype=np.float32)[y]) * weight[..., None]

    def values(self, scores: Any, y: Any) -> Any:
        return 0.5 * ((scores - np.eye(self.n_outputs)[y]) ** 2).sum(axis=-1)


def features(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """(M, FEATURES) of images (M, ...): the same random functions for all."""
    pixels = images.reshape(len(images), -1)
    rng = np.random.default_rng(0)
    w = rng.normal(scale=1 / WIDTH, size=(pixels.shape[1], FEATURES)).astype(np.float32)
    b = rng.uniform(0, 2 * np.pi, FEATURES).astype(np.float32)
    found = np.empty((len(pixels), FEATURES), np.float32)
    for start in range(0, len(pixels), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        inputs = pixels[part].astype(np.float32) / 255
        found[part] = SCALE * np.sqrt(2 / FEATURES) * np.cos(inputs @ w + b)
    return found


@dataclass(frozen=True, slots=True)
class Task:
    """A data set and the accuracy that is to be reached; waiting for all has a study of its own."""

    data: str
    target: float
    lines: tuple[str, ...] = ("late", "chunk", "f15")

    @property
    def name(self) -> str:
        return f"least-squares-{self.data}-single-table"

    @property
    def waits(self) -> Task:
        return replace(self, lines=("all",))

    @property
    def folder(self) -> str:
        return f"padded-{self.data}{'-all' if self.lines == ('all',) else ''}"

    def study(self, data: Path | str) -> Study:
        """Of a file of features."""
        return fc.simulate.study(
            self.folder,
            data=str(data),
            loss="experiments.coded_padded_fl:LeastSquares",
            metrics=["accuracy"],
            clock={
                **clock_cells.TABLE,
                "seconds": WAITING if self.lines == ("all",) else SECONDS,
                "target": self.target,
                "multiply_adds": MULTIPLY_ADDS,
            },
            grid=[{**MODEL, **LINES[line]} for line in self.lines],
            clients=25, class_size=CLASS_SIZE, test_size=2000, rounds=50, runs=3, seed=11,
            decay=1.0,
        )  # fmt: skip


MODEL = {"model": "linear", "partition": "single-class"}
LATE: dict[str, Any] = {"policy": "deadline", "late": "remember", "deadline": clock_cells.FITS}
SIMPLE: dict[str, Any] = {"estimator": "responder_average"}
# Chosen on one run of seed 500 on MNIST, of .028, .056 and .112, and for the 15 fastest of .014.
# For waiting .15 diverged, as full batches must from 2 over the features' largest curvature on:
# .127 on MNIST and .144 on Fashion-MNIST.
LINES: dict[str, dict[str, Any]] = {
    "all": {**SIMPLE, "policy": "all", "learning_rate": 0.112},
    "late": {**LATE, "estimator": "memory", "learning_rate": 0.056},
    "chunk": {**LATE, "work": "chunk", "learning_rate": 0.112},
    "f15": {
        **SIMPLE,
        "policy": "fastest:15",
        "work": "sized",
        "deadline": clock_cells.FITS,
        "learning_rate": 0.112,
    },
}
WAITING, SECONDS = 45_000.0, 1_800.0

TASKS = (Task("mnist", 0.94), Task("fashion", 0.84))
HEADER = (
    *("data", "target", "line", "η", "seconds: median (all runs)", "got there"),
    *("times as fast as waiting", "as the 15 fastest"),
)


def collect(results: Path) -> None:
    """Write docs/data/coded-padded-fl.csv of the studies that are finished."""
    clock_cells.write(DATA, _finished(results))


def _finished(results: Path) -> Iterator[tuple[Sequence[str | float], clock_cells.Took]]:
    for task in TASKS:
        for one in (task.waits, task):
            for took in clock_cells.lines_of(results / one.folder):
                yield ("least-squares", task.data, "single", "table", task.target), took


def rows() -> Iterator[list[str]]:
    """Of each data set, line by line: beside waiting for all, and the simple policy."""
    for task in TASKS:
        lines = [one for one in clock_cells.took(DATA) if one.cell == task.name]
        if not lines:
            continue
        [waiting] = [one for one in lines if one.line.startswith("waiting")]
        for one in lines:
            others = (waiting, clock_cells.best_simple(lines))
            yield [task.data, f"{task.target:g}", *clock_cells.beside(one, *others)]


def write_features(data: str, out: Path) -> None:
    """Of a data set: of TRAINING of its training images, and of all test images."""
    read = fc.datasets.opened(data)
    drawn = np.sort(np.random.default_rng(1).permutation(len(read.y_train))[:TRAINING])
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        out,
        x_train=features(read.x_train[drawn]),
        y_train=read.y_train[drawn],
        x_test=features(read.x_test),
        y_test=read.y_test,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--mnist", default="mnist")
    parser.add_argument("--fashion", default="fashion-mnist.npz")
    parser.add_argument("tasks", nargs="*", default=[task.data for task in TASKS])
    options = parser.parse_args()
    for task in TASKS:
        if task.data in options.tasks:
            data = options.results / f"padded-{task.data}-features.npz"
            if not data.exists():
                write_features(getattr(options, task.data), data)
            for one in (task, task.waits):
                fc.simulate.run(one.study(data), out=options.results / one.folder, workers=1)
                print(one.folder)


if __name__ == "__main__":
    main()
