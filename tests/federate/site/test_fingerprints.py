"""A fingerprint is of values: the type of number that holds them does not matter."""

import numpy as np
import pytest

from fedcommons.federate.site import fingerprints
from fedcommons.federate.site.fingerprints import fingerprints_of

KEY = b"k" * 32


def of(x, y=None):
    x = np.asarray(x)
    return fingerprints_of(x, np.arange(len(x)) if y is None else y, KEY)


@pytest.mark.parametrize(
    "values",
    [
        [[0, 1, 255]],
        [[0, 1, 256]],
        [[-1, 0, 7]],
        [[0.5, -0.25, 3.0]],
        [[2**24, 5, 6]],
        [[0, 1, 1], [0.5, 300, 2], [9, 9, 9]],
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "uint64", "float16", "float32"])
def test_the_same_values_have_the_same_fingerprints(values, dtype):
    whole = np.array(values, np.float64)
    with np.errstate(all="ignore"):
        other = whole.astype(dtype)
    same = (other.astype(np.float64) == whole).all(axis=1)
    assert np.array_equal((of(whole) == of(other)).all(axis=1), same)


def test_booleans_are_zeros_and_ones():
    assert np.array_equal(of([[True, False]]), of([[1.0, 0.0]]))


def test_a_negative_zero_is_zero():
    assert np.array_equal(of([[-0.0, 1.5]]), of([[0.0, 1.5]]))


def test_large_integers_are_told_apart():
    near = np.array([[2**62], [2**62 + 1], [2**63 - 1]])
    assert len({f.tobytes() for f in of(near, np.zeros(3, np.int64))}) == 3
    assert np.array_equal(of(near), of(near.astype(np.uint64)))


def test_values_that_are_close_are_told_apart():
    x = np.array([[0.1], [np.float64(np.float32(0.1))], [np.nextafter(0.1, 1)]])
    assert len({f.tobytes() for f in of(x, np.zeros(3, np.int64))}) == 3


def test_what_is_not_finite_has_a_fingerprint_too():
    x = np.array([[np.nan], [np.inf], [-np.inf]])
    assert len({f.tobytes() for f in of(x, np.zeros(3, np.int64))}) == 3


def test_fingerprints_do_not_depend_on_the_rows_beside(monkeypatch):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(5, 3)), rng.integers(0, 255, size=(5, 3))])
    y = np.arange(10)
    whole = fingerprints_of(x, y, KEY)
    alone = [fingerprints_of(x[[i]], y[[i]], KEY)[0] for i in range(10)]
    assert np.array_equal(whole, alone)
    monkeypatch.setattr(fingerprints, "AT_ONCE", 1)
    assert np.array_equal(fingerprints_of(x, y, KEY), whole)


def test_the_same_bytes_as_other_values_are_told_apart():
    large = np.array([[2**62 + 1]])
    assert not np.array_equal(of(large), of(large.view(np.float64)))
