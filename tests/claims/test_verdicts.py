import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcommons.claims import verdicts
from fedcommons.claims.verdicts import FAILS, HOLDS, UNDECIDED, Component


def component(z: float, sem: float = 1.0, runs: int = 1000) -> Component:
    return Component("x", z * sem, sem, runs)


def test_components_are_means_with_their_standard_errors():
    values = np.array([1.0, 2.0, 6.0])
    c = Component.of("x", values)
    assert (c.difference, c.runs) == (3.0, 3)
    assert c.sem == pytest.approx(stats.sem(values))
    assert c.z == pytest.approx(3 / stats.sem(values))
    assert c.tail(1) == pytest.approx(stats.ttest_1samp(values, 0, alternative="greater").pvalue)
    assert c.tail(-1) == pytest.approx(stats.ttest_1samp(values, 0, alternative="less").pvalue)


def test_direction():
    assert verdicts.direction([component(3), component(10)]) == HOLDS
    assert verdicts.direction([component(3), component(1)]) == UNDECIDED
    assert verdicts.direction([component(3), component(-1)]) == UNDECIDED
    assert verdicts.direction([component(3), component(-6)]) == FAILS
    # -2.5 is significant alone, but not among 100 components.
    assert verdicts.direction([component(-2.5)]) == FAILS
    assert verdicts.direction([component(-2.5)] + 99 * [component(3)]) == UNDECIDED


def test_differences_without_spread():
    def same(value, runs):
        return [Component.of("x", np.full(runs, value))]

    # 2^-7 < .01 < 2^-6: six runs that agree may be chance. 0.1 is no binary fraction.
    for value in (0.5, 0.1):
        assert same(value, 2)[0].sem == 0
        assert same(value, 7)[0].tail(1) == 0.5**7
        assert verdicts.direction(same(value, 6)) == UNDECIDED
        assert verdicts.direction(same(value, 7)) == HOLDS
        assert verdicts.direction(same(-value, 6)) == UNDECIDED
        assert verdicts.direction(same(-value, 7)) == FAILS
    assert verdicts.direction(same(0.0, 100)) == UNDECIDED
    # Seven runs on both sides of the median: 2^-6 > .01; eight: 2^-7.
    assert verdicts.equality(same(0.0, 7), 0.1) == UNDECIDED
    assert verdicts.equality(same(0.0, 8), 0.1) == HOLDS
    assert verdicts.equality(same(0.2, 6), 0.1) == UNDECIDED
    assert verdicts.equality(same(0.2, 7), 0.1) == FAILS


def test_one_run_decides_nothing():
    single = Component.of("x", np.array([5.0]))
    assert verdicts.direction([single]) == UNDECIDED
    assert verdicts.equality([single], 0.1) == UNDECIDED


def test_equality():
    near, far = component(1, 0.001), component(100, 0.001)
    assert verdicts.equality([near], 0.01) == HOLDS
    assert verdicts.equality([near, far], 0.01) == FAILS
    assert verdicts.equality([component(1, 0.1)], 0.01) == UNDECIDED
    # The interval straddles the tolerance, though it is far from 0.
    assert verdicts.equality([component(10, 0.001)], 0.0105) == UNDECIDED
    # One of many just beyond the tolerance is chance, not evidence.
    beyond = Component("x", 0.0125, 0.001, 1000)
    assert verdicts.equality([beyond], 0.01) == FAILS
    assert verdicts.equality([beyond] + 99 * [near], 0.01) == UNDECIDED
    # Significantly different from 0, but within what counts as equal.
    assert verdicts.equality([component(5, 0.001)], 0.01) == HOLDS


def test_every_round():
    assert verdicts.every_round(1, 1000) == FAILS
    assert verdicts.every_round(0, 1000) == HOLDS
    assert verdicts.every_round(0, 43) == UNDECIDED
    assert verdicts.every_round(0, 44) == HOLDS


def test_clopper_pearson_has_its_level():
    # At the bound, so few violations have probability exactly 1 %.
    for k, n in ((0, 60), (3, 60), (10, 1000)):
        bound = verdicts.clopper_pearson_upper(k, n)
        assert stats.binom.cdf(k, n, bound) == pytest.approx(0.01)
    assert verdicts.clopper_pearson_upper(5, 5) == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_by_its_definition(p):
    adjusted = verdicts.holm(p)
    order = np.argsort(p, kind="stable")
    running = 0.0
    for rank, k in enumerate(order):
        running = min(1.0, max(running, (len(p) - rank) * p[k]))
        assert adjusted[k] == pytest.approx(running)
