"""What a study has found so far, from the runs that are finished while others go on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.intervals import half_width
from fedcommons.simulate import runner
from fedcommons.simulate.definition import Study
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.result import RunResult
from fedcommons.tasks.cross_entropy import CrossEntropy


@dataclass(slots=True)
class SoFar:
    """The main metric of every curve in the finished runs; `look` takes up what is new."""

    folder: Folder
    study: Study
    n_test: int
    _of_run: dict[int, FloatArray] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Folder) -> SoFar:
        study = folder.study()
        return cls(folder, study, len(runner.study_data(study).y_test))

    def look(self) -> int:
        """How many runs are finished."""
        for path in sorted(self.folder.runs.glob("*.npz")):
            run = int(path.stem)
            if run < self.study.runs and run not in self._of_run:  # blocks may go beyond
                self._of_run[run] = self._values(self.folder.read_run(run, self.study.digest))
        return len(self._of_run)

    def _values(self, result: RunResult) -> FloatArray:
        """(C, points) the main metric where it was measured; NaN where a curve is lost."""
        main = self.study.measured[0].name
        if main == "accuracy" and self.study.loss == CrossEntropy.name:
            return np.where(result.correct < 0, np.nan, result.correct / self.n_test)
        return np.where(result.diverged[:, None], np.nan, result.measures[:, :, 0])

    def means(self) -> tuple[FloatArray, FloatArray]:
        """(C, points) each: means over the finished runs, and half of their 95 % intervals."""
        values = np.array(list(self._of_run.values()))
        there = ~np.isnan(values)
        n = there.sum(axis=0)
        few = np.maximum(n, 1)
        mean = np.where(n > 0, np.where(there, values, 0).sum(axis=0) / few, np.nan)
        spread = np.where(there, (values - mean) ** 2, 0).sum(axis=0)
        return mean, half_width(np.sqrt(spread / np.maximum(n - 1, 1) / few), n)
