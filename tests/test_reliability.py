import numpy as np
import pytest

from fedcommons.errors import ArgumentError
from fedcommons.reliability import Reliability, history


def test_estimate_is_the_posterior_mean_of_past_rounds():
    estimate = Reliability.start(2, prior_prob=0.25, prior_rounds=4)
    assert estimate.straggler_prob.tolist() == [0.25, 0.25]
    estimate = estimate.observe([True, False]).observe([True, False])
    assert estimate.straggler_prob.tolist() == [1 / 6, 3 / 6]


def test_the_estimate_for_a_round_does_not_see_that_round():
    before = Reliability.start(3)
    used = before.straggler_prob.copy()
    before.observe([False, False, True])
    assert np.array_equal(before.straggler_prob, used)


def test_the_cap_keeps_the_scale_bounded():
    estimate = Reliability.start(2, cap=0.75)
    for _ in range(5):
        estimate = estimate.observe([True, False])
    assert estimate.straggler_prob.tolist() == [0.05 / 6, 0.75]


def test_a_site_that_never_misses_counts_for_what_it_is():
    """The first steps are hardly longer than without any estimate: everybody was just there."""
    estimate, excess = Reliability.start(1), 0.0
    for _ in range(10):
        excess += 1 / (1 - estimate.straggler_prob[0]) - 1
        estimate = estimate.observe([True])
    assert 1 / (1 - Reliability.start(1).straggler_prob[0]) < 1.06
    assert excess < 0.16  # of a round, in ten


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.7])
def test_who_misses_many_rounds_soon_counts_for_it(p):
    """Never much more than in truth, and in round ten nearly 0.8 of it or more: 2,000 sites."""
    rng, estimate, factors = np.random.default_rng(1), Reliability.start(2000), []
    for mask in rng.random((10, 2000)) >= p:
        factors.append(((1 - p) / (1 - estimate.straggler_prob)).mean())
        estimate = estimate.observe(mask)
    assert max(factors) < 1.06
    assert factors[-1] > 0.78


def test_it_converges_to_the_truth():
    # n = 20,000 rounds: 4.5 standard errors; runs that are taken for outages leave it up to .015
    # low (the class says how much).
    p, n, rng = np.array([0.1, 0.5, 0.8, 0.9]), 20_000, np.random.default_rng(0)
    estimate = Reliability.start(4)
    for mask in rng.random((n, 4)) >= p:
        estimate = estimate.observe(mask)
    error = estimate.straggler_prob - p
    noise = 4.5 * np.sqrt(p * (1 - p) / n)
    assert (error < noise + 1e-4).all()
    assert (error > -noise - [0.0005, 0.003, 0.008, 0.015]).all()


def test_an_outage_is_no_straggling():
    """Who was reliable and is away for long counts as before, also when it is back."""
    estimate = Reliability.start(2)
    for _ in range(20):
        estimate = estimate.observe([True, True])
    before = estimate.straggler_prob[1]
    seen, away = [], []
    for _ in range(40):
        estimate = estimate.observe([True, False])
        seen.append(estimate.straggler_prob[1])
        away.append(estimate.away.tolist())
    # Two absences in a row have a chance of 1 in 8,800, but are no outage yet.
    assert seen[:2] == [1.05 / 22, 2.05 / 23]
    assert seen[2:] == [before] * 38
    assert away == [[False, False]] * 2 + [[False, True]] * 38
    back = estimate.observe([True, True])
    assert back.straggler_prob[1] == 0.05 / 22
    assert not back.away.any()


def test_a_site_that_becomes_unreliable_is_noticed_however_long_it_was_not():
    estimate = Reliability.start(1)
    for _ in range(5000):
        estimate = estimate.observe([True])
    for _ in range(5000):
        estimate = estimate.observe([False]).observe([True])
    assert 0.3 < estimate.straggler_prob[0] < 0.4


def test_an_absence_is_an_outage_only_if_enough_is_known():
    """Of a new site nothing is: its first absences may well be its nature."""
    estimate, away = Reliability.start(1), []
    for _ in range(40):
        estimate = estimate.observe([False])
        away.append(bool(estimate.away[0]))
    # prod (.05 + k) / (2 + k) over k = 0, 1, ... falls below 1/1000 with its eighth factor.
    assert away == [False] * 7 + [True] * 33
    known = Reliability([0], [5], [0])
    for n in range(1, 5):
        known = known.observe([False])
        assert known.away[0] == (n >= 3)


def test_a_short_absence_counts():
    estimate = Reliability.start(1)
    for answered in (True, False, False, True, False):
        estimate = estimate.observe([answered])
    assert estimate.straggler_prob[0] == 3.05 / 6
    assert (estimate.missed[0], estimate.rounds[0], estimate.run[0]) == (2, 4, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(prior_prob=1.0), r"prior_prob must be in \[0, 1\), got 1"),
        (dict(cap=1.0), r"cap must be in \[0, 1\), got 1"),
        (dict(prior_rounds=0), "prior_rounds must be"),
        (dict(prior_prob=float("nan")), "prior_prob must be"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Reliability.start(3, **arguments)


def test_counts_of_any_integer_type_and_lists_serve():
    counts = np.array([255], np.uint8)
    estimate = Reliability(counts, counts, np.array([1], np.uint8), cap=0.999)
    assert estimate.observe([True]).straggler_prob[0] == 256.05 / 258
    assert Reliability([1, 0], [2, 2], [0, 1]).straggler_prob.tolist() == [1.05 / 3, 1.05 / 4]


def test_bad_masks_are_named():
    with pytest.raises(ArgumentError, match="answered must have 2 entries, got 3"):
        Reliability.start(2).observe([True, True, True])
    with pytest.raises(ArgumentError, match="answered must be a boolean mask"):
        Reliability.start(2).observe([1, 0])
    with pytest.raises(
        ArgumentError, match=r"missed must not exceed rounds \(1 for client 0\), got 2"
    ):
        Reliability(np.array([2]), np.array([1]), np.array([0]))


def test_who_is_not_asked_is_neither_there_nor_missing():
    """Rounds of the asked alone, one client after another, say the same."""
    rng = np.random.default_rng(4)
    asked = rng.random((60, 3)) < 0.5
    answered = asked & (rng.random((60, 3)) < [0.9, 0.5, 0.1])
    together = Reliability.start(3)
    for t in range(60):
        together = together.observe(answered[t], asked[t])
    for i in range(3):
        alone = Reliability.start(1)
        for t in np.flatnonzero(asked[:, i]):
            alone = alone.observe(answered[t, i : i + 1])
        assert together.straggler_prob[i] == alone.straggler_prob[0]
    with pytest.raises(ArgumentError, match="that were asked, got client 1"):
        together.observe([False, True, False], [True, False, True])


def test_a_history_is_what_was_known_before_each_round():
    rng = np.random.default_rng(6)
    p = np.array([0.0, 0.3, 0.9, 0.99, 0.5])
    asked = rng.random((400, 5)) < 0.8
    asked[200:, 4] = False
    answered = asked & (rng.random((400, 5)) >= p)
    answered[100:140, 1] = False  # an outage
    found, now = history(answered, asked), Reliability.start(5)
    for t in range(400):
        assert found[t].tolist() == now.straggler_prob.tolist()
        now = now.observe(answered[t], asked[t])
