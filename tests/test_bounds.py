"""How large an answer may be."""

import numpy as np
import pytest

from fedcommons import bounds
from fedcommons.bounds import Sizes
from fedcommons.errors import ArgumentError

EVERYBODY = np.ones(6, np.bool_)


def seen(*rounds):
    sizes = Sizes.start(len(rounds[0]))
    for one in rounds:
        sizes = sizes.observe(one, ~np.isnan(one))
    return sizes


def test_the_limit_by_hand():
    """Median 2, deviations of logs 0, log 2, 0, log 2, log 2 and more: their median is log 2."""
    sizes = seen(np.array([2.0, 1.0, 2.0, 4.0, 4.0, 1.0]))
    assert sizes.limit(4.0) == pytest.approx(2 * 2**bounds.SPREAD)
    assert seen(np.full(6, 3.0)).limit(4.0) == pytest.approx(12)


def test_within_the_limit_nothing_changes_and_beyond_it_the_limit_counts():
    found = np.array([1.0, 1.1, 0.9, 1.0, 1.05, 100.0])
    sizes = seen(found)
    factors = sizes.factors(found)
    assert factors[:5].tolist() == [1.0] * 5
    assert factors[5] * 100 == pytest.approx(sizes.limit())


def test_nothing_is_clipped_while_fewer_than_three_are_known():
    assert seen(np.array([1.0, 100.0, np.nan])).factors([1.0, 100.0, 0.0]).tolist() == [1, 1, 1]
    assert seen(np.zeros(4)).limit() is None


def test_those_who_are_away_do_not_lower_it_and_the_few_cannot_raise_it_far():
    usual = np.full(10, 1.0)
    away = usual.copy()
    away[2:] = np.nan
    limit = seen(usual).limit()
    assert seen(usual, away / 10, away / 10).limit() == pytest.approx(limit)
    hostile = usual.copy()
    hostile[:2] = 1e6
    assert seen(hostile, hostile, hostile).limit() == pytest.approx(limit)


def test_a_clients_last_answers_are_what_it_is_known_by():
    rounds = [np.full(3, size) for size in (50.0, 1.0, 2.0, 3.0)]
    assert seen(*rounds).limit() == pytest.approx(4 * 3)


def test_per_unit_of_share():
    assert bounds.per_unit([2.0, 0.0, 3.0], [4.0, 0.0, 0.0]).tolist() == [0.5, 0.0, np.inf]


@pytest.mark.parametrize("factor", [1, 0, -1, float("nan")])
def test_a_factor_is_above_one(factor):
    with pytest.raises(ArgumentError, match="factor must be above 1"):
        Sizes.start(3).limit(factor)
