"""What was remembered of clients that work on a chunk of their data at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedcommons import work
from fedcommons.simulate import local_steps
from fedcommons.simulate.curve_runs import CurveRun
from fedcommons.simulate.local_steps import HeldExamples
from fedcommons.simulate.models import OnExamples

Float32 = npt.NDArray[np.float32]


class ChunkMemory:
    """The last gradient r of every chunk of every client of a curve run; 0 before the first.

    What the server remembers of a client, h, is their sum.
    """

    def __init__(self, curve_run: CurveRun, n_params: int) -> None:
        line = curve_run.timeline
        assert line.chunks is not None
        assert line.chosen is not None
        self.work, self.chosen, self.chunks = (
            work.parse(curve_run.curve.work),
            line.chosen,
            line.chunks,
        )
        numbers = [len(chunks) for chunks in self.chunks]
        self.first = np.concatenate([[0], np.cumsum(numbers)])
        self.last = np.zeros((self.first[-1], n_params), np.float32)

    def size(self, t: int, client: int) -> int:
        """How many examples the client works on if it is asked in a tick."""
        return len(self.chunks[client][self.chosen[t, client]])

    def remembered(self, t: int, client: int) -> Float32:
        """r of the chunk that it works on if it is asked in a tick: (P,)."""
        return np.asarray(self.last[self._place(t, client)])

    def whole(self, t: int, client: int, part: Float32, remembered: Float32) -> Float32:
        """h + scale (g - r), its answer from the gradient g of its chunk of a tick: (P,)."""
        held = sum(map(len, self.chunks[client]))
        scale = self.work.scale(held, self.size(t, client), len(self.chunks[client]))
        change = part - self.last[self._place(t, client)]
        return np.asarray(remembered + np.float32(scale) * change)

    def move(self, t: int, client: int, part: Float32, by: np.float32) -> Float32:
        """Move r towards g, as far as `by` says; by how much that moves h: (P,)."""
        place = self._place(t, client)
        step = np.asarray(by * (part - self.last[place]))
        self.last[place] += step
        return step

    def start(self, model: OnExamples, curve_run: CurveRun, params: Float32) -> Float32:
        """Remember every chunk's gradient at this model; the clients' sums: (N', P)."""
        parts = []
        for client, chunks in enumerate(self.chunks):
            whole = curve_run.trains_on(client)
            parts += [HeldExamples(whole.examples[c], whole.weight[c]) for c in chunks]
        n = len(parts)
        start, rates = np.repeat(params[None], n, axis=0), np.zeros(n, np.float32)
        sizes = np.array([len(part.examples) for part in parts], np.float32)
        runs = np.full(n, curve_run.run)
        for where, total in local_steps.totals(model, runs, parts, start, rates):
            self.last[where] = total * sizes[where, None]
        return np.stack(
            [self.last[a:b].sum(axis=0) for a, b in zip(self.first, self.first[1:], strict=False)]
        )

    def _place(self, t: int, client: int) -> int:
        return int(self.first[client] + self.chosen[t, client])
