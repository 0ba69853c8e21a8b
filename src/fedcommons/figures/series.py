"""Lines of a figure, read from the results table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow

from fedcommons.checks import FloatArray
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.studies import Figure, Line

Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its columns over the rounds."""

    line: Line
    columns: dict[str, FloatArray]

    @property
    def label(self) -> str:
        return self.line.label

    @property
    def curve(self) -> Curve:
        return self.line.curve

    def mean(self, name: str) -> FloatArray:
        return self.columns[f"{name}_mean"]

    def half_width(self, name: str) -> FloatArray:
        """Half of the 95 % interval of the mean; 0 where a single run gives none."""
        return np.nan_to_num(self.columns[f"{name}_sem"] * Z95)

    @property
    def runs(self) -> int:
        return int(self.columns["runs"][0])

    @property
    def diverged(self) -> int:
        """How many of the runs were lost to NaN or infinity; the means are without them."""
        return int(self.columns["diverged"][0]) if "diverged" in self.columns else 0


def read(figure: Figure, table: pyarrow.Table) -> list[Series]:
    """The series of a figure, in the order of its lines."""
    columns = {
        name: table[name].to_numpy()
        for name in table.column_names
        if pyarrow.types.is_floating(table[name].type) or pyarrow.types.is_integer(table[name].type)
    }
    rows = np.flatnonzero(np.asarray(table["figure"].to_pylist()) == figure.name)
    n_rows = len(rows) // len(figure.lines)
    return [
        Series(line, {n: v[rows[k * n_rows : (k + 1) * n_rows]] for n, v in columns.items()})
        for k, line in enumerate(figure.lines)
    ]


def panels(series: list[Series]) -> dict[float, list[Series]]:
    """Series by straggler probability; one that waits for everybody is in every panel."""
    everywhere = [s for s in series if s.curve.estimator == "wait_for_all"]
    probs = sorted({s.curve.straggler_prob for s in series if s not in everywhere}) or [0.0]
    return {p: [s for s in series if s in everywhere or s.curve.straggler_prob == p] for p in probs}
