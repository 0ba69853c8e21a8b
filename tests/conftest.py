"""What holds for all tests."""

import os
import signal

import numpy as np
import pytest
from hypothesis import settings

from fedcommons.datasets import Dataset

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


@pytest.fixture(scope="session")
def blobs() -> Dataset:
    """A small problem with three overlapping classes; the test classes are unequal in number."""
    rng = np.random.default_rng(0)
    centres = rng.random((3, 6))

    def draw(labels: np.ndarray) -> np.ndarray:
        return np.clip(centres[labels] + 0.35 * rng.normal(size=(len(labels), 6)), 0, 2)

    y_train, y_test = np.repeat(np.arange(3), 40), np.repeat(np.arange(3), [50, 21, 34])
    y_test = rng.permutation(y_test)
    return Dataset("blobs", draw(y_train), y_train, draw(y_test), y_test)
