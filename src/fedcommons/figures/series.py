"""Lines of a figure, read from the results table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow
import pyarrow.compute

from fedcommons.checks import FloatArray
from fedcommons.figures import captions
from fedcommons.intervals import half_width
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Figure, Line


@dataclass(frozen=True, slots=True)
class Series:
    """One line.

    Attributes:
        label: of its own.
        columns: its numbers over the rounds.
        reference: whether others aim at it.
        always: whether it belongs beside every p: nobody is ever missing, and there is one of it.
    """

    label: str
    curve: Curve
    columns: dict[str, FloatArray]
    reference: bool
    always: bool

    def mean(self, name: str) -> FloatArray:
        return self.columns[f"{name}_mean"]

    def interval(self, name: str) -> FloatArray:
        """Half of the 95 % interval of the mean; NaN where a single run gives none."""
        return half_width(self.columns[f"{name}_sem"], self.runs - self.diverged)

    def half_width(self, name: str) -> FloatArray:
        """The same to draw: 0 where there is none."""
        return np.nan_to_num(self.interval(name))

    @property
    def times(self) -> FloatArray:
        """What its numbers stand over: rounds, or seconds under a clock."""
        if self.clocked:
            return self.columns["seconds"]
        return np.arange(len(self.columns["runs"]), dtype=np.float64)

    @property
    def clocked(self) -> bool:
        """Whether it was trained under a clock."""
        return "seconds" in self.columns

    @property
    def runs(self) -> int:
        return int(self.columns["runs"][0])

    @property
    def diverged(self) -> int:
        """How many of the runs were lost to NaN or infinity; the means are without them."""
        return int(self.columns["diverged"][0])


def read(figure: Figure, table: pyarrow.Table) -> list[Series]:
    """The series of a figure, in the order of its lines.

    References are the lines of those who never miss anybody and, beside other partitions, the IID.
    """
    table = table.filter(pyarrow.compute.equal(table["figure"], figure.name))
    columns = {
        name: table[name].to_numpy()
        for name in table.column_names
        if pyarrow.types.is_floating(table[name].type) or pyarrow.types.is_integer(table[name].type)
    }
    n_rows = len(table) // len(figure.lines)
    partitions = {line.curve.partition for line in figure.lines}
    waiting = Counter(line.label for line in figure.lines if _waits(line))
    found = []
    for k, (label, line) in enumerate(zip(captions.labels(figure), figure.lines, strict=True)):
        mine = {n: v[k * n_rows : (k + 1) * n_rows] for n, v in columns.items()}
        iid = line.curve.partition == "iid" and len(partitions) > 1
        always = _waits(line) and waiting[line.label] == 1
        found.append(Series(label, line.curve, mine, iid or _waits(line), always))
    return found


def _waits(line: Line) -> bool:
    return line.curve.estimator == "wait_for_all"


def panels(series: list[Series]) -> dict[float, list[Series]]:
    """Series by straggler probability; one that waits for everybody at any p is in every panel."""
    probs = sorted({s.curve.straggler_prob for s in series if not s.always}) or [0.0]
    return {p: [s for s in series if s.always or s.curve.straggler_prob == p] for p in probs}
