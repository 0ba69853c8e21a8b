"""Step control by client secants in the general engine, as a federation's server has it.

A client's number follows from an answer and what is remembered of it; of the models that these were
made at sketches are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedcommons import step_control
from fedcommons.checks import FloatArray, IntArray
from fedcommons.simulate.models import OnExamples
from fedcommons.step_control import Secants

if TYPE_CHECKING:
    from fedcommons.simulate.curve_runs import CurveRun

Float32 = npt.NDArray[np.float32]


class ControlledSteps:
    """What is known of how fast the gradients of a curve run's clients change.

    Attributes:
        anchors: of every client, or every one of its chunks, the model of what is remembered of it.
        asked_at: of clients whose answers come late, the model that they are computed at.
    """

    def __init__(self, curve_run: CurveRun, model: OnExamples) -> None:
        held, self.line = curve_run.held, curve_run.timeline
        self.curve_run, self.model = curve_run, model
        self.run = np.array([curve_run.run])
        self.weight = np.asarray(held.sum(axis=1), np.float64).ravel()
        self.secants = Secants.start(len(self.weight))
        self.now = np.zeros(0)
        self.anchors: dict[tuple[int, int], FloatArray] = {}
        self.asked_at: dict[int, FloatArray] = {}
        self.heard = np.full(len(self.weight), np.nan)

    def start(self, model: Float32) -> None:
        """Everybody has answered for all that it holds at this model, (P,): a warm start."""
        sketch, chunks = self._sketch(model), self.line.chunks
        for i in range(len(self.weight)):
            for chunk in range(1 if chunks is None else len(chunks[i])):
                self.anchors[i, chunk] = sketch

    def ask(self, t: int, model: Float32) -> None:
        """A tick begins with this model, (P,)."""
        self.now = self._sketch(model)
        for i in np.flatnonzero(self.curve_run.kept[t]).tolist():
            self.asked_at[i] = self.now

    def hear(self, asked: int, client: int, change: Float32, *, late: bool) -> None:
        """An answer to a tick's question came, this far from what is remembered of it: (P,)."""
        chunk = 0 if self.line.chosen is None else int(self.line.chosen[asked, client])
        model = self.asked_at.pop(client) if late else self.now
        before = self.anchors.get((client, chunk))
        if before is not None:
            distance = float(np.linalg.norm(model - before))
            by = float(np.sqrt(self.model.norms2(change[None], self.run)[0]))
            self.heard[client] = step_control.secant(by, self._weight(client, chunk), distance)
        self.anchors[client, chunk] = model

    def longest_step(self) -> float:
        """1/L, after all answers of a tick were heard."""
        self.secants = self.secants.observe(self.heard)
        self.heard = np.full(len(self.weight), np.nan)
        return self.secants.longest_step(self.weight)

    def _weight(self, client: int, chunk: int) -> float:
        if self.line.chunks is None:
            return float(self.weight[client])
        of_chunk = self.line.chunks[client][chunk]
        return float(self.curve_run.holds(client).weight[of_chunk].sum(dtype=np.float64))

    def _sketch(self, model: Float32) -> FloatArray:
        return step_control.sketch(self.model.parameters(model[None], self.run)[0])


Steps = list[ControlledSteps | None]  # of curve runs side by side; None: as the rate says


def of(group: Sequence[CurveRun], model: OnExamples) -> Steps:
    """Before the first tick."""
    return [ControlledSteps(e, model) if e.curve.step_control else None for e in group]


def start(steps: Steps, warm: Sequence[int], params: Float32) -> None:
    """These curve runs start warm, at the models (E, P)."""
    for e in warm:
        if (one := steps[e]) is not None:
            one.start(params[e])


def ask(steps: Steps, t: int, params: Float32) -> None:
    """A tick begins with these models, (E, P)."""
    for one, model in zip(steps, params, strict=True):
        if one is not None:
            one.ask(t, model)


def hear(
    steps: Steps,
    before: Callable[[int, int, int], Float32],
    t: int,
    e: IntArray,
    i: IntArray,
    raw: Float32,
    *,
    late: bool,
) -> None:
    """Answers (n, P) of clients of curve runs are here, of which those count that are in time.

    Or, if they are `late`, all: they were computed before.

    Args:
        before: (curve run, tick of the question, client) -> what is remembered of its examples.
    """
    if not any(steps):
        return
    for a, b, answer in zip(e.tolist(), i.tolist(), raw, strict=True):
        one = steps[a]
        if one is not None and (late or one.line.ticks.on_time[t, b]):
            asked = int(one.line.ticks.since[t, b]) if late else t
            one.hear(asked, b, answer - before(a, asked, b), late=late)


def longest(steps: Steps) -> FloatArray:
    """1/L of each, after all answers of a tick were heard; infinity where there is none: (E,)."""
    return np.array([np.inf if one is None else one.longest_step() for one in steps])
