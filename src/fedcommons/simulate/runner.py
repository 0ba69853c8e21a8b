"""Running a study: runs in parallel, each written when it is done.

A run depends on the study and its number alone, so the results do not depend on the number of
workers, on their order, or on how often the study was interrupted and resumed.
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
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedcommons import checks, datasets
from fedcommons.datasets import Dataset
from fedcommons.errors import FedcommonsError, StudyError
from fedcommons.simulate import example_space, primal
from fedcommons.simulate.draws import TrainingSet
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.scoring import Evaluation
from fedcommons.simulate.studies import Study
from fedcommons.tasks.softmax import SoftmaxRegression


def run_study(
    study: Study,
    folder: Folder,
    *,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Do the runs of the study that the folder does not have yet; how many these were.

    `on_progress(done, total)` is called at the start and after every run, with the runs that were
    there already counted as done.
    """
    n_workers = checks.integer(
        "workers", (os.cpu_count() or 1) if workers is None else workers, low=1
    )
    digest = study.digest
    missing = [run for run in range(study.runs) if not folder.has_run(run, digest)]
    done = study.runs - len(missing)
    on_progress(done, study.runs)
    if n_workers == 1 or len(missing) <= 1:
        for run in missing:
            _one_run(study, folder, run)
            done += 1
            on_progress(done, study.runs)
        return len(missing)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(n_workers, len(missing)),
        mp_context=context,
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    )
    waiting: set[Future[None]] = set()
    todo = iter(missing)
    try:
        # Only a few runs are queued at a time, so that an interruption waits for little.
        with _interrupts_blocked():  # the workers start here
            for run in itertools.islice(todo, 2 * n_workers):
                waiting.add(pool.submit(_one_run, study, folder, run))
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
                done += 1
                on_progress(done, study.runs)
                for run in itertools.islice(todo, 1):
                    waiting.add(pool.submit(_one_run, study, folder, run))
    except BrokenProcessPool:
        raise FedcommonsError(
            f"a worker process ended unexpectedly after {done} of {study.runs} runs; "
            "the finished runs are kept: run the same command again to go on"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return len(missing)


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


def check_fits(study: Study, dataset: Dataset) -> None:
    """Refuse a study that its dataset cannot feed, before anything is written."""
    if not len(dataset.y_test):
        raise StudyError(f"dataset {study.dataset} must have test examples, got none")
    smallest = int(np.bincount(dataset.y_train, minlength=dataset.n_classes).min())
    if study.class_size > smallest:
        raise StudyError(
            f"class_size must be at most the {smallest} training examples of the smallest class, "
            f"got {study.class_size}"
        )


def load_dataset(name: str) -> Dataset:
    """The embedded dataset of this name, or the one at this path."""
    return datasets.mnist() if name == "mnist" else datasets.load(name)


@functools.lru_cache(maxsize=1)
def _data(name: str) -> tuple[Dataset, Evaluation]:
    dataset = load_dataset(name)
    return dataset, Evaluation(dataset)


def _one_run(study: Study, folder: Folder, run: int) -> None:
    # One BLAS thread: runs are what is parallel, and the numbers must not depend on the machine's
    # idea of how many threads to use.
    with threadpool_limits(1):
        dataset, test = _data(study.dataset)
        settings: dict[str, Any] = {
            "n_clients": study.clients,
            "class_size": study.class_size,
            "n_rounds": study.rounds,
            "seed": study.seed,
            "run": run,
        }
        if study.engine == "primal":
            result = primal.simulate_run(dataset, _softmax_task, study.curves, **settings)
        else:
            result = example_space.simulate_run(
                dataset, test, study.curves, theory_for=study.theory_curves, **settings
            )
    folder.write_run(run, study.digest, result)


def _softmax_task(dataset: Dataset, data: TrainingSet) -> SoftmaxRegression:
    return SoftmaxRegression(
        data.inputs,
        data.labels,
        dataset.inputs("test", dtype=np.float64),
        dataset.y_test,
        dataset.n_classes,
    )
