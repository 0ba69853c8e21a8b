"""What is tracked of a study: what its lines have reached so far, and in the end their curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fedcommons.checks import FloatArray
from fedcommons.simulate.definition import Figure, Study
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.so_far import SoFar
from fedcommons.tracking import About, Event

Labels = Callable[[Figure], Sequence[str]]
"""The lines' labels, in a figure in which no other line has the same at this p."""


def about(study: Study) -> About:
    settings = {
        name: str(getattr(study, name))
        for name in ("dataset", "clients", "class_size", "rounds", "runs", "seed")
    }
    return About(study.name, f"{study.name}-{study.digest[:12]}", settings)


class StudyEvents:
    """The events of one study that runs; they are of the main metric, as `fedcommons watch` is."""

    def __init__(self, study: Study, folder: Folder, labels: Labels) -> None:
        self.study, self._labels = study, labels
        self._folder = folder
        self._seen: SoFar | None = None

    def progress(self, done: int) -> list[Event]:
        """`done` runs are finished: means over them after the last round, by line."""
        found = [Event("run", done, {"finished": done, "wanted": self.study.runs})]
        if done:
            for of, mean, half in self._means():
                reached = {self._metric: mean[-1], f"{self._metric}_half_width": half[-1]}
                found.append(Event("run", done, reached, of))
        return found

    def curves(self) -> list[Event]:
        """Means over all runs after every round, by line; under a clock rounds are times."""
        study, clock = self.study, self.study.clock
        found = []
        for of, mean, half in self._means():
            steps = range(len(mean)) if len(mean) == study.rounds + 1 else study.measured_rounds
            for k, t in enumerate(steps):
                values = {self._metric: mean[k], f"{self._metric}_half_width": half[k]}
                if clock is not None:
                    values["seconds"] = clock.seconds * t / study.rounds
                found.append(Event("round", t, values, of))
        return found

    @property
    def _metric(self) -> str:
        return self.study.measured[0].name

    def _means(self) -> Iterator[tuple[str, FloatArray, FloatArray]]:
        """Every line's name, means and halves of their 95 % intervals, (points,) each."""
        if self._seen is None:
            self._seen = SoFar.of(self._folder)
        self._seen.look()
        mean, half = self._seen.means()
        place = {curve: k for k, curve in enumerate(self._seen.study.curves)}
        for figure in self.study.figures:
            for label, line in zip(self._labels(figure), figure.lines, strict=True):
                k = place[line.curve]
                yield f"{figure.name}: {label}, p={line.curve.straggler_prob:g}", mean[k], half[k]
