"""Moments of parts add up to those of the whole, and scales give mean 0, deviation 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcommons import scaling
from fedcommons.scaling import Moments, far_apart, total

values = st.floats(-1e6, 1e6, width=32)


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(0, 30), st.integers(1, 4)), elements=values),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_moments_of_parts_are_those_of_the_whole(x, cuts):
    parts = np.split(x, sorted(min(cut, len(x)) for cut in cuts))
    found = total(map(Moments.of, parts), x.shape[1])
    assert found.n == len(x)
    if len(x):
        largest = np.abs(x).max() + 1
        np.testing.assert_allclose(found.mean, x.mean(axis=0), rtol=1e-12, atol=1e-12 * largest)
        np.testing.assert_allclose(found.deviation, x.std(axis=0), rtol=1e-9, atol=1e-12 * largest)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16", "int64", "uint32"])
def test_a_scale_brings_inputs_to_mean_0_and_deviation_1(dtype, monkeypatch):
    monkeypatch.setattr(scaling, "BLOCK", 30)  # several blocks
    x = (np.random.default_rng(0).uniform(1, 9, size=(50, 3)) * [1, 10, 100]).astype(dtype)
    scaled = Moments.of(x).scale().apply(x)
    assert scaled.dtype == np.result_type(dtype, np.float32)
    assert scaled.dtype.kind == "f"
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e12, 1 / 3])
def test_a_constant_has_deviation_1_and_becomes_0(value, monkeypatch):
    monkeypatch.setattr(scaling, "BLOCK", 8)
    x = np.full((1001, 1), value)
    moments = total([Moments.of(x), Moments.of(x[:7]), Moments.of(x[:500])], 1)
    assert moments.squares.tolist() == [0.0]
    assert moments.scale().deviation.tolist() == [1.0]
    assert not moments.scale().apply(x).any()


def test_a_small_spread_about_a_large_mean_is_not_lost():
    """Sums of x and of x^2 would have no digit of it."""
    x = 1e9 + np.random.default_rng(1).normal(size=(1000, 1))
    moments = Moments.of(x[:400]) + Moments.of(x[400:])
    assert moments.deviation[0] == pytest.approx(x.std(), rel=1e-6)
    naive = (x**2).mean() - x.mean() ** 2
    assert not 0.9 < naive < 1.1


def test_scales_that_are_far_apart_are_named():
    def said(x: list[list[float]], *names: str) -> str:
        return far_apart(Moments.of(np.array(x)), names)

    assert said([[0.5, 49, 0], [-0.5, -49, 0]]) == ""
    assert said([[0.001, 1], [0.001, -1]]) == ""  # both are small
    assert said([[0, 0]]) == ""
    assert far_apart(total([], 2)) == ""
    assert said([[2, 50, 205, 0], [-2, 50, -205, 0]]) == (
        "feature 2 is about 205 in size, feature 0 about 2"
    )
    assert said([[0.3, 2020], [-0.3, 2020]], "crp", "year") == (
        "year is about 2.02e+03 in size, crp about 0.3"
    )
