"""Answers that come after their round: what they change, and when."""

import itertools

import numpy as np
import pytest

from fedcommons import estimators
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS, Arrivals, estimate
from tests.scenarios import CODES, SCHEMES, federation

N, PARAMS = 5, 3
P = np.array([0.0, 0.3, 0.5, 0.85, 0.6])
OWES = np.array([False, True, False, False, True])
NOBODY = np.zeros(N, np.bool_)
REMEMBERING = [name for name in ESTIMATORS if ESTIMATORS[name].remembers]


def drawn(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The answers that clients would give now, and what is remembered of them: (N, P) each."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, PARAMS)), rng.normal(size=(N, PARAMS))


def patterns(p: np.ndarray):
    for on_time in itertools.product([False, True], repeat=len(p)):
        answered = np.array(on_time)
        if chance := float(np.prod(np.where(answered, 1 - p, p))):
            yield answered, chance


def test_memory_misses_only_what_busy_clients_would_change():
    """E[v | past] = sum_i f_i - sum_Y (f_i - h_i), of variance sum_asked p/(1-p) |f_i - h_i|^2."""
    f, h = drawn()
    mean, square = np.zeros(PARAMS), 0.0
    for answered, chance in patterns(np.where(OWES, 1.0, P)):
        arrived = Arrivals(answered, ~OWES, NOBODY)
        value, _ = estimate(estimators.memory, h, f, arrived, P)
        mean, square = mean + chance * value, square + chance * value @ value
    np.testing.assert_allclose(mean, f.sum(axis=0) - (f - h)[OWES].sum(axis=0), atol=1e-13)
    change = (P / (1 - P) * ((f - h) ** 2).sum(axis=1))[~OWES].sum()
    assert square - mean @ mean == pytest.approx(change)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", [*REMEMBERING, "coded_sum"])
def test_who_is_busy_counts_as_if_it_had_nothing_new(name, code):
    """Mean and second moment given the past, over all patterns of who is on time, for every code:
    those of a round in which busy clients would answer what is remembered of them, or nothing."""
    rng, estimator = np.random.default_rng(1), ESTIMATORS[name]
    case = federation(n_clients=N, n_examples=14, n_classes=3, c=0.6, seed=2)
    placement = SCHEMES["optimal"](*case, 2, N, rng)
    f = CODES[code](placement, P, rng.normal(-1, 1, N)) @ rng.normal(size=(14, PARAMS))
    h = rng.normal(size=f.shape) if estimator.remembers else np.zeros_like(f)
    mean, square = np.zeros(PARAMS), 0.0
    for answered, chance in patterns(np.where(OWES, 1.0, P)):
        arrived = Arrivals(answered, ~OWES, NOBODY)
        value, _ = estimate(estimator, h if estimator.remembers else None, f, arrived, P)
        mean, square = mean + chance * value, square + chance * value @ value
    as_if = np.where(OWES[:, None], h, f)
    if estimator.unbiased:
        np.testing.assert_allclose(mean, as_if.sum(axis=0), atol=1e-12)
    if (moment := estimator.second_moment(P)) is not None:
        assert square == pytest.approx(moment.of(as_if, h), rel=1e-10)


def test_a_late_answer_is_remembered_after_the_estimate():
    """Whatever else comes, and whatever it says: before it, the mean above would be lost."""
    f, h = drawn()
    late = np.array([False, True, False, False, False])
    on_time = np.array([True, False, False, True, False])
    arrived = Arrivals(on_time, ~OWES, late, np.where(late, 3, 0))
    with_it, state = estimate(estimators.memory, h, f, arrived, P)
    without, _ = estimate(estimators.memory, h, f, Arrivals(on_time, ~OWES, NOBODY), P)
    np.testing.assert_array_equal(with_it, without)
    np.testing.assert_array_equal(state, np.where((on_time | late)[:, None], f, h))


@pytest.mark.parametrize("name", REMEMBERING)
def test_every_estimator_that_remembers_takes_late_answers_into_its_memory(name):
    f, h = drawn()
    arrived = Arrivals(NOBODY, ~OWES, OWES, np.where(OWES, 2, 0))
    _, state = estimate(ESTIMATORS[name], h, f, arrived, P)
    np.testing.assert_array_equal(state, np.where(OWES[:, None], f, h))
    expected = estimators.remember(ESTIMATORS[name], h, f, arrived)
    np.testing.assert_array_equal(state, expected)


def test_nobody_answers_a_question_that_was_not_asked():
    f, h = drawn()
    for on_time, asked, late in ((OWES, ~OWES, NOBODY), (NOBODY, OWES, OWES)):
        with pytest.raises(ArgumentError, match="of client 1"):
            estimate(estimators.memory, h, f, Arrivals(on_time, asked, late), P)
    f[4] = np.nan
    with pytest.raises(ArgumentError, match="answers must be finite"):
        estimate(estimators.memory, h, f, Arrivals(NOBODY, ~OWES, OWES), P)
