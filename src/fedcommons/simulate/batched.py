"""The general engine: any model and any algorithm, a block of runs and all their curves at once.

A curve of a run is one item of a batch; curve runs with the same model and kind of work are
trained together. Where the step is one weighted sum of gradients (one local step, nothing
remembered, a loss that is a sum over examples) it is computed as one, over the run's M examples,
and no client's answer is formed. Parameters and gradients are float32. Its products may round
differently in another company, so a block is computed whole and always of the same runs
(`block_size`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import block_diag, csr_array

from fedcommons.batches import batches
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.datasets import Dataset
from fedcommons.estimators import ESTIMATORS, combined
from fedcommons.optimizers import OPTIMIZERS, Constants, State
from fedcommons.simulate import curve_runs, draws, local_steps, models
from fedcommons.simulate.algorithms import Local
from fedcommons.simulate.curve_runs import Block, CurveRun, kind_of
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.measures import Measures
from fedcommons.simulate.models import Examples, OnExamples
from fedcommons.simulate.result import THEORY, RunResult, nothing_measured
from fedcommons.streams import stream
from fedcommons.tasks.cross_entropy import CrossEntropy
from fedcommons.tasks.loss import Loss

Float32 = npt.NDArray[np.float32]
BLOCKS = (5, 2, 1)
CLASS_SIZES_IN_BLOCK = 1200  # in all curves of a block: work enough to be fast
NUMBERS_AT_ONCE = 1 << 20  # parameters of the models that are scored together
SCORES_AT_ONCE = 1 << 22  # that are measured together


def block_size(n_curves: int, class_size: int | None) -> int:
    """How many runs are computed together: fewer if a run is work enough.

    `class_size` is None for the whole dataset.

    1 without any curves for this engine.
    """
    if n_curves == 0 or class_size is None:
        return 1
    return next((n for n in BLOCKS if n * n_curves * class_size <= CLASS_SIZES_IN_BLOCK), 1)


def remembered_bytes(curves: Sequence[Curve], n_runs: int, n_clients: int, n_params: int) -> int:
    """What the curves of one model remember of every client while a block is computed."""
    states = sum(
        ESTIMATORS[c.estimator].remembers + (c.procedure.next_state is not None) for c in curves
    )
    return states * n_runs * n_clients * n_params * np.dtype(np.float32).itemsize


def simulate_block(
    dataset: Dataset,
    curves: Sequence[Curve],
    *,
    n_clients: int,
    class_size: int | None,
    n_rounds: int,
    seed: int,
    runs: Sequence[int],
    loss: Loss | None = None,
    measures: Measures | None = None,
) -> list[RunResult]:
    """Train every curve of every run of the block.

    With cross-entropy unless another loss is given; `measures` is None for accuracy alone.
    """
    loss = CrossEntropy(dataset.n_classes) if loss is None else loss
    data = [draws.training_set(dataset, class_size, seed=seed, run=run) for run in runs]
    M, R, C, T = len(data[0].groups), len(runs), len(curves), n_rounds
    examples = Examples(
        data[0].inputs[None] if R == 1 else np.stack([d.inputs for d in data]),
        np.stack([loss.targets(d.y) for d in data]),
        dataset.inputs("test"),
        loss.targets(dataset.y_test),
    )
    block = Block(M, runs, seed, adds_up=loss.decomposable)
    correct = np.empty((R, C, T + 1), np.int32)
    moment = np.empty((R, C, T))
    het = np.empty((R, C, 3))
    measured = [measures.nothing(C) if measures else nothing_measured() for _ in runs]
    for name in sorted({curve.model for curve in curves}):
        loaded = models.load(name, dataset.x_train.shape[1:], loss)
        initial = np.stack([loaded.initial(rng=stream(seed, "model", run)) for run in runs])
        n_tests = R * (T + 1) * sum(curve.model == name for curve in curves)
        model = models.on_examples(loaded, examples, initial, n_tests)
        start = model.start()
        made = []
        for r, run in enumerate(runs):
            shared = draws.share_all(curves, data[r], n_clients, seed=seed, run=run)
            for k, curve in enumerate(curves):
                if curve.model != name:
                    continue
                curve_run = curve_runs.make_curve_run(
                    curve, shared[k], model, start, block,
                    run=r, place=k, n_clients=n_clients, n_rounds=T,
                )  # fmt: skip
                made.append(curve_run)
                het[r, k] = curve_runs.heterogeneity(curve_run, shared[k], data[r].groups)
        for _, same in groupby(sorted(made, key=kind_of), key=kind_of):
            group = list(same)
            train = _Training(group, block, model)
            where, moments = (train.runs, [e.place for e in group]), np.empty((len(group), T))
            finite = np.empty((len(group), T + 1), np.bool_)
            with np.errstate(over="ignore", invalid="ignore"):  # a curve may diverge
                rounds = train.rounds(start[train.runs], moments, finite)
                right, values = _tested(model, train.runs, rounds, measures)
                correct[where] = np.where(finite, right, -1)
            moment[where] = moments
            for e, (pooled, at_sites) in zip(group, values, strict=False):
                measured[e.run][0][e.place], measured[e.run][1][e.place] = pooled, at_sites
    unknown, no_theory = np.full((C, T), np.nan), np.empty((0, T, len(THEORY)))
    return [
        RunResult(correct[r], moment[r], unknown, unknown, unknown, het[r], no_theory, *measured[r])
        for r in range(R)
    ]


def _tested(
    model: OnExamples, runs: IntArray, rounds: Iterator[Float32], measures: Measures | None
) -> tuple[IntArray, list[tuple[FloatArray, FloatArray]]]:
    """What the models of each round, (E, P), get right, (E, T + 1), and each one's measures.

    Some rounds are scored at once: how many follows from the block alone, as its rounding must.
    """
    has_classes = model.loss.kind == "classes"
    found, values, t = [], [], 0
    for first in rounds:
        n_rounds = max(1, NUMBERS_AT_ONCE // first.size)
        some = [first, *islice(rounds, n_rounds - 1)]
        params = np.concatenate(some)
        of_each = np.tile(runs, len(params) // len(runs))
        right = (
            model.count_correct(params, of_each) if has_classes else np.zeros(len(params), np.int64)
        )
        found.append(right.reshape(-1, len(runs)))
        if measures:
            wanted = [one for k, one in enumerate(some, start=t) if k in measures.rounds]
            values += [_measured(model, runs, one, measures) for one in wanted]
        t += len(some)
    by_curve = [
        (np.stack([pooled[e] for pooled, _ in values]), np.stack([sites[e] for _, sites in values]))
        for e in range(len(runs) if values else 0)
    ]
    return np.concatenate(found).T, by_curve


def _measured(
    model: OnExamples, runs: IntArray, params: Float32, measures: Measures
) -> tuple[FloatArray, FloatArray]:
    """The measures of the models of one round: (E, K) and (E, S, K)."""
    at_once = max(1, SCORES_AT_ONCE // max(1, len(measures.truth) * model.loss.n_outputs))
    parts = [
        measures.of(model.scores(params[k : k + at_once], runs[k : k + at_once]))
        for k in range(0, len(params), at_once)
    ]
    pooled, at_sites = zip(*parts, strict=True)
    return np.concatenate(pooled), np.concatenate(at_sites)


class _Training:
    """The rounds of curve runs of one kind."""

    def __init__(self, group: Sequence[CurveRun], block: Block, model: OnExamples) -> None:
        self.group, self.block, self.model = group, block, model
        self.runs = np.array([curve_run.run for curve_run in group])
        curves = [curve_run.curve for curve_run in group]
        self.rate = np.array([c.learning_rate for c in curves])
        self.decay = np.array([c.decay for c in curves])
        self.server_rate = np.array([c.server_rate for c in curves])
        self.mu = np.array([c.mu for c in curves], np.float32)
        kind, _, self.n_steps, batch_size, self.remembers, self.n_rows, name, combines = kind_of(
            group[0]
        )
        self.combines = ESTIMATORS[combines] if combines else None
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
            self.held = block_diag([e.held.T for e in group], format="csr")  # (E M, sum of N')
        self.memory = self.own = self.common = np.zeros((0, 0, 0), np.float32)

    def rounds(self, params: Float32, moments: FloatArray, finite: BoolArray) -> Iterator[Float32]:
        """The models before the first round and after each, (E, P).

        |g^|^2 goes to `moments`, (E, T), whether the models are finite to `finite`, (E, T + 1).
        """
        finite[:, 0] = np.isfinite(params).all(axis=1)
        yield params
        for t in range(moments.shape[1]):
            estimate, step = self._estimate(t, params)
            params = params - step[:, None] * self._direction(estimate)
            moments[:, t] = self.model.norms2(estimate, self.runs)
            finite[:, t + 1] = np.isfinite(params).all(axis=1)
            if t + 1 == moments.shape[1]:
                finite[:, t + 1] &= self._can_go_on(params)
            yield params

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
        rates = (self.rate * self.decay**t).astype(np.float32)
        step = (rates * self.server_rate / self.block.n_examples).astype(np.float32)
        return self.step(t, params, rates), step

    def _direction(self, estimate: Float32) -> Float32:
        """M times what the server's optimizer makes of the mean gradient: (E, P)."""
        if not self.moments:
            self.moments = self.optimizer.start(estimate.shape, estimate.dtype)
        M = self.block.n_examples
        found, self.moments = self.optimizer.direction(self.moments, estimate, M, self.constants)
        return np.asarray(found, np.float32)

    def _one_sum(self, t: int, params: Float32, _rates: Float32) -> Float32:
        """sum_j (sum_i u_i b_ij) g_j in one pass over each run's examples."""
        return self.model.gradients(params, self.runs, None, self.weights(t))

    def weights(self, t: int) -> Float32:
        """What each example's gradient counts in a round: (E, M)."""
        if self.batch_size:
            return np.stack([self._batch_weights(e, t) for e in self.group])
        fresh = np.concatenate([e.fresh[t] for e in self.group])
        weights = (self.held @ fresh).astype(np.float32).reshape(len(self.group), -1)
        for place, e in enumerate(self.group):
            if e.of_examples is not None:
                weights[place] = e.of_examples[t]
        return weights

    def _batch_weights(self, curve_run: CurveRun, t: int) -> Float32:
        """What each example's gradient counts, with a batch of every client: (M,)."""
        weight = np.zeros(self.block.n_examples, np.float32)
        for i in np.flatnonzero(curve_run.fresh[t]):
            held = curve_run.holds(int(i))
            n = len(held.examples)
            if not n:
                continue
            rng = self.block.batches(curve_run, t, int(i))
            chosen = next(batches(n, self.batch_size, 1, rng=rng))
            scale = np.float32(curve_run.fresh[t, i] * n / len(chosen))
            weight[held.examples[chosen]] += scale * held.weight[chosen]
        return weight

    def _by_clients(self, t: int, params: Float32, rates: Float32) -> Float32:
        E, P = params.shape
        if t == 0:
            self._begin(params, rates)
        members = [(e, int(i)) for e in range(E) for i in np.flatnonzero(self._asked(e, t))]
        at = np.array(members, np.int64).reshape(-1, 2)
        estimate = np.zeros((E, P), np.float32)
        if self.remembers:
            v = np.stack([e.remembered[t] for e in self.group]).astype(np.float32)
            estimate += np.einsum("en,enp->ep", v, self.memory)
        new_common = self.common.copy()
        apart: list[dict[int, Float32]] = [{} for _ in range(E)]  # where answers are not summed
        for where, total in self._totals(t, at, params, rates):
            e, i = at[where].T
            sizes = self.sizes[e, i]
            answers = total * self.counts[e, i][:, None]
            u = np.array([self.group[a].fresh[t, b] for a, b in zip(e, i, strict=True)])
            if self.combines is not None:
                for a, b, answer in zip(e.tolist(), i.tolist(), answers, strict=True):
                    apart[a][b] = answer
            else:
                estimate += _into(e, u, E) @ answers
            if self.remembers:
                self._remember(t, e, i, answers)
            if self.procedure.next_state is not None:
                local = self._local(params[e], params[e], e, i)
                after = self.procedure.next_state(local, total, self.n_steps)
                new_common += _into(e, sizes / self.block.n_examples, E) @ (after - self.own[e, i])
                self.own[e, i] = after
        self.common = new_common
        if self.combines is not None:
            estimate[:] = [self._combined(e, apart[e], P) for e in range(E)]
        return estimate

    def _combined(self, e: int, found: dict[int, Float32], n_params: int) -> FloatArray:
        """What an estimator that is not linear makes of these clients' answers: (P,)."""
        W = np.asarray(self.group[e].held.sum(axis=1), np.float64).ravel()
        answers = np.zeros((len(W), n_params), np.float32)
        for client, answer in found.items():
            answers[client] = answer
        assert self.combines is not None
        return combined(self.combines, answers, np.isin(np.arange(len(W)), list(found)), W)

    def _asked(self, e: int, t: int) -> BoolArray:
        """Whose answer is used in a round, now or by what is remembered of it: (N',)."""
        moves = self.group[e].moves
        used = self.group[e].fresh[t] != 0
        return used if moves is None else used | (moves[t] != 0)

    def _remember(self, t: int, e: IntArray, i: IntArray, answers: Float32) -> None:
        rate = np.array([self._move(a, t, b) for a, b in zip(e, i, strict=True)], np.float32)
        known = self.memory[e, i]
        whole = (rate == 1)[:, None]
        self.memory[e, i] = np.where(whole, answers, known + rate[:, None] * (answers - known))

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
            self.memory = np.zeros((E, self.n_rows, P), np.float32)
            warm = [e for e in range(E) if self.group[e].curve.warm]
            everybody = np.array([(e, i) for e in warm for i in range(self.n_rows)], np.int64)
            for where, total in self._totals(0, everybody.reshape(-1, 2), params, rates):
                e, i = everybody[where].T
                self.memory[e, i] = total * self.counts[e, i][:, None]

    def _totals(self, t: int, at: IntArray, params: Float32, rates: Float32) -> Any:
        clients = [self.group[e].trains_on(int(i)) for e, i in at]
        rngs = None
        if self.batch_size:
            rngs = [self.block.batches(self.group[e], t, int(i)) for e, i in at]
        correction: Callable[[Float32, Float32, IntArray], Float32] | None = None
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
