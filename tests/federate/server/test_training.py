"""Coded training: what counts, and that the estimate is unbiased."""

import numpy as np
import pyarrow.parquet
import pytest
from flwr.app import MetricRecord

from fedcommons import coding
from fedcommons.errors import FederationError
from fedcommons.reliability import Reliability
from fedcommons.tasks import softmax
from tests.federate.tiny import (
    BETA,
    Tampered,
    Tiny,
    answers_at,
    mean_estimate,
    outcomes,
    trace,
    train,
    trained_model,
)

pytestmark = pytest.mark.usefixtures("impatient")

CODES = list(coding.CODES)


ESTIMATORS = [("coded_sum", False), ("memory", False), ("memory", True)]


def test_every_code_and_estimator_trains(tiny):
    losses = []

    def loss(_round, arrays):
        beta, total = arrays["beta"].numpy(), 0.0
        for data in tiny.data.values():
            rows = np.arange(data.n_examples)
            scores = softmax.with_bias(data.x.take(rows)) @ beta
            chance = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            total -= np.log(chance[rows, data.y]).sum()
        losses.append(total)
        return MetricRecord({"loss": total})

    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        for code in CODES:
            for estimator, warm in ESTIMATORS:
                settings = {"code": code, "estimator": estimator, "warm": warm}
                losses.clear()
                model, notes = train(federation, grid, 4, evaluate_fn=loss, **settings)
                assert len(losses) == 5
                assert losses[-1] < losses[0]
                assert all(site["answered"] for note in notes for site in note["sites"])
                assert federation.commit.code == code
                assert np.isfinite(model).all()


@pytest.mark.parametrize("code", CODES)
def test_estimate_is_unbiased_over_all_straggler_patterns(tiny, code):
    grid = tiny.grid()
    rng = np.random.default_rng(3)
    beta = rng.normal(size=(5, 3))
    p = np.array([0.1, 0.5, 0.8, 0.3])
    with tiny.shared(grid) as federation:
        train(federation, grid, 1, code=code, straggler_prob=tuple(p))
        found, answered = answers_at(federation, grid, beta)
    assert answered.all()
    full = tiny.full_gradient({}, beta).ravel()
    np.testing.assert_allclose(mean_estimate(found, p), full, rtol=0, atol=1e-10)


def test_memory_is_unbiased_given_any_past(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        found, _ = answers_at(federation, grid, np.ones((5, 3)))
    p, h = np.array([0.1, 0.5, 0.8, 0.3]), np.random.default_rng(0).normal(size=found.shape)
    # The memory's weight is 1 - fresh: what is remembered cancels in the mean.
    mean = h.sum(axis=0) + mean_estimate(found - h, p)
    np.testing.assert_allclose(mean, found.sum(axis=0), rtol=0, atol=1e-10)


def test_zero_answers_leave_the_model_bit_for_bit(tiny):
    grid = tiny.grid()
    silent = trace("abcd", "", "", "abcd")
    with tiny.shared(grid) as federation:
        for settings in ({}, {"estimator": "memory", "warm": True}):
            options = {"stragglers": silent, "straggler_prob": 0.5, **settings}
            models = [train(federation, grid, n, **options)[0] for n in (1, 3, 4)]
            assert models[0].tobytes() == models[1].tobytes()
            assert models[1].tobytes() != models[2].tobytes()


def test_estimated_probabilities_come_from_past_rounds_alone(tiny):
    grid = tiny.grid()
    rounds = ["abcd", "abc", "ab", "a", "abcd"]
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 5, stragglers=trace(*rounds))
    known = Reliability.start(4)
    for note, answering in zip(notes, rounds, strict=True):
        used = [site["straggler_prob"] for site in note["sites"]]
        assert used == known.straggler_prob.tolist()
        known = known.observe(np.array([name in answering for name in "abcd"]))


def test_a_site_that_was_away_for_long_counts_as_before_when_it_is_back(tiny):
    """Else its return would be scaled up by all that it missed, at once."""
    grid = tiny.grid()
    rounds = ["abcd"] * 5 + ["abc"] * 30 + ["abcd"] * 3
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, len(rounds), stragglers=trace(*rounds))
    used = [note["sites"][3]["straggler_prob"] for note in notes]
    assert used[5] == used[34] == used[35] == 0.05 / 6
    assert max(used[6:]) < 0.3
    assert used[36:] == [0.05 / 7, 0.05 / 8]


def test_another_training_begins_with_what_is_known_of_the_sites(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 3, stragglers=trace("abc", "abc", "abc"))
        settings = {"estimator": "memory", "stragglers": trace("abc")}
        _, notes = train(federation, grid, 1, **settings)
    assert [site["straggler_prob"] for site in notes[0]["sites"]] == [
        0.0125,
        0.0125,
        0.0125,
        0.7625,
    ]


def test_rehearsed_absences_are_not_taken_for_real_ones(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 2)
        train(federation, grid, 3, stragglers=trace("abc", "abc", "abc"))
        _, notes = train(federation, grid, 1, estimator="memory")
    assert [site["straggler_prob"] for site in notes[0]["sites"]] == [0.05 / 3] * 4


def test_a_responder_average_is_over_the_sites_that_did_not_leave(tiny):
    tiny.run(1)
    grid = tiny.grid(without="d")
    with tiny.shared(grid, leave=["d"]) as federation:
        found, _ = answers_at(federation, grid, np.zeros((5, 3)))
        settings = {"estimator": "responder_average", "stragglers": trace("ab")}
        model, _ = train(federation, grid, 1, **settings)
        M = federation.commit.n_examples
    step = 0.5 / M * 3 * (found[0] + found[1]) / 2
    np.testing.assert_allclose(model.ravel(), -step, rtol=1e-12)


def test_a_known_probability_scales_the_answers(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        found, _ = answers_at(federation, grid, np.zeros((5, 3)))
        p = (0.5, 0.2, 0.0, 0.9)
        model, _ = train(federation, grid, 1, straggler_prob=p, stragglers=trace("abd"))
        M = federation.commit.n_examples
    step = 0.5 / M * (found[0] / 0.5 + found[1] / 0.8 + found[3] / 0.1)
    np.testing.assert_allclose(model.ravel(), -step, rtol=1e-12)


def test_the_model_follows_learning_rate_and_decay(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        options = {"straggler_prob": 0.0, "learning_rate": 0.3, "decay": 0.5}
        one, _ = train(federation, grid, 1, **options)
        two, _ = train(federation, grid, 2, **options)
        M = federation.commit.n_examples
    np.testing.assert_allclose(one, -0.3 / M * tiny.full_gradient({}, np.zeros((5, 3))), rtol=1e-12)
    np.testing.assert_allclose(two, one - 0.15 / M * tiny.full_gradient({}, one), rtol=1e-12)


def test_metrics_may_come_late_and_need_not_be_finite(tiny):
    def evaluate(_round, _arrays):
        return MetricRecord({"loss": float("nan"), "each": [1.0, 2.0]})

    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        train(federation, grid, 2, evaluate_fn=evaluate)
        train(federation, grid, 3)
    table = pyarrow.parquet.read_table(next(tiny.state_dir.glob("training-*/rounds.parquet")))
    assert table["each"].to_pylist() == [None, None, [1.0, 2.0], None]
    assert [x is not None for x in table["loss"].to_pylist()] == [False, False, True, False]


def test_a_site_without_examples_takes_part(tmp_path):
    tiny = Tiny(tmp_path, sizes=(0, 4, 5), copies=0)
    grid = tiny.grid(train=trained_model(1.0))
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 2)
    tiny.close()
    assert set(outcomes(notes[-1]).values()) == {"answered"}


def test_no_rounds_are_a_training_too(tiny):
    assert tiny.run(0).tobytes() == np.zeros((5, 3)).tobytes()


def test_rounds_that_nobody_answers_say_nothing_of_the_sites(tiny):
    grid = tiny.grid(Tampered)
    with tiny.shared(grid) as federation:
        train(federation, grid, 2)
        grid.tamper = lambda site, message, reply: None
        with pytest.raises(FederationError, match="nobody answered, 2 times"):
            train(federation, grid, 4, deadline=0.05)
        grid.tamper = lambda site, message, reply: reply
        _, notes = train(federation, grid, 5)
    assert {site["straggler_prob"] for site in notes[0]["sites"]} == {0.05 / 3}


def test_memory_that_nobody_warmed_is_warmed_by_the_next_run(tiny):
    grid = tiny.grid(Tampered)
    with tiny.shared(grid) as federation:
        grid.tamper = lambda site, message, reply: None
        with pytest.raises(FederationError, match="no answer counts with which memory"):
            train(federation, grid, 2, deadline=0.05, estimator="memory", warm=True)
        grid.tamper = lambda site, message, reply: reply
        warm, _ = train(federation, grid, 1, estimator="memory", warm=True, straggler_prob=0.5)
    M = federation.commit.n_examples
    full = tiny.full_gradient({}, np.zeros_like(BETA))
    np.testing.assert_allclose(warm, -0.5 / M * full, rtol=1e-12)
