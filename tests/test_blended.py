"""The estimator `blended`: between latest answers and the average of who answers."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fedcommons import estimators
from fedcommons.estimators import Arrivals, Comparison, blended, filled
from tests.reference import loops

W = np.array([1.0, 2.0, 0.5, 4.0])
N, P, PARAMS = len(W), np.full(4, 0.5), 6
MASKS = [np.array(mask) for mask in itertools.product([False, True], repeat=N)]


def estimate(f, h, answered, heard=None, shares=W, estimator=blended):
    heard = np.ones(len(f), bool) if heard is None else heard
    arrivals = replace(Arrivals.now_or_never(answered), heard=heard, shares=shares)
    arrived = np.where(answered[:, None], f, np.nan)
    return estimators.estimate(estimator, h, arrived, arrivals, np.full(len(f), 0.5))[0]


def test_it_is_the_plain_loop_for_every_pattern():
    """All 256 of who answers and who was heard before."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=PARAMS)
    f, h = (W[:, None] * (common + rng.normal(size=(N, PARAMS))) for _ in range(2))
    h = 0.5 * f + 0.5 * h  # so that the part is not at an end
    parts = set()
    for answered, heard in itertools.product(MASKS, MASKS):
        known = np.where(heard[:, None], h, 0)
        expected = loops.blended(f, known, W, answered, heard)
        np.testing.assert_allclose(estimate(f, known, answered, heard), expected, atol=1e-12)
        parts.add(loops.blended_part(f, known, W, answered, heard))
    assert len({part for part in parts if 0 < part < 1}) > 20


def test_it_has_no_error_where_answers_are_alike_however_old_what_is_remembered():
    """Everybody went the same way, and another one before: `filled` mixes the two."""
    now, before = np.random.default_rng(1).normal(size=(2, PARAMS))
    f, h = W[:, None] * now, W[:, None] * before
    for answered in MASKS:
        if answered.sum() >= 2:
            np.testing.assert_allclose(estimate(f, h, answered), f.sum(axis=0), rtol=1e-12)
            if not answered.all():
                of_filled = estimate(f, h, answered, estimator=filled)
                assert np.linalg.norm(of_filled - f.sum(axis=0)) > 0.1


def test_it_has_no_error_where_answers_have_settled_however_lopsided():
    f = np.random.default_rng(2).normal(size=(N, PARAMS))
    for answered in MASKS:
        np.testing.assert_allclose(estimate(f, f, answered), f.sum(axis=0), atol=1e-12)


def test_its_part_has_the_least_squared_error_of_all():
    """At the clients that answer, each foretold from its own memory and from the others."""
    rng = np.random.default_rng(3)
    f, h = rng.normal(size=(2, N, PARAMS))
    found = Comparison.of([(f, h)], np.ones(N, bool), W)
    best = found.agreement / found.spread

    def error(part: float) -> float:
        total = 0.0
        for i in range(N):
            mean = (f.sum(axis=0) - f[i]) / (W.sum() - W[i])
            total += W[i] * ((f[i] / W[i] - part * h[i] / W[i] - (1 - part) * mean) ** 2).sum()
        return total

    assert error(best) < min(error(best + 1e-3), error(best - 1e-3))
    halves = [(f[:, :2], h[:, :2]), (f[:, 2:], h[:, 2:])]
    again = Comparison.of(halves, np.ones(N, bool), W)
    assert [again.agreement, again.spread] == pytest.approx([found.agreement, found.spread])


@pytest.mark.parametrize("part", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_mean_and_variance_given_its_part_and_how_many_answer(part, n):
    """Enumerated over all sets of n of N = 5 that are alike in W, everybody heard before.

    With part l: the mean is (1 - l + l n/N) sum f + l (1 - n/N) sum h, the variance that of a sum
    over n of N without replacement, n (1 - n/N) S^2, of (l + (1 - l) N/n) f_i - l h_i.
    """
    m = 5
    f, h = np.random.default_rng(4).normal(size=(2, m, PARAMS))
    found = []
    for who in itertools.combinations(range(m), n):
        arrivals = Arrivals.now_or_never(np.isin(np.arange(m), who))
        weights = blended.weigh(replace(arrivals, comparison=Comparison(part, 1.0)), P)
        found.append(weights.fresh @ f + weights.remembered @ h)
    mean = (1 - part + part * n / m) * f.sum(axis=0) + part * (1 - n / m) * h.sum(axis=0)
    np.testing.assert_allclose(np.mean(found, axis=0), mean, atol=1e-12)
    noisy = (part + (1 - part) * m / n) * f - part * h
    spread = n * (1 - n / m) * noisy.var(axis=0, ddof=1).sum()
    assert np.var(found, axis=0).sum() == pytest.approx(spread, abs=1e-12)


@pytest.mark.parametrize(("lasting", "drift"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.5), (9.0, 0.1)])
def test_its_part_follows_the_stated_model(lasting, drift):
    """Sites that differ by S for good and by E = 1 in each round: 30 draws, 4 standard errors."""
    n, size, E, rng = 5, 4000, 1.0, np.random.default_rng(5)
    found = []
    for _ in range(30):
        s = np.sqrt(lasting) * rng.normal(size=(n, size))
        f, h = s + rng.normal(size=(n, size)), s - drift + rng.normal(size=(n, size))
        of = Comparison.of([(f, h)], np.ones(n, bool), np.ones(n))
        found.append(of.agreement / of.spread)
    of_mean = lasting + (lasting + E) / (n - 1)
    expected = of_mean / (of_mean + drift**2 + E)
    assert abs(np.mean(found) - expected) < 4 * np.std(found, ddof=1) / np.sqrt(len(found))
    if lasting == 0:
        assert expected <= 1 / n + 1e-12


def test_an_answer_alone_never_stands_for_all():
    """Nothing shows whether the sites are alike: the others count as they were heard last."""
    f, h = np.random.default_rng(6).normal(size=(2, N, PARAMS))
    alone = np.array([False, True, False, False])
    expected = estimate(f, h, alone, estimator=filled)
    np.testing.assert_allclose(estimate(f, h, alone), expected, rtol=1e-12)


def test_a_late_answer_counts_as_what_is_remembered():
    f, h = np.random.default_rng(7).normal(size=(2, N, PARAMS))
    on_time, late = np.array([True, True, False, False]), np.array([False, False, True, False])
    heard = np.array([True, True, False, True])
    arrivals = Arrivals(on_time, ~late, late, 2 * late, heard, W)
    found, after = estimators.estimate(blended, h, f, arrivals, P)
    remembered = np.where(late[:, None], f, h)
    expected = loops.blended(f, remembered, W, on_time, heard | late)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(after, np.where((on_time | late)[:, None], f, h))


def test_a_client_below_zero_makes_no_answer_count_without_end():
    """An owner-corrected code may leave shares that nearly cancel among those that answer."""
    shares = np.array([1.0, -0.999, 2.0, 3.0])
    f, h = np.random.default_rng(8).normal(size=(2, N, PARAMS))
    found = estimate(f, h, np.array([True, True, False, False]), shares=shares)
    assert np.abs(found).max() < 6 * np.abs(np.concatenate([f, h])).sum(axis=0).max()
