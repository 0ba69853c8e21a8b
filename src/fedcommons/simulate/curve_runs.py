"""What the general engine trains: a curve run is one curve of one run, ready for its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons import coding, partition
from fedcommons.checks import FloatArray, IntArray
from fedcommons.estimators import ESTIMATORS, Arrivals
from fedcommons.placement import Placement
from fedcommons.simulate import draws, local_steps
from fedcommons.simulate.algorithms import Setup
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.local_steps import HeldExamples
from fedcommons.simulate.models import OnExamples
from fedcommons.streams import stream

Float32 = npt.NDArray[np.float32]
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
        fresh, remembered: (T, N') weights of answers.
        moves: (T, N') how far what is remembered moves towards an answer; None if nothing is.
        adds_up: whether clients' answers are sums over the examples that they hold.
        of_examples: (T, M) what each example counts in each round; None if it follows from `fresh`.
    """

    curve: Curve
    run: int
    place: int
    held: csr_array
    trained: csr_array
    counts: FloatArray
    fresh: FloatArray
    remembered: FloatArray
    moves: FloatArray | None
    adds_up: bool
    of_examples: Float32 | None = None

    def holds(self, client: int) -> HeldExamples:
        return _row(self.held, client)

    def trains_on(self, client: int) -> HeldExamples:
        return _row(self.trained, client)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What the curve runs of a block share: the streams, the size of a run, the kind of loss."""

    n_examples: int  # M, of a run
    runs: Sequence[int]
    seed: int
    adds_up: bool = True  # whether the loss is a sum over examples

    def batches(self, curve_run: CurveRun, t: int, client: int) -> np.random.Generator:
        """Curves of a run draw alike: the same client with as many examples has the same batch."""
        return stream(self.seed, "batches", self.runs[curve_run.run], t, client)


def _row(weights: csr_array, client: int) -> HeldExamples:
    row = slice(weights.indptr[client], weights.indptr[client + 1])
    return HeldExamples(weights.indices[row].astype(np.int64), weights.data[row].astype(np.float32))


def kind_of(curve_run: CurveRun) -> tuple[Any, ...]:
    """What curve runs that are trained together have in common."""
    c = curve_run.curve
    remembers = ESTIMATORS[c.estimator].remembers
    batch_size = c.batch_size or 0  # for sorting
    stateful = c.procedure.next_state is not None
    combines = c.estimator if ESTIMATORS[c.estimator].combine is not None else ""
    adds_up = curve_run.adds_up and not combines
    if c.local_steps == 1 and not remembers and not stateful and adds_up:
        return ("sum", "", 1, batch_size, False, 0, c.server_optimizer, "")
    correction = c.algorithm if c.procedure.correction else ""
    n_rows = curve_run.held.shape[0]
    return (
        *("clients", correction, c.local_steps, batch_size),
        *(remembers, n_rows, c.server_optimizer, combines),
    )


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
) -> CurveRun:
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
    held = csr_array(curve.procedure.hold(setup))
    answered = draws.answered(curve, n_rounds, n_clients, seed=seed, run=number)
    estimator = ESTIMATORS[curve.estimator]
    probs = curve.server_probs(n_clients)
    weights = curve.procedure.weigh(estimator, held, answered, probs)
    of_examples = None
    if curve.procedure.examples is not None:
        of_examples = curve.procedure.examples(held, answered, probs).astype(np.float32)
    moves = None
    if estimator.remembers:
        arrivals = Arrivals.now_or_never(answered)
        moves = (
            answered.astype(np.float64) if estimator.moves is None else estimator.moves(arrivals)
        )
    trained, counts = _means(held) if curve.procedure.several_steps else _sums(held)
    return CurveRun(
        *(curve, run, place, held, trained, counts, weights.fresh, weights.remembered, moves),
        adds_up=block.adds_up,
        of_examples=of_examples,
    )


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
