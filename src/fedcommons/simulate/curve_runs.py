"""What the general engine trains: a curve run is one curve of one run, ready for its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import coding, partition
from fedcommons.batches import batches
from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.estimators import ESTIMATORS
from fedcommons.placement import Placement
from fedcommons.simulate import draws, local_steps, timelines
from fedcommons.simulate.algorithms import Setup
from fedcommons.simulate.algorithms.algorithm import own_examples
from fedcommons.simulate.asked import ByNorms
from fedcommons.simulate.comparing import Comparing
from fedcommons.simulate.corrected_chunks import Correcting
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.local_steps import HeldExamples
from fedcommons.simulate.models import OnExamples
from fedcommons.simulate.timelines import Timeline
from fedcommons.simulate.timing import Timing
from fedcommons.streams import stream

Float32 = npt.NDArray[np.float32]
CHUNKS, BATCHES = "chunks", "batches"
EXAMPLES_AT_ONCE = 512  # whose gradients' norms are taken together


@dataclass(frozen=True, slots=True, eq=False)
class CurveRun:
    """One curve of one run.

    Attributes:
        run: its place in the block.
        place: the curve's place among the curves.
        held: (N', M) loss weights; float64, since weights of answers may be large.
        trained: the same as weights in each client's mean, where it takes several steps.
        counts: (N',) what a client's steps on that mean count in its answer.
        timeline: when what happens, and what the server assumes of it.
        fresh, remembered: (T, N') weights of answers.
        late, back: (T, N') as in `Weights`; None where late answers have no such weight.
        computed: (T, N') whose answer to a tick's question is used, then or later.
        kept: (T, N') whose answer to it comes in a later tick.
        arrives: (T, N') whose answer to an earlier question comes.
        moves: (T, N') how far what is remembered moves towards an answer; None if nothing is.
        adds_up: whether clients' answers are sums over the examples that they hold.
        by_norms: who is asked, if that follows from answers: `choose` fills in what a round needs.
        correcting: what is shared, where holders correct absent owners' chunks.
        comparing: what the weights follow from where answers are compared (`apart.compared`).
        of_examples: (T, M) what each example counts in each round; None if it follows from `fresh`.
    """

    curve: Curve
    run: int
    place: int
    held: csr_array
    trained: csr_array
    counts: FloatArray
    timeline: Timeline
    fresh: FloatArray
    remembered: FloatArray
    late: FloatArray | None
    back: FloatArray | None
    computed: BoolArray
    kept: BoolArray
    arrives: BoolArray
    moves: FloatArray | None
    adds_up: bool
    of_examples: Float32 | None = None
    by_norms: ByNorms | None = None
    correcting: Correcting | None = None
    comparing: Comparing | None = None

    def choose(self, t: int) -> None:
        """Fill in a round in which what was seen decides who is asked."""
        if self.by_norms is None:
            return
        arrivals, p = self.by_norms.choose(t)
        heard = np.isfinite(self.by_norms.norms) | self.curve.warm
        W = np.asarray(self.held.sum(axis=1), np.float64).ravel()
        arrivals = replace(arrivals, heard=heard, shares=W)
        estimator = ESTIMATORS[self.curve.estimator]
        self.timeline.ticks.asked[t] = arrivals.asked
        self.timeline.ticks.on_time[t] = arrivals.on_time
        if self.comparing is not None:
            self.comparing.choose(t, arrivals, p)
        weights = estimator.weigh(arrivals, p)
        self.fresh[t], self.remembered[t] = weights.fresh, weights.remembered
        self.computed[t] = weights.fresh != 0
        if self.moves is not None:
            moves = estimator.moves
            self.moves[t] = arrivals.on_time if moves is None else moves(arrivals)
            self.computed[t] |= (self.moves[t] != 0) & arrivals.on_time

    def holds(self, client: int) -> HeldExamples:
        return _row(self.held, client)

    def trains_on(self, client: int) -> HeldExamples:
        return _row(self.trained, client)

    def part(self, t: int, client: int, batch: IntArray | None) -> HeldExamples:
        """What a client works on if it is asked in a tick: its chunk, its batch, or all."""
        whole, line = self.trains_on(client), self.timeline
        if line.chunks is not None and line.chosen is not None:
            batch = line.chunks[client][line.chosen[t, client]]
        if batch is None:
            return whole
        return HeldExamples(whole.examples[batch], whole.weight[batch])

    def batch_size(self, client: int) -> int | None:
        """How many examples of a client are drawn for a step; None for all of them."""
        if self.curve.work == "full" or client >= len(self.timeline.sizes):
            return self.curve.batch_size
        return None if self.timeline.chunks is not None else int(self.timeline.sizes[client])


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What the curve runs of a block share: the streams, the size of a run, the kind of loss.

    Attributes:
        n_examples: M, of a run.
        runs: their numbers.
        adds_up: whether the loss is a sum over examples.
        timing: the study's clock, if it has one.
        groups: of each run, (M,) labels or strata; for a clock.
        sites: their names, if the data say; for a clock.
        known: timelines of curves that differ in their steps alone.
    """

    n_examples: int
    runs: Sequence[int]
    seed: int
    adds_up: bool = True
    timing: Timing | None = None
    groups: Sequence[IntArray] = ()
    sites: tuple[str, ...] = ()
    known: dict[tuple[Any, ...], Timeline] = field(default_factory=dict)

    def batches(self, curve_run: CurveRun, t: int, client: int) -> np.random.Generator:
        """Curves of a run draw alike: the same client with as many examples has the same batch.

        In its k-th job, whenever that is; a server's own row has one in every tick, and so has a
        client where nobody knows before who will be asked.
        """
        if curve_run.by_norms is not None:
            return stream(self.seed, "batches", self.runs[curve_run.run], t, client)
        jobs = curve_run.timeline.jobs
        job = int(jobs[t, client]) if client < jobs.shape[1] else t
        return stream(self.seed, "batches", self.runs[curve_run.run], job, client)

    def batch_weights(self, curve_run: CurveRun, t: int, size: int) -> Float32:
        """What each example's gradient counts, with a batch of every client: (M,)."""
        weight = np.zeros(self.n_examples, np.float32)
        for i in np.flatnonzero(curve_run.fresh[t]).tolist():
            held = curve_run.holds(i)
            if n := len(held.examples):
                chosen = next(batches(n, size, 1, rng=self.batches(curve_run, t, i)))
                scale = np.float32(curve_run.fresh[t, i] * n / len(chosen))
                weight[held.examples[chosen]] += scale * held.weight[chosen]
        return weight


def _row(weights: csr_array, client: int) -> HeldExamples:
    row = slice(weights.indptr[client], weights.indptr[client + 1])
    return HeldExamples(weights.indices[row].astype(np.int64), weights.data[row].astype(np.float32))


def kind_of(curve_run: CurveRun) -> tuple[Any, ...]:
    """What curve runs that are trained together have in common."""
    c = curve_run.curve
    estimator = ESTIMATORS[c.estimator]
    remembers = estimator.remembers
    batch_size = c.batch_size or 0  # for sorting
    stateful = c.procedure.next_state is not None
    apart = c.estimator if estimator.combine is not None or curve_run.comparing is not None else ""
    adds_up = curve_run.adds_up and not apart
    late = curve_run.late is not None and bool(curve_run.late.any())
    late = late or c.ask_by == "norms"  # answers are looked at
    if c.local_steps == 1 and not remembers and not stateful and adds_up and not late:
        parts = _parts(curve_run)
        return ("sum", "", 1, batch_size, False, 0, c.server_optimizer, "", parts, bool(c.ask))
    correction = c.algorithm if c.procedure.correction else ""
    n_rows = curve_run.held.shape[0]
    return (
        *("clients", correction, c.local_steps, batch_size),
        *(remembers, n_rows, c.server_optimizer, apart, _parts(curve_run)),
        c.ask is not None,
    )


def _parts(curve_run: CurveRun) -> str:
    """Whether clients work on chunks, on batches that a clock asks for, or on all."""
    if curve_run.timeline.chunks is not None:
        return CHUNKS
    return "" if curve_run.curve.work == "full" else BATCHES


def make_curve_run(
    curve: Curve,
    shared: draws.Shared,
    model: OnExamples,
    start: Float32,
    block: Block,
    *,
    run: int,
    place: int,
    n_clients: int,
    n_rounds: int,
    n_params: int = 0,
) -> CurveRun:
    """One curve of the run at this place in the block; `n_params` is for a clock."""
    seed, number = block.seed, block.runs[run]

    def shares() -> csr_array:
        w = None
        if curve.code == "owner-corrected":
            w = owner_share(model, start, run, shared.placement)
        return coding.by_name(
            curve.code,
            shared.placement,
            straggler_prob=curve.server_probs(n_clients),
            owner_share=w,
        )

    setup = Setup(
        shared.owner,
        shared.shareable,
        n_clients,
        curve.copies,
        shares,
        stream(seed, "algorithm", curve.algorithm, number),
    )
    # Where holders correct, everybody's chunks are of its own examples alone.
    held = csr_array(own_examples(setup) if curve.corrected else curve.procedure.hold(setup))
    timeline = _timeline(curve, shared, held, block, n_params=n_params, run=run, n_rounds=n_rounds)
    estimator, W = ESTIMATORS[curve.estimator], np.asarray(held.sum(axis=1), np.float64)[:n_clients]
    arrivals = timeline.ticks.arrivals.from_the_start(W, warm=curve.warm)
    weights = curve.procedure.weigh(estimator, held, arrivals, timeline.probs)
    of_examples = None
    if curve.procedure.examples is not None:
        on_time = timeline.ticks.on_time
        of_examples = curve.procedure.examples(held, on_time, timeline.probs).astype(np.float32)
    moves = None
    if estimator.remembers:
        came = arrivals.on_time | arrivals.late
        moves = came.astype(np.float64) if estimator.moves is None else estimator.moves(arrivals)
    used = weights.fresh != 0
    if moves is not None:
        used |= (moves != 0) & arrivals.on_time
    late = estimator.hears_late and curve.procedure.estimators
    arrives, kept = (
        np.pad(mask & late, ((0, 0), (0, held.shape[0] - n_clients)))
        for mask in (arrivals.late, timeline.ticks.kept)
    )
    trained, counts = _means(held) if curve.procedure.several_steps else _sums(held)
    by_norms = None
    if curve.ask_some is not None and curve.ask_by == "norms":
        there = draws.answered(curve, n_rounds, n_clients, seed=seed, run=number)
        by_norms = ByNorms(
            *(curve.ask_some, there, curve.server_probs(n_clients)),
            *(np.full(n_clients, np.nan), seed, number),
        )
    compares = estimator.compares and curve.procedure.estimators
    return CurveRun(
        *(curve, run, place, held, trained, counts, timeline),
        *(weights.fresh, weights.remembered, weights.late, weights.back),
        *(used | kept, kept, arrives, moves),
        adds_up=block.adds_up,
        of_examples=of_examples,
        by_norms=by_norms,
        correcting=Correcting.of(shared.placement, timeline) if curve.corrected else None,
        comparing=Comparing.of(arrivals, timeline.probs) if compares else None,
    )


def _timeline(
    curve: Curve,
    shared: draws.Shared,
    held: csr_array,
    block: Block,
    *,
    n_params: int,
    run: int,
    n_rounds: int,
) -> Timeline:
    """The ticks of a curve run: rounds, unless the study has a clock."""
    seed, number, N = block.seed, block.runs[run], shared.placement.n_clients
    held_by = np.diff(held.indptr)[:N].astype(np.int64)
    if not curve.policy:
        answered = draws.answered(curve, n_rounds, N, seed=seed, run=number)
        return timelines.of_rounds(
            answered, curve.server_probs(N), held_by, ask=curve.ask_some, seed=seed, run=number
        )
    assert block.timing is not None
    alike = replace(curve, learning_rate=0.0, decay=1.0, server_rate=1.0)  # in all that takes time
    key = (run, alike, n_params, held_by.tobytes())
    if key not in block.known:
        block.known[key] = timelines.of_clock(
            *(curve, block.timing, held_by, draws.main_class(shared, block.groups[run])),
            block.timing.per_example(n_params),
            seed=seed,
            run=number,
            sites=block.sites if curve.is_natural else (),
            placement=shared.placement if curve.corrected else None,
        )
    return block.known[key]


def _sums(held: csr_array) -> tuple[csr_array, FloatArray]:
    """One step on the mean of the weights as they are, n_i times."""
    return held, np.diff(held.indptr).astype(np.float64)


def _means(held: csr_array) -> tuple[csr_array, FloatArray]:
    """Each client's `coding.loss_weights`."""
    rows = [held.data[a:b] for a, b in pairwise(held.indptr)]
    found = [coding.loss_weights(row) for row in rows]
    data = np.concatenate([weight for weight, _ in found])
    counts = np.array([count for _, count in found])
    return csr_array((data, held.indices, held.indptr), shape=held.shape), counts


def owner_share(model: OnExamples, start: Float32, run: int, placement: Placement) -> FloatArray:
    """`coding.best_owner_share` of every owner at the initial model: (N,)."""
    copies, owner, N = placement.copies, placement.owner, placement.n_clients
    none = np.zeros(N, np.float32)

    def sums(examples: IntArray) -> Float32:
        """The sum of gradients of those of the examples that each owns, (N, P)."""
        mine = [examples[owner[examples] == i] for i in range(N)]
        clients = [HeldExamples(m, np.full(len(m), len(m), np.float32)) for m in mine]
        result = np.zeros((N, start.shape[1]), np.float32)
        runs, begin = np.full(N, run), np.repeat(start[run, None], N, axis=0)
        for now, total in local_steps.totals(model, runs, clients, begin, none):
            result[now] = total
        return result

    def norms2(vectors: Float32) -> FloatArray:
        return model.norms2(vectors, np.full(len(vectors), run))

    shared = np.flatnonzero(copies > 0)
    of_private, of_shared = sums(np.flatnonzero(copies == 0)), sums(shared)
    spread = np.zeros(N)
    for begin in range(0, len(shared), EXAMPLES_AT_ONCE):
        some = shared[begin : begin + EXAMPLES_AT_ONCE]
        each = model.gradients(
            np.repeat(start[run, None], len(some), axis=0),
            np.full(len(some), run),
            some[:, None],
            np.ones((len(some), 1), np.float32),
        )
        np.add.at(spread, owner[some], norms2(each) / copies[some])
    private2, shared2 = norms2(of_private), norms2(of_shared)
    cross = (norms2(of_private + of_shared) - private2 - shared2) / 2
    return coding.best_owner_share(cross, shared2, spread)


def heterogeneity(
    curve_run: CurveRun, shared: draws.Shared, groups: IntArray
) -> tuple[float, float, float]:
    """As `draws.heterogeneity_of`; what is held decides where sharing is not the paper's."""
    curve = curve_run.curve
    found = draws.heterogeneity_of(shared, groups, curve)
    if curve.procedure.sharing in ("none", "proportion-and-copies"):
        return found
    held = curve_run.held[: shared.placement.n_clients]
    client = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    counts = partition.label_counts(groups[held.indices], client, held.shape[0])
    return found[0], partition.mean_heterogeneity(counts), np.nan
