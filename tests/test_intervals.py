"""± is half of a 95 % interval, of Student's t."""

import numpy as np
import pytest

from fedcommons.intervals import half_width, mean_and_half


def test_few_runs_make_it_wider_and_many_make_it_the_normal_one():
    assert half_width(1.0, [2, 4, 80, 10**6]) == pytest.approx(
        [12.7062, 3.1824, 1.9905, 1.96], 1e-4
    )
    assert np.isnan(half_width(1.0, [0, 1])).all()


def test_it_is_of_the_runs_that_there_are():
    values = np.array([1.0, np.nan, 2.0, 3.0])
    assert mean_and_half(values) == pytest.approx((2.0, half_width(1 / np.sqrt(3), 3)))
    assert mean_and_half(values[:2]) == (1.0, None)
    assert mean_and_half(values[1:2]) == (None, None)
