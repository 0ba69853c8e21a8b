import numpy as np
import pytest

from fedcommons.datasets import Dataset


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
