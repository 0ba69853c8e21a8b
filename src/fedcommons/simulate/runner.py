"""Running a study: blocks of runs in parallel, each run written when its block is done.

A block depends on the study and its number alone, so the results do not depend on the number of
workers, on their order, or on how often the study was interrupted and resumed. Where the paper's
setting is all there is, a block is a run; a larger block is computed whole, and runs past the
study's last are kept for a longer one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from fedcommons import checks, datasets, shown
from fedcommons.checks import BoolArray
from fedcommons.datasets import Dataset, Reading
from fedcommons.errors import ArgumentError, FedcommonsError, StudyError
from fedcommons.simulate import batched, example_space, plain_engine
from fedcommons.simulate import cluster as clusters
from fedcommons.simulate.definition import Study
from fedcommons.simulate.draws import TrainingSet
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.measures import Measures
from fedcommons.simulate.result import MEASURED, RunResult
from fedcommons.simulate.scoring import Evaluation
from fedcommons.streams import stream
from fedcommons.tasks.loss import Loss
from fedcommons.tasks.losses import fitted, has_numbers
from fedcommons.tasks.softmax import SoftmaxRegression

logger = shown.logger(__name__)

HELD_OUT = 6  # one of so many training examples is held out to choose rates on
TUNING_RUNS = 1_000_000  # the number of the first run that rates are tuned on

# torch's generator and BLAS's number of threads are the process's: one block at a time in it, also
# where a cluster's worker has several threads.
_computing = threading.Lock()


def run_study(
    study: Study,
    folder: Folder,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Do the runs of the study that the folder does not have yet; how many these were.

    `on_progress(done, total)` is called at the start and after every block, with the runs that
    were there already counted as done. `cluster` names a Dask cluster to work on instead of
    processes (`simulate.cluster`).
    """
    n_workers = count_workers(workers)
    todo = missing_blocks(study, folder)
    n_missing = sum(todo.values())
    done = study.runs - n_missing
    on_progress(done, study.runs)

    def advance(block: int) -> None:
        nonlocal done
        done += todo[block]
        on_progress(done, study.runs)

    if cluster is not None:
        for block, results in clusters.compute(compute_block, study, list(todo), address=cluster):
            write_block(study, folder, results)
            advance(block)
    elif n_workers == 1 or len(todo) <= 1:
        for block in todo:
            _one_block(study, folder, block)
            advance(block)
    else:
        _in_processes(study, folder, list(todo), n_workers, advance)
    return n_missing


def count_workers(workers: int | None) -> int:
    """As many as asked for; by default one a core."""
    return checks.integer("workers", (os.cpu_count() or 1) if workers is None else workers, low=1)


def missing_blocks(study: Study, folder: Folder) -> dict[int, int]:
    """The blocks with runs that the folder does not have: number -> how many of its runs."""
    digest, size = study.digest, study.block_size
    missing = [run for run in range(study.runs) if not folder.has_run(run, digest)]
    return dict(Counter(run // size for run in missing))


def _in_processes(
    study: Study,
    folder: Folder,
    blocks: Sequence[int],
    n_workers: int,
    advance: Callable[[int], None],
) -> None:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(n_workers, len(blocks)),
        mp_context=context,
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    )
    waiting: dict[Future[None], int] = {}
    todo = iter(blocks)

    def submit(n: int) -> None:
        for block in itertools.islice(todo, n):
            waiting[pool.submit(_one_block, study, folder, block)] = block

    try:
        # Only a few blocks are queued at a time, so that an interruption waits for little.
        with _interrupts_blocked():  # the workers start here
            submit(2 * n_workers)
        while waiting:
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
                advance(waiting.pop(future))
                submit(1)
    except BrokenProcessPool:
        raise FedcommonsError(
            "a worker process ended unexpectedly; the finished runs are kept: run the same "
            "command again to go on"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started here never see Ctrl-C: they finish their run while the parent stops."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(parent: int) -> None:
    """End this worker soon after the parent is gone, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def study_data(study: Study) -> Dataset:
    """The dataset as the study uses it: the pool that runs draw from, and what they are tested on.

    With tuning, a sixth of each class, at each site if these are known, is held out of the pool:
    rates are chosen on it, and no run trains on it. `test_size` examples of the test set, the same
    for all runs, if it is given.
    """
    return _prepared(_DataKey.of(study))[0]


def study_loss(study: Study) -> Loss:
    """The study's loss, fitted to its dataset."""
    return _prepared(_DataKey.of(study))[1]


def study_measures(study: Study) -> Measures | None:
    """What the study measures beside counts of right classes, if it does."""
    dataset = study_data(study)
    if study.counts_alone and dataset.site_test is None:
        return None
    return Measures(dataset, study_loss(study), study.measured, study.measured_rounds)


@dataclass(frozen=True, slots=True)
class _DataKey:
    """What the data of a study depend on."""

    dataset: str
    data: Reading
    pool: str
    test_size: int | None
    seed: int
    loss: str
    huber_delta: float
    time_intervals: int
    strata_bins: int

    @classmethod
    def of(cls, study: Study) -> _DataKey:
        return cls(*(getattr(study, one.name) for one in fields(cls)))


@functools.lru_cache(maxsize=1)
def _prepared(key: _DataKey) -> tuple[Dataset, Loss]:
    data = datasets.opened(key.dataset, key.data, seed=key.seed, numbers=has_numbers(key.loss))

    def fit() -> Loss:
        try:
            return fitted(
                key.loss, data, huber_delta=key.huber_delta, time_intervals=key.time_intervals
            )
        except ArgumentError as error:  # of somebody else's loss
            raise StudyError(str(error)) from error

    loss = fit()
    if loss.kind != "classes" and data.strata_train is None:
        data = replace(data, strata_train=loss.groups(data.y_train, key.strata_bins))
    if key.pool != "all":
        held_out = _held_out(data, stream(key.seed, "held out"))
        data = data.testing_on(held_out) if key.pool == "tuning" else data.take(train=~held_out)
        loss = fit()  # to what is left of the training data
    n_test = len(data.y_test)
    if key.test_size is not None and key.test_size < n_test:
        some = np.sort(stream(key.seed, "test").choice(n_test, key.test_size, replace=False))
        data = data.take(test=some)
    return data, loss


def _held_out(data: Dataset, rng: np.random.Generator) -> BoolArray:
    """A sixth of each class or stratum, at each site if these are known: (M,)."""
    held_out = np.zeros(len(data.y_train), np.bool_)
    groups = data.groups
    n_groups = data.n_classes if data.strata_train is None else int(groups.max()) + 1
    sites = np.zeros(len(held_out), np.int64) if data.site_train is None else data.site_train
    for site in range(int(sites.max()) + 1):
        for label in range(n_groups):
            members = np.flatnonzero((groups == label) & (sites == site))
            held_out[rng.choice(members, len(members) // HELD_OUT, replace=False)] = True
    return held_out


@functools.lru_cache(maxsize=1)
def _evaluation(key: _DataKey) -> Evaluation:
    return Evaluation(_prepared(key)[0])


def _one_block(study: Study, folder: Folder, block: int) -> None:
    write_block(study, folder, compute_block(study, block))


def write_block(study: Study, folder: Folder, results: Mapping[int, RunResult]) -> None:
    for run, result in results.items():
        folder.write_run(run, study.digest, result)


def compute_block(study: Study, block: int) -> dict[int, RunResult]:
    """The runs of one block, by their numbers."""
    size = study.block_size
    runs = range(block * size, (block + 1) * size)
    # Rates are tuned on runs of their own.
    numbers = [run + TUNING_RUNS if study.pool == "tuning" else run for run in runs]
    settings: dict[str, Any] = {
        "n_clients": study.clients,
        "class_size": study.class_size,
        "n_rounds": study.rounds,
        "seed": study.seed,
    }
    # One BLAS thread: runs are what is parallel, and the numbers must not depend on the machine's
    # idea of how many threads to use.
    # A curve may overflow: it is marked as diverged, and the others go on.
    quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")
    with _computing, threadpool_limits(1), quiet:
        dataset, measures = study_data(study), study_measures(study)
        settings["measures"] = measures
        together = study.batched_curves
        batch = frozenset(together)
        apart = tuple(curve for curve in study.curves if curve not in batch)
        first: list[RunResult | None] = [None] * size
        if study.engine == "plain":
            first = [
                plain_engine.simulate_run(dataset, _softmax_task, apart, **settings, run=run)
                for run in numbers
            ]
        elif apart:
            test = _evaluation(_DataKey.of(study))
            theory = study.theory_curves
            first = [
                example_space.simulate_run(
                    dataset, test, apart, theory_for=theory, **settings, run=run
                )
                for run in numbers
            ]
        second: list[RunResult | None] = [None] * size
        if together:
            loss = study_loss(study)
            second = list(
                batched.simulate_block(
                    dataset, together, **settings, runs=numbers, loss=loss, timing=study.clock
                )
            )
    place = {curve: k for k, curve in enumerate((*apart, *together))}
    order = [place[curve] for curve in study.curves]
    return {
        run: _merged(a, b, order).marked() for run, a, b in zip(runs, first, second, strict=True)
    }


def _merged(first: RunResult | None, second: RunResult | None, order: Sequence[int]) -> RunResult:
    """The curves of both in the study's order; what the theory asks for is in the first."""
    parts = [part for part in (first, second) if part is not None]
    merged = {
        name: _in_order([getattr(part, name) for part in parts], order)
        for name in (*RunResult.names(), *MEASURED)
        if name != "theory"
    }
    return RunResult(**merged, theory=parts[0].theory)


def _in_order(parts: Sequence[npt.NDArray[Any]], order: Sequence[int]) -> Any:
    together = np.concatenate(parts)
    return together[order] if len(together) else together  # what is not measured has no curves


def _softmax_task(dataset: Dataset, data: TrainingSet) -> SoftmaxRegression:
    return SoftmaxRegression(
        data.inputs,
        data.labels,
        dataset.inputs("test", dtype=np.float64),
        dataset.y_test,
        dataset.n_classes,
    )
