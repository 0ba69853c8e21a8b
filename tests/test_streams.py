import numpy as np
import pytest

from fedcommons.errors import ArgumentError
from fedcommons.streams import stream


def first(*name, seed=0):
    return stream(seed, *name).random()


def test_a_name_is_a_stream():
    assert first("stragglers", 3) == first("stragglers", 3)
    different = {
        first("stragglers", 3),
        first("stragglers", 4),
        first("sharing", 3),
        first("stragglers", "3"),
        first("stragglers3"),
        first("stragglers", 3, seed=1),
        first("stragglers", 3.0),
        first("a", "b"),
        first("ab"),
        first(),
    }
    assert len(different) == 10


def test_numpys_numbers_count_as_pythons():
    assert first("a", np.int64(3)) == first("a", 3)
    assert first("a", np.float64(0.5)) == first("a", 0.5)
    with pytest.raises(ArgumentError, match="name must be strings and numbers, got None"):
        first(None)


def test_streams_are_independent():
    a, b = stream(0, "a").random(10_000), stream(0, "b").random(10_000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(10_000)


def test_a_wrong_seed_is_named():
    with pytest.raises(ArgumentError, match="seed must be an integer >= 0, got -1"):
        stream(-1, "a")
