import numpy as np
import pytest

from fedcommons import deadlines
from fedcommons.deadlines import LAST, Durations, adaptive, for_fitting_work
from fedcommons.errors import ArgumentError

NOBODY = np.full(3, np.nan)


def plain(seconds, weight, waited):
    """The rule as a plain loop: every duration is tried, and F is counted anew."""
    best = (np.inf, np.nan, np.inf)
    for T in sorted({s for row in seconds for s in row if np.isfinite(s)}):
        F = 0.0
        for row, w, wait in zip(seconds, weight, waited, strict=True):
            jobs = [s for s in row if not np.isnan(s)]
            if not np.isnan(wait) and all(wait > s for s in jobs if np.isfinite(s)):
                jobs.append(np.inf)
            if jobs:
                F += w / sum(weight) * sum(s <= T for s in jobs) / len(jobs)
        if F > 0 and best[2] - 1e-12 > T / F:
            best = (T, F, T / F)
    return best[:2]


def test_it_is_the_duration_with_the_least_time_for_its_share():
    rng = np.random.default_rng(0)
    for _ in range(200):
        N = int(rng.integers(1, 6))
        seconds = np.round(rng.pareto(1.2, (N, 4)), 1)  # some are equal
        seconds[rng.random((N, 4)) < 0.3] = np.nan
        seconds[rng.random((N, 4)) < 0.1] = np.inf
        weight = rng.integers(1, 5, N).astype(float)
        waited = np.where(rng.random(N) < 0.5, np.nan, rng.pareto(1.2, N))
        found = adaptive(seconds, weight, waited)
        T, F = plain(seconds, weight, waited)
        assert found.seconds == T
        if np.isfinite(T):
            assert found.share == pytest.approx(F)
            assert np.nansum(weight * found.on_time) / weight.sum() == pytest.approx(F)


def test_a_job_older_than_all_durations_never_comes_and_a_younger_one_says_nothing():
    seconds = np.array([[1.0, 1.0], [1.0, 4.0]])
    for waited, on_time in ((3.9, 1 / 2), (4.1, 1 / 3)):
        found = adaptive(seconds, np.ones(2), np.array([np.nan, waited]))
        assert found.on_time.tolist() == pytest.approx([1, on_time])


def test_a_slow_client_is_waited_for_if_its_weight_is_worth_it():
    seconds = np.array([[1.0], [3.0]])
    assert adaptive(seconds, np.array([1.0, 1.0]), NOBODY[:2]).seconds == 1
    assert adaptive(seconds, np.array([1.0, 9.0]), NOBODY[:2]).seconds == 3


def test_as_long_as_nothing_is_known_everybody_is_waited_for():
    nothing = np.full((3, LAST), np.nan)
    assert adaptive(nothing, np.ones(3), NOBODY).seconds == np.inf
    found = adaptive(nothing, np.ones(3), np.array([5.0, np.nan, np.nan]))
    assert found.seconds == np.inf
    assert found.on_time[0] == 0
    assert np.isnan(found.on_time[1:]).all()


def test_the_last_durations_count():
    kept = Durations(2)
    for k in range(LAST + 5):
        kept.add(np.array([1]), np.array([float(k)]))
    assert np.isnan(kept.seconds[0]).all()
    assert sorted(kept.seconds[1]) == list(range(5, LAST + 5))
    again = Durations(2, kept.seconds)
    assert again.best(np.ones(2), NOBODY[:2]).seconds == kept.best(np.ones(2), NOBODY[:2]).seconds


def test_where_work_fits_it_is_a_multiple_of_the_link():
    assert for_fitting_work(np.array([0.26, 0.26, 30.0])) == pytest.approx(2.6)
    with pytest.raises(ArgumentError, match="give the deadline in seconds"):
        for_fitting_work(np.zeros(3))


def test_bad_arguments_are_named():
    with pytest.raises(ArgumentError, match="weight must be >= 0 and not all 0"):
        adaptive(np.ones((2, 1)), np.zeros(2), NOBODY[:2])
    with pytest.raises(ArgumentError, match="seconds must be >= 0"):
        Durations(1, [[-1.0]])
    with pytest.raises(ArgumentError, match="seconds must have shape"):
        Durations(2, np.ones((3, 1)))
    assert "adaptive" in dir(deadlines)
