"""What holds for all tests, and which of them `make quick` leaves out."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.processes import starts_processes

if TYPE_CHECKING:
    from fedcommons.datasets import Dataset

BROWSER_FIXTURES = {"browser"}
WHEEL_FIXTURES = {"wheel"}
OF_PROCESSES = ("federate/deploy/", "federate/transport/test_kill_matrix.py", "test_benchmarks.py")
TESTS = Path(__file__).parent

# Workers and the processes that tests start outnumber the cores: one thread for each.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A job in the background, or under nohup, ignores these; what tests start must not: they send them.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Nor is an example too slow because others are busy: speed is for benchmarks/.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder, their fixtures and the functions that they call."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & BROWSER_FIXTURES:
            item.add_marker("browser")
        if fixtures & WHEEL_FIXTURES:
            item.add_marker("wheel")
        if item.path.relative_to(TESTS).as_posix().startswith(OF_PROCESSES) or starts_processes(
            item
        ):
            item.add_marker("processes")
    spread(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def spread(items: list[pytest.Item], n_workers: int) -> None:
    """Let half the workers begin with the tests that start processes, and wait; the others compute.

    Each worker gets a run of neighbours and, when it has done its own, takes from the ends of the
    others': what takes minutes must not come last. A file's tests stay together, for its fixtures.
    """
    if n_workers < 2:
        return
    waiting: dict[Path, list[pytest.Item]] = {}
    computing: list[pytest.Item] = []
    for item in items:
        is_waiting = item.get_closest_marker("processes")
        (waiting.setdefault(item.path, []) if is_waiting else computing).append(item)
    files = sorted(waiting, key=lambda path: ("deploy" not in path.parts, path))
    heads = [files[k :: n_workers // 2] for k in range(n_workers // 2)]
    share = len(items) // n_workers
    items.clear()
    for head in heads:
        items += (item for path in head for item in waiting[path])
        filling = max(0, share * (heads.index(head) + 1) - len(items))
        items += computing[:filling]
        del computing[:filling]
    items += computing


@pytest.fixture(scope="session")
def blobs() -> Dataset:
    """A small problem with three overlapping classes; the test classes are unequal in number."""
    import numpy as np  # only now: it reads the number of threads above when it is imported

    from fedcommons.datasets import Dataset

    rng = np.random.default_rng(0)
    centres = rng.random((3, 6))

    def draw(labels: np.ndarray) -> np.ndarray:
        return np.clip(centres[labels] + 0.35 * rng.normal(size=(len(labels), 6)), 0, 2)

    y_train, y_test = np.repeat(np.arange(3), 40), np.repeat(np.arange(3), [50, 21, 34])
    y_test = rng.permutation(y_test)
    return Dataset("blobs", draw(y_train), y_train, draw(y_test), y_test)
