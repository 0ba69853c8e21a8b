"""Corrections of absent owners' chunks in the general engine: anchors, R_j and R'_j.

The gradients of shared examples are kept one by one, and the model that each chunk of an owner was
last computed at. A holder that computes an absent owner's example for the first time also computes
it at the anchor of the owner's chunk: these are the R_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedcommons import corrections
from fedcommons.checks import FloatArray, IntArray
from fedcommons.corrections import Refresh
from fedcommons.placement import Placement
from fedcommons.simulate.models import OnExamples
from fedcommons.simulate.timelines import Timeline

if TYPE_CHECKING:
    from fedcommons.simulate.curve_runs import CurveRun

Float32 = npt.NDArray[np.float32]
AT_ONCE = 1 << 22  # parameters of the gradients that are computed together


@dataclass(frozen=True, slots=True, eq=False)
class Correcting:
    """What is shared in a curve run that corrects: S examples, those of an owner side by side.

    Attributes:
        examples: (S,) places among the run's examples, ascending by owner.
        owner: (S,).
        weight: (S,) n_i / |A_i|.
        chunk: (S,) the place of the owner's chunk that each is of, among all clients' chunks.
    """

    examples: IntArray
    owner: IntArray
    weight: FloatArray
    chunk: IntArray

    @classmethod
    def of(cls, placement: Placement, line: Timeline) -> Correcting:
        """For clients that hold what they own, in ascending order."""
        assert line.chunks is not None
        weight, owner = corrections.weights(placement), placement.owner.astype(np.int64)
        chunk_of = np.full(placement.n_examples, -1)
        first = 0
        for i, chunks in enumerate(line.chunks):
            mine = np.flatnonzero(owner == i)
            for k, places in enumerate(chunks):
                chunk_of[mine[places]] = first + k
            first += len(chunks)
        examples = np.flatnonzero(weight > 0)
        examples = examples[np.argsort(owner[examples], kind="stable")]
        return cls(examples, owner[examples], weight[examples], chunk_of[examples])


class CorrectedChunks:
    """What holders of shared examples have computed, and the anchors of owners' chunks.

    Attributes:
        anchored: (S, P) R_j, where `known` says so.
        stand_ins: (S, P) R'_j.
        at_once: whether an answer counts as remembered in the tick in which it comes.
        total: (N, P) the correction of each client.
    """

    def __init__(
        self,
        of: Correcting,
        line: Timeline,
        model: OnExamples,
        run: int,
        n_params: int,
        *,
        at_once: bool,
    ) -> None:
        assert line.chunks is not None
        assert line.chosen is not None
        assert line.refreshes is not None
        self.of, self.ticks, self.model, self.run = of, line.ticks, model, run
        self.at_once = at_once
        self.chosen, self.refreshes = line.chosen, line.refreshes
        numbers = [len(chunks) for chunks in line.chunks]
        self.first = np.concatenate([[0], np.cumsum(numbers)])
        S, N = len(of.examples), len(numbers)
        self.place = {j: s for s, j in enumerate(of.examples.tolist())}
        self.ends = np.searchsorted(of.owner, np.arange(N + 1))
        self.anchors = np.zeros((self.first[-1], n_params), np.float32)
        self.computed = np.full(self.first[-1], -1)  # in which tick; -1 for before the first
        self.has_anchor = np.zeros(self.first[-1], np.bool_)
        self.anchored, self.stand_ins = (np.zeros((S, n_params), np.float32) for _ in range(2))
        self.known, self.refreshed = np.zeros(S, np.bool_), np.full(S, -1)
        self.total, self.stale = np.zeros((N, n_params), np.float32), np.zeros(N, np.bool_)
        self.own: dict[int, tuple[int, Float32]] = {}  # jobs under way: chunk and model
        self.received: dict[int, tuple[IntArray, Float32]] = {}

    def start(self, params: Float32) -> None:
        """Everybody has computed all its chunks at this model: a warm start."""
        self.anchors[:], self.has_anchor[:] = params, True

    def step(self, t: int, params: Float32) -> Float32:
        """What is added to the estimate of a tick whose model this is: (P,)."""
        ticks = self.ticks
        computes = {r.holder: r for r in self.refreshes[t]}
        for i in np.flatnonzero(ticks.asked[t]).tolist():
            self.own[i] = int(self.first[i] + self.chosen[t, i]), params
            self.received.pop(i, None)
            if i in computes and (ticks.on_time[t, i] or ticks.kept[t, i]):
                self.received[i] = self._gradients(computes[i], params)
        came = np.flatnonzero(ticks.on_time[t] | ticks.late[t]).tolist()
        since = np.where(ticks.on_time[t], t, ticks.since[t])
        if self.at_once:
            self._remember(came, since)
        for i in came:
            if i in self.received:
                self._stand_in(*self.received.pop(i), int(since[i]))
        away = np.flatnonzero(ticks.away[t])
        for i in away[self.stale[away]].tolist():
            self._correct(i)
        found = np.asarray(self.total[away].sum(axis=0))
        if not self.at_once:
            self._remember(came, since)
        return found

    def _remember(self, came: list[int], since: IntArray) -> None:
        for i in came:
            self._anchor(*self.own.pop(i), int(since[i]))

    def _gradients(self, refresh: Refresh, params: Float32) -> tuple[IntArray, Float32]:
        places = np.array([self.place[j] for j in refresh.examples.tolist()])
        return places, self._each(places, np.broadcast_to(params, (len(places), len(params))))

    def _each(self, places: IntArray, params: Float32) -> Float32:
        """The gradient of each of these examples at its own model: (n, P)."""
        n_now = max(1, AT_ONCE // params.shape[1])
        found = np.empty(params.shape, np.float32)
        for begin in range(0, len(places), n_now):
            some = slice(begin, begin + n_now)
            examples = self.of.examples[places[some], None]
            ones = np.ones(examples.shape, np.float32)
            runs = np.full(len(examples), self.run)
            found[some] = self.model.gradients(params[some], runs, examples, ones)
        return found

    def _anchor(self, chunk: int, params: Float32, since: int) -> None:
        """An owner's chunk was computed at this model, in the tick `since`."""
        self.anchors[chunk], self.has_anchor[chunk] = params, True
        self.computed[chunk] = since
        shared = self.of.chunk == chunk
        self.known[shared] = False
        self.stale[self.of.owner[shared]] = True

    def _stand_in(self, places: IntArray, gradients: Float32, since: int) -> None:
        newer = since > self.refreshed[places]
        self.stand_ins[places[newer]] = gradients[newer]
        self.refreshed[places[newer]] = since
        self.stale[self.of.owner[places]] = True

    def _correct(self, i: int) -> None:
        """sum_j weight_j (R'_j - R_j) over what was computed after its owner's chunk."""
        mine = np.arange(self.ends[i], self.ends[i + 1])
        mine = mine[self.refreshed[mine] > self.computed[self.of.chunk[mine]]]
        new = mine[~self.known[mine] & self.has_anchor[self.of.chunk[mine]]]
        if len(new):
            self.anchored[new] = self._each(new, self.anchors[self.of.chunk[new]])
        self.known[mine] = True  # R_j = 0 of a chunk that was never computed
        weight = self.of.weight[mine].astype(np.float32)
        self.total[i] = corrections.correction(self.stand_ins[mine], self.anchored[mine], weight)
        self.stale[i] = False


def corrections_of(curve_run: CurveRun, model: OnExamples, n_params: int) -> CorrectedChunks | None:
    """Of a curve run before its first tick; None if nobody corrects."""
    if curve_run.correcting is None:
        return None
    return CorrectedChunks(
        *(curve_run.correcting, curve_run.timeline, model, curve_run.run, n_params),
        at_once=curve_run.curve.work == "chunk",
    )
