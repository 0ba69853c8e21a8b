"""The general engine: any model and any algorithm, a block of runs and all their curves at once.

A curve of a run is one item of a batch; curve runs with the same model and kind of work are
trained together. Where the step is one weighted sum of gradients (one local step, nothing
remembered, a loss that is a sum over examples) it is computed as one, over the run's M examples,
and no client's answer is formed. Parameters and gradients are float32. Its products may round
differently in another company, so a block is computed whole and always of the same runs
(`block_size`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from fedcommons.datasets import Dataset
from fedcommons.estimators import ESTIMATORS
from fedcommons.simulate import clocked, curve_runs, draws, looks, models
from fedcommons.simulate.curve_runs import Block, kind_of
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.lockstep import Lockstep
from fedcommons.simulate.measures import Measures
from fedcommons.simulate.models import Examples
from fedcommons.simulate.result import THEORY, RunResult, nothing_measured
from fedcommons.simulate.timing import Timing
from fedcommons.streams import stream
from fedcommons.tasks.cross_entropy import CrossEntropy
from fedcommons.tasks.loss import Loss

Float32 = npt.NDArray[np.float32]
BLOCKS = (5, 2, 1)
CLASS_SIZES_IN_BLOCK = 1200  # in all curves of a block: work enough to be fast


def block_size(n_curves: int, class_size: int | None) -> int:
    """How many runs are computed together: fewer if a run is work enough.

    `class_size` is None for the whole dataset.

    1 without any curves for this engine.
    """
    if n_curves == 0 or class_size is None:
        return 1
    return next((n for n in BLOCKS if n * n_curves * class_size <= CLASS_SIZES_IN_BLOCK), 1)


def remembered_bytes(
    curves: Sequence[Curve], n_runs: int, n_clients: int, n_params: int, n_rounds: int | None = None
) -> int:
    """What the curves of one model remember of clients while a block is computed.

    Where some are asked in each of so many rounds, at most of those that they ask.
    """
    rows = 0
    for c in curves:
        asked, ask = n_clients, c.ask_some
        if ask is not None and n_rounds is not None and not c.warm:
            asked = min(n_clients, ask.number(n_clients) * n_rounds)
        rows += ESTIMATORS[c.estimator].remembers * asked
        rows += (c.procedure.next_state is not None) * n_clients
    return rows * n_runs * n_params * np.dtype(np.float32).itemsize


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
    timing: Timing | None = None,
) -> list[RunResult]:
    """Train every curve of every run of the block.

    With cross-entropy unless another loss is given; `measures` is None for accuracy alone. Under a
    clock `n_rounds` is the number of times, evenly spread, at which results are recorded.
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
    groups = [d.groups for d in data]
    block = Block(M, runs, seed, loss.decomposable, timing, groups, dataset.sites)
    correct = np.empty((R, C, T + 1), np.int32)
    moment = np.empty((R, C, T))
    het = np.empty((R, C, 3))
    ticks, reached = np.zeros((R, C, T + 1), np.int64), np.full((R, C), np.inf)
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
                    run=r, place=k, n_clients=n_clients, n_rounds=T, n_params=initial.shape[1],
                )  # fmt: skip
                made.append(curve_run)
                het[r, k] = curve_runs.heterogeneity(curve_run, shared[k], data[r].groups)
        for _, same in groupby(sorted(made, key=kind_of), key=kind_of):
            group = sorted(same, key=lambda e: -len(e.timeline.ticks))
            train, n_ticks = Lockstep(group, block, model), len(group[0].timeline.ticks)
            moments = np.empty((len(group), n_ticks))
            finite = np.ones((len(group), n_ticks + 1), np.bool_)
            runs_of = train.runs
            with np.errstate(over="ignore", invalid="ignore"):  # a curve may diverge
                rounds = train.rounds(start[runs_of], moments, finite)
                if timing is None:
                    seen = looks.after_every_round(model, runs_of, rounds, measures)
                else:
                    seen = looks.by_the_clock(model, group, rounds, measures, T)
            for e, (one, look) in enumerate(zip(group, seen, strict=True)):
                at = (one.run, one.place)
                if timing is None:
                    correct[at] = np.where(finite[e], look.right, -1)
                    moment[at] = moments[e]
                else:
                    of = clocked.recorded(one.timeline, look, finite[e], moments[e], T)
                    correct[at], moment[at], ticks[at] = of.correct, of.moment, of.ticks
                    if timing.target is not None:
                        line = one.timeline
                        if measures is None or measures.counts:
                            enough = timing.target * len(dataset.y_test)
                            reached[at] = clocked.reached(line, look, finite[e], enough)
                        else:
                            reached[at] = clocked.measured_by(line, look, measures, timing.target)
                if measures:
                    pooled, at_sites = measured[one.run]
                    pooled[one.place], at_sites[one.place] = look.pooled, look.at_sites
    unknown, no_theory = np.full((C, T), np.nan), np.empty((0, T, len(THEORY)))
    return [
        RunResult(
            *(correct[r], moment[r], unknown, unknown, unknown, het[r], no_theory, *measured[r]),
            **({} if timing is None else {"ticks": ticks[r], "reached": reached[r]}),
        )
        for r in range(R)
    ]
