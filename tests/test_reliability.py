import numpy as np
import pytest

from fedcommons.errors import ArgumentError
from fedcommons.reliability import Reliability


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


def test_the_cap_keeps_the_scale_bounded_and_names_who_reached_it():
    estimate = Reliability.start(2, cap=0.9)
    for _ in range(100):
        estimate = estimate.observe([True, False])
    assert estimate.straggler_prob[1] == 0.9
    assert estimate.at_cap.tolist() == [False, True]


def test_it_converges_to_the_truth():
    # n = 10,000 rounds: 4.5 standard errors, the prior's pull (2 rounds) below 1e-4.
    p, n, rng = np.array([0.1, 0.5, 0.8]), 10_000, np.random.default_rng(0)
    estimate = Reliability.start(3)
    for mask in rng.random((n, 3)) >= p:
        estimate = estimate.observe(mask)
    assert (np.abs(estimate.straggler_prob - p) < 4.5 * np.sqrt(p * (1 - p) / n) + 1e-4).all()


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
    estimate = Reliability(np.array([255], np.uint8), np.array([255], np.uint8), cap=0.99)
    assert estimate.observe([False]).straggler_prob[0] == pytest.approx(257 / 258, abs=1e-2)
    assert Reliability([1, 0], [2, 2]).straggler_prob.tolist() == [0.5, 0.25]


def test_bad_masks_are_named():
    with pytest.raises(ArgumentError, match="answered must have 2 entries, got 3"):
        Reliability.start(2).observe([True, True, True])
    with pytest.raises(ArgumentError, match="answered must be a boolean mask"):
        Reliability.start(2).observe([1, 0])
    with pytest.raises(
        ArgumentError, match=r"missed must not exceed rounds \(1 for client 0\), got 2"
    ):
        Reliability(np.array([2]), np.array([1]))
