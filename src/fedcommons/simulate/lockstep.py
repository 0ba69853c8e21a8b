"""Curve runs of one kind, trained side by side: every step is a tick of each one's own schedule.

Where the step is one weighted sum of gradients it is computed as one, over the run's examples;
elsewhere clients' answers are formed. An answer is computed when it is asked, in that tick's model;
if it comes late it is kept until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import block_diag, csr_array

from fedcommons.batches import batches
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.estimators import ESTIMATORS
from fedcommons.optimizers import OPTIMIZERS, Constants, State
from fedcommons.simulate import apart, controlled_steps, few_rows, local_steps
from fedcommons.simulate.algorithms import Local
from fedcommons.simulate.chunk_memory import ChunkMemory
from fedcommons.simulate.corrected_chunks import CorrectedChunks, corrections_of
from fedcommons.simulate.curve_runs import BATCHES, CHUNKS, Block, CurveRun, kind_of
from fedcommons.simulate.late_models import LateModels
from fedcommons.simulate.local_steps import HeldExamples
from fedcommons.simulate.models import OnExamples

Float32 = npt.NDArray[np.float32]


CONSTANTS = ("momentum", "second_momentum", "adaptivity")


class Lockstep:
    """The ticks of curve runs of one kind, those with the most ticks first."""

    def __init__(self, group: Sequence[CurveRun], block: Block, model: OnExamples) -> None:
        self.group, self.block, self.model = group, block, model
        self.runs = np.array([curve_run.run for curve_run in group])
        curves = [curve_run.curve for curve_run in group]
        self.rate = np.array([c.learning_rate for c in curves])
        self.decay = np.array([c.decay for c in curves])
        self.server_rate = np.array([c.server_rate for c in curves])
        self.mu = np.array([c.mu for c in curves], np.float32)
        kind, _, self.n_steps, batch_size, self.remembers, self.n_rows, name, of_all, *rest = (
            kind_of(group[0])
        )
        parts, self.asks_some = rest
        self.parts = parts
        self.lengths = [len(curve_run.timeline.ticks) for curve_run in group]
        self.chunks: list[ChunkMemory] = []
        self.corrections: list[CorrectedChunks | None] = []
        self.pending = np.zeros((0, 0, 0), np.float32)
        self.late_models = LateModels()
        self.steps = controlled_steps.of(group, model)
        self.of_all = ESTIMATORS[of_all] if of_all else None  # it needs all answers of a round
        self.batch_size = batch_size or None
        self.optimizer = OPTIMIZERS[name]
        self.moments: State = ()
        self.constants = Constants(
            *(
                np.array([getattr(c, field) for c in curves], np.float32)[:, None]
                for field in ("server_momentum", "second_momentum", "adaptivity")
            )
        )
        self.procedure = curves[0].procedure
        self.step = self._one_sum if kind == "sum" else self._by_clients
        if kind == "sum":
            self._stack_held()
        self.memory: Any = np.zeros((0, 0, 0), np.float32)  # or `FewRows`
        self.own = self.common = np.zeros((0, 0, 0), np.float32)

    def rounds(self, params: Float32, moments: FloatArray, finite: BoolArray) -> Iterator[Float32]:
        """The models before the first tick and after each of those that go on, (E', P).

        |g^|^2 goes to `moments`, (E, T), whether the models are finite to `finite`, (E, T + 1).
        """
        finite[:, 0] = np.isfinite(params).all(axis=1)
        yield params
        for t in range(moments.shape[1]):
            params = params[: self._go_on(t)]
            n = len(params)
            estimate, step = self._estimate(t, params)
            back = self.late_models.back(t, self.group, params, self.server_rate)
            params = params - step[:, None] * self._direction(estimate)
            if back is not None:
                params = params - back
            moments[:n, t] = self.model.norms2(estimate, self.runs)
            finite[:n, t + 1] = np.isfinite(params).all(axis=1)
            ends = [length == t + 1 for length in self.lengths]
            if any(ends):
                finite[:n, t + 1] &= self._can_go_on(params) | ~np.array(ends)
            yield params

    def _go_on(self, t: int) -> int:
        """Leave out those without a tick of this number; how many go on."""
        n = sum(length > t for length in self.lengths)
        if n == len(self.group):
            return n
        self.group, self.lengths, self.runs = self.group[:n], self.lengths[:n], self.runs[:n]
        for name in ("rate", "decay", "server_rate", "mu", "memory", "own", "common", "pending",
                     "chunks", "corrections", "steps"):  # fmt: skip
            setattr(self, name, getattr(self, name)[:n])
        self.moments = tuple(moment[:n] for moment in self.moments)
        self.constants = Constants(
            *(np.asarray(getattr(self.constants, field))[:n] for field in CONSTANTS)
        )
        if self.step == self._one_sum:
            self._stack_held()
        return n

    def _can_go_on(self, params: Float32) -> BoolArray:
        """Whether the full gradient is finite, (E,): a lost model may have finite parameters.

        Nothing else is made of it: of a loss that is no sum it is not what is trained on. Of every
        model but the last, the next round's estimate says so.
        """
        ones = np.ones((len(params), self.block.n_examples), np.float32)
        full = self.model.gradients(params, self.runs, None, ones)
        return np.isfinite(self.model.norms2(full, self.runs))

    def _estimate(self, t: int, params: Float32) -> tuple[Float32, Float32]:
        """The estimate of the full gradient, (E, P), and the size of the step, (E,)."""
        rates = (self.rate * self.decay ** self._passed(t)).astype(np.float32)
        estimate, step = self.step(t, params, rates), rates * self.server_rate
        step = np.minimum(step, controlled_steps.longest(self.steps))
        return estimate, (step / self.block.n_examples).astype(np.float32)

    def _passed(self, t: int) -> FloatArray | float:
        """How many rounds, or seconds under a clock, have passed as a tick begins: (E,)."""
        begins = np.array([e.timeline.ticks.begins[t] for e in self.group])
        return float(begins[0]) if (begins == begins[0]).all() else begins

    def _direction(self, estimate: Float32) -> Float32:
        """M times what the server's optimizer makes of the mean gradient: (E, P)."""
        if not self.moments:
            self.moments = self.optimizer.start(estimate.shape, estimate.dtype)
        M = self.block.n_examples
        found, self.moments = self.optimizer.direction(self.moments, estimate, M, self.constants)
        return np.asarray(found, np.float32)

    def _one_sum(self, t: int, params: Float32, _rates: Float32) -> Float32:
        """sum_j (sum_i u_i b_ij) g_j in one pass over each run's examples."""
        if self.parts == BATCHES:
            return self.model.gradients(params, self.runs, *self._drawn(t))
        weights = self.weights(t)
        if self.asks_some:
            return self.model.gradients(params, self.runs, *local_steps.that_count(weights))
        return self.model.gradients(params, self.runs, None, weights)

    def weights(self, t: int) -> Float32:
        """What each example's gradient counts in a round: (E, M)."""
        if self.batch_size:
            return np.stack([self.block.batch_weights(e, t, self.batch_size) for e in self.group])
        fresh = np.concatenate([e.fresh[t] for e in self.group])
        weights = (self.held @ fresh).astype(np.float32).reshape(len(self.group), -1)
        for place, e in enumerate(self.group):
            if e.of_examples is not None:
                weights[place] = e.of_examples[t]
        return weights

    def _drawn(self, t: int) -> tuple[IntArray, Float32]:
        """The examples of all batches of a tick, (E, H), and what each one's gradient counts."""
        drawn = []
        for e in self.group:
            parts = [
                (e.part(t, i, self._batch(e, t, i)), i) for i in np.flatnonzero(e.fresh[t]).tolist()
            ]
            scale = [e.fresh[t, i] * e.counts[i] / max(1, len(part.examples)) for part, i in parts]
            weight = [
                part.weight * np.float32(s) for (part, _), s in zip(parts, scale, strict=True)
            ]
            nothing = [np.zeros(0, np.int64)]
            places = np.concatenate([part.examples for part, _ in parts] or nothing)
            drawn.append(HeldExamples(places, np.concatenate(weight or nothing)))
        return local_steps.padded(drawn)

    def _batch(self, e: CurveRun, t: int, client: int) -> IntArray | None:
        """The places of a client's batch among what it holds, where a clock asks for batches."""
        if self.parts != BATCHES:
            return None
        rng = self.block.batches(e, t, client)
        return next(batches(int(e.counts[client]), e.batch_size(client), 1, rng=rng))

    def _stack_held(self) -> None:
        self.held = block_diag([e.held.T for e in self.group], format="csr")  # (E M, sum of N')

    def _by_clients(self, t: int, params: Float32, rates: Float32) -> Float32:
        E, P = params.shape
        if t == 0:
            self._begin(params, rates)
        for run in self.group:
            run.choose(t)
        controlled_steps.ask(self.steps, t, params)
        members = [(e, int(i)) for e in range(E) for i in np.flatnonzero(self.group[e].computed[t])]
        at = np.array(members, np.int64).reshape(-1, 2)
        estimate = np.zeros((E, P), np.float32)
        late = self._arriving(t)
        comparing = self.of_all if self.of_all is not None and self.of_all.compares else None
        if comparing is None:
            self._add_known(t, late, estimate)
        new_common = self.common.copy()
        found: list[dict[int, Float32]] = [{} for _ in range(E)]  # where answers are not summed
        to_remember = []
        for where, total in self._totals(t, at, params, rates):
            e, i = at[where].T
            sizes = self.sizes[e, i]
            raw = total * self._counts(t, e, i)[:, None]
            self._keep(t, e, i, raw)
            answers = self._whole(t, e, i, raw)
            u = np.array([self.group[a].fresh[t, b] for a, b in zip(e, i, strict=True)])
            if self.of_all is not None:
                for a, b, answer in zip(e.tolist(), i.tolist(), answers, strict=True):
                    found[a][b] = answer
            else:
                estimate += _into(e, u, E) @ answers
            self._note_norms(e, i, answers)
            if comparing is not None:
                to_remember.append((e, i, raw))
            elif self.remembers:
                self._remember(t, e, i, raw)
            if self.procedure.next_state is not None:
                local = self._local(params[e], params[e], e, i)
                after = self.procedure.next_state(local, total, self.n_steps)
                new_common += _into(e, sizes / self.block.n_examples, E) @ (after - self.own[e, i])
                self.own[e, i] = after
        self.common = new_common
        if comparing is not None:
            for a, run in enumerate(self.group):
                estimate[a] = apart.compared(comparing, run, t, found[a], self.memory, a)
            self._add_known(t, late, estimate)
        elif self.of_all is not None:
            for a, run in enumerate(self.group):
                estimate[a] = apart.combined(self.of_all, run, found[a], P)
        for e, i, raw in to_remember:
            self._remember(t, e, i, raw)
        if self.remembers and len(late):  # after the estimate
            e, i = late[:, 0], late[:, 1]
            self._remember(t, e, i, self.pending[e, i], late=True)
        for a, correction in enumerate(self.corrections):
            if correction is not None:
                estimate[a] += correction.step(t, params[a])
        return estimate

    def _add_known(self, t: int, late: IntArray, estimate: Float32) -> None:
        """What is remembered, and the answers that come late, by their weights."""
        if self.remembers:
            v = np.stack([e.remembered[t] for e in self.group]).astype(np.float32)
            estimate += few_rows.weighted(self.memory, v)
        if len(late):
            self._add_late(t, late, estimate)

    def _note_norms(self, e: IntArray, i: IntArray, answers: Float32) -> None:
        """How much answers change, where whom to ask goes by it."""
        if all(run.by_norms is None for run in self.group):
            return
        changes = answers - self.memory[e, i] if self.remembers else answers
        for a, b, norm2 in zip(e, i, self.model.norms2(changes, self.runs[e]), strict=True):
            if (by_norms := self.group[a].by_norms) is not None:
                by_norms.norms[b] = np.sqrt(norm2)

    def _arriving(self, t: int) -> IntArray:
        """Whose answers to earlier questions come: (n, 2), curve runs and clients."""
        found = [
            (e, int(i)) for e, run in enumerate(self.group) for i in np.flatnonzero(run.arrives[t])
        ]
        return np.array(found, np.int64).reshape(-1, 2)

    def _add_late(self, t: int, late: IntArray, estimate: Float32) -> None:
        """sum_i w_i l_i of the answers that come late, where they have weights of their own."""
        for a, b in late.tolist():
            run = self.group[a]
            if run.late is not None and run.late[t, b]:
                one = np.array([a]), np.array([b])
                since = int(run.timeline.ticks.since[t, b])
                answer = self._whole(since, *one, self.pending[one])[0]
                estimate[a] += np.float32(run.late[t, b]) * answer

    def _keep(self, t: int, e: IntArray, i: IntArray, raw: Float32) -> None:
        """Until they come, answers that come late."""
        kept = np.array([self.group[a].kept[t, b] for a, b in zip(e, i, strict=True)], np.bool_)
        if not kept.any():
            return
        if not len(self.pending):
            shape = (len(self.group), self.n_rows, raw.shape[1])
            self.pending = np.zeros(shape, np.float32)
        self.pending[e[kept], i[kept]] = raw[kept]

    def _counts(self, t: int, e: IntArray, i: IntArray) -> Float32:
        """How many times a mean over what clients work on their answers are: (n,)."""
        if self.parts != CHUNKS:
            return np.asarray(self.counts[e, i])
        return np.array([self.chunks[a].size(t, b) for a, b in zip(e, i, strict=True)], np.float32)

    def _whole(self, t: int, e: IntArray, i: IntArray, raw: Float32) -> Float32:
        """Answers that stand for all that clients hold, of questions of a tick: (n, P)."""
        if self.parts != CHUNKS:
            return raw
        parts = [
            self.chunks[a].whole(t, b, part, self.memory[a, b])
            for a, b, part in zip(e, i, raw, strict=True)
        ]
        return np.stack(parts) if parts else raw

    def _remember(
        self, t: int, e: IntArray, i: IntArray, raw: Float32, *, late: bool = False
    ) -> None:
        """What came in a tick, to its questions or to earlier ones."""
        controlled_steps.hear(self.steps, self._before, t, e, i, raw, late=late)
        rate = np.array([self._move(a, t, b) for a, b in zip(e, i, strict=True)], np.float32)
        if self.parts == CHUNKS:
            for a, b, by, part in zip(e, i, rate, raw, strict=True):
                if by:
                    asked = int(self.group[a].timeline.ticks.since[t, b]) if late else t
                    self.memory[a, b] += self.chunks[a].move(asked, b, part, by)
            return
        known = self.memory[e, i]
        whole = (rate == 1)[:, None]
        self.memory[e, i] = np.where(whole, raw, known + rate[:, None] * (raw - known))

    def _before(self, e: int, asked: int, client: int) -> Float32:
        """What is remembered of the examples that it works on if it is asked in this tick: (P,)."""
        if self.parts == CHUNKS:
            return self.chunks[e].remembered(asked, client)
        return np.asarray(self.memory[e, client])

    def _move(self, e: int, t: int, client: int) -> float:
        moves = self.group[e].moves
        return 0.0 if moves is None else float(moves[t, client])

    def _begin(self, params: Float32, rates: Float32) -> None:
        E, P = params.shape
        self.sizes = np.stack([np.diff(e.held.indptr) for e in self.group]).astype(np.float32)
        self.counts = np.stack([e.counts for e in self.group]).astype(np.float32)
        if self.procedure.next_state is not None:
            self.own = np.zeros((E, self.n_rows, P), np.float32)
            self.common = np.zeros((E, P), np.float32)
        if self.remembers:
            self.memory = few_rows.nothing(E, self.n_rows, P, few=self.asks_some)
            warm = [e for e in range(E) if self.group[e].curve.warm]
            controlled_steps.start(self.steps, warm, params)
            everybody = np.array([(e, i) for e in warm for i in range(self.n_rows)], np.int64)
            if self.parts == CHUNKS:
                self.chunks = [ChunkMemory(e, P) for e in self.group]
                self.corrections = [corrections_of(e, self.model, P) for e in self.group]
                for e in warm:
                    self.memory[e] = self.chunks[e].start(self.model, self.group[e], params[e])
                    if (correction := self.corrections[e]) is not None:
                        correction.start(params[e])
                return
            for where, total in self._totals(
                0, everybody.reshape(-1, 2), params, rates, whole=True
            ):
                e, i = everybody[where].T
                self.memory[e, i] = total * self.counts[e, i][:, None]

    def _totals(
        self, t: int, at: IntArray, params: Float32, rates: Float32, *, whole: bool = False
    ) -> Any:
        """The sum of the gradients of each client's steps on what it works on, or on all."""
        if whole:
            clients = [self.group[e].trains_on(i) for e, i in at.tolist()]
        else:
            members = [(self.group[e], i) for e, i in at.tolist()]
            clients = [run.part(t, i, self._batch(run, t, i)) for run, i in members]
        rngs = None
        if self.batch_size:
            rngs = [self.block.batches(self.group[e], t, int(i)) for e, i in at]
        correction: local_steps.Correction | None = None
        if (correct := self.procedure.correction) is not None:

            def correction(now: Float32, start: Float32, which: IntArray) -> Float32:
                return correct(self._local(now, start, *at[which].T))

        return local_steps.totals(
            self.model,
            self.runs[at[:, 0]],
            clients,
            params[at[:, 0]],
            rates[at[:, 0]],
            n_steps=self.n_steps,
            batch_size=self.batch_size,
            rngs=rngs,
            correction=correction,
        )

    def _local(self, params: Float32, start: Float32, e: IntArray, i: IntArray) -> Local:
        stateful = self.procedure.next_state is not None
        own = self.own[e, i] if stateful else start[:0]
        common = self.common[e] if stateful else start[:0]
        return Local(params, start, own, common, self.mu[e, None])


def _into(group: IntArray, weight: FloatArray, n_groups: int) -> csr_array:
    """The matrix that sums weighted rows by group."""
    entries = (weight.astype(np.float32), (group, np.arange(len(group))))
    return csr_array(entries, shape=(n_groups, len(group)))
