"""The estimator `filled`: latest answers, and their mean for clients that were never heard."""

import itertools
from dataclasses import replace

import numpy as np

from fedcommons import estimators
from fedcommons.estimators import Arrivals

W = np.array([1.0, 2.0, 0.5, 4.0])
P = np.array([0.2, 0.5, 0.7, 0.4])
N, T = len(W), 2
ROUNDS = [np.array(masks).reshape(T, N) for masks in itertools.product([False, True], repeat=T * N)]


def chance(answered: np.ndarray) -> float:
    return float(np.where(answered, 1 - P, P).prod())


def last_estimate(answered: np.ndarray, f: np.ndarray, *, warm: bool = False) -> np.ndarray:
    """The estimate in the last round, with answers f that do not change."""
    state = estimators.start(estimators.filled, N, f.shape[1], warm=f if warm else None)
    arrivals = Arrivals.now_or_never(answered).from_the_start(W, warm=warm)
    for t in range(T):
        found, state = estimators.estimate(estimators.filled, state, f, arrivals.of_round(t), P)
    return found


def test_it_has_no_bias_where_answers_are_alike_per_unit_of_share():
    """Given that anybody was heard: all 256 patterns of two rounds."""
    f = W[:, None] * np.random.default_rng(0).normal(size=(1, 3))
    for answered in ROUNDS:
        if answered.any():
            np.testing.assert_allclose(last_estimate(answered, f), f.sum(axis=0), rtol=1e-12)


def test_its_bias_is_that_of_the_mean_of_whom_was_heard():
    """Enumerated against the formula, client by client; `latest` falls short by who was not."""
    f = np.random.default_rng(1).normal(size=(N, 3))
    mean, expected, of_latest = np.zeros(3), np.zeros(3), np.zeros(3)
    for answered in ROUNDS:
        heard = [i for i in range(N) if answered[:, i].any()]
        mean += chance(answered) * last_estimate(answered, f)
        if heard:
            part = sum(f[i] for i in heard)
            expected += chance(answered) * part * W.sum() / sum(W[i] for i in heard)
            of_latest += chance(answered) * part
    np.testing.assert_allclose(mean, expected, rtol=1e-12)
    np.testing.assert_allclose(of_latest, ((1 - P**T)[:, None] * f).sum(axis=0), rtol=1e-12)


def test_it_is_latest_once_everybody_was_heard():
    f = np.random.default_rng(2).normal(size=(N, 3))
    for answered in ROUNDS:
        found = last_estimate(answered, f, warm=True)
        np.testing.assert_allclose(found, f.sum(axis=0), rtol=1e-12)
        if answered.any(axis=0).all():
            np.testing.assert_allclose(last_estimate(answered, f), f.sum(axis=0), rtol=1e-12)


def test_who_is_heard_is_known_of_all_rounds_at_once():
    rng = np.random.default_rng(3)
    answered = rng.random((6, N)) < 0.3
    all_at_once = Arrivals.now_or_never(answered).from_the_start(W, warm=False)
    for t in range(6):
        one = all_at_once.of_round(t)
        heard = np.array([answered[:t, i].any() for i in range(N)])
        np.testing.assert_array_equal(one.heard, heard)
        np.testing.assert_array_equal(
            estimators.filled.weigh(all_at_once, P).fresh[t],
            estimators.filled.weigh(replace(one), P).fresh,
        )
