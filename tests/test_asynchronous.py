"""What others do about late answers, against their own algorithms as plain loops."""

from dataclasses import fields

import numpy as np
import pytest

from fedcommons import delays, estimators, policies, schedule
from fedcommons.errors import ArgumentError
from fedcommons.estimators import Arrivals, Estimator
from fedcommons.federate.server.settings import Settings
from fedcommons.schedule import Ticks
from tests.reference import asynchronous

N, P, N_TICKS, ETA = 5, 3, 40, 0.05


def gradient(i: int, x: np.ndarray) -> np.ndarray:
    """Of clients that pull to different places, and not linear in x."""
    return (i + 1) * (x - np.array([i, -i, 1.0])) + 0.1 * np.sin(x)


def ticks(policy: policies.Policy, n_ticks: int = N_TICKS) -> Ticks:
    units = delays.Units(N, lambda block: np.random.default_rng([3, block]))
    rate = np.array([8.0, 4.0, 2.0, 1.0, 0.5])
    law = delays.Law(rate, *(np.full(N, value) for value in (0.5, 0.0, 0.1, 0.0)), units)
    clock = schedule.Clock(law, policy, np.ones(N))
    found = schedule.run(clock, lambda _t: np.ones(N, np.bool_), seconds=1e3)
    return Ticks(*(getattr(found, field.name)[:n_ticks] for field in fields(Ticks)))


def through_weights(
    estimator: Estimator, found: Ticks, x: np.ndarray, *, rate: float = 1.0, steps: int = 1,
    warm: bool = False, p: float = 0.0,
) -> list[np.ndarray]:  # fmt: skip
    """Models under the estimator's weights: f_i is the sum of a client's gradients on its examples.

    Every client holds one of the M = N examples.
    """
    models, memory = [x], np.zeros((N, P))
    if warm:
        memory = np.array([gradient(i, x) for i in range(N)])
    for t in range(len(found)):
        age = np.where(found.late[t], t - found.since[t], 0)
        now = Arrivals(found.on_time[t], found.asked[t], found.late[t], age)
        weights = estimator.weigh(now, np.full(N, p))
        estimate, back = np.zeros(P), np.zeros(P)
        for i in range(N):
            estimate += weights.remembered[i] * memory[i]
        for i, since in asynchronous.events_of(found)[t]:
            local, answer = models[since].copy(), np.zeros(P)
            for _ in range(steps):
                answer += gradient(i, local)
                local = models[since] - ETA * answer
            late = weights.late if weights.late is not None else np.zeros(N)
            estimate += (weights.fresh if since == t else late)[i] * answer
            memory[i] = answer
            if weights.back is not None:
                back += weights.back[i] * (models[t] - models[since])
        models.append(models[t] - rate * (ETA / N * estimate + back))
    return models


X = np.array([1.0, 2.0, -1.0])


@pytest.mark.parametrize("steps", [1, 3])
def test_fedbuff_is_its_authors(steps):
    found = ticks(policies.Policy("fastest", 2, late="remember"))
    assert (found.late & (np.arange(N_TICKS)[:, None] - found.since > 3)).any()
    theirs = asynchronous.fedbuff(
        gradient, X, asynchronous.events_of(found), eta=ETA, server=0.7, steps=steps
    )
    ours = through_weights(estimators.fedbuff, found, X, rate=0.7, steps=steps)
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
def test_fedasync_is_its_authors(steps):
    found = ticks(policies.Policy("fastest", 1, late="remember"))
    assert (found.late & (np.arange(N_TICKS)[:, None] - found.since > 3)).any()
    theirs = asynchronous.fedasync(
        gradient, X, asynchronous.events_of(found), eta=ETA, alpha=0.6, steps=steps
    )
    ours = through_weights(estimators.fedasync, found, X, rate=0.6, steps=steps)
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_k_fastest_is_a_policy_with_the_mean_of_those_who_answered():
    found = ticks(policies.parse("fastest:3"))
    theirs = asynchronous.k_fastest(gradient, X, asynchronous.events_of(found), eta=ETA)
    ours = through_weights(estimators.responder_average, found, X)
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_latest_with_a_warm_start_is_mifa_and_late_answers_count():
    found = ticks(policies.Policy("deadline", deadline=0.8, late="remember"))
    assert found.late.any()
    theirs = asynchronous.mifa(gradient, X, asynchronous.events_of(found), eta=ETA, n_clients=N)
    ours = through_weights(estimators.latest, found, X, warm=True)
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_memory_is_fedvarp_where_the_server_draws_as_many_each_round():
    """Its |S|/N is the probability of being drawn."""
    rng = np.random.default_rng(0)
    drawn = np.array([rng.permutation(N) < 2 for _ in range(N_TICKS)])
    found = Ticks.of_rounds(drawn)
    theirs = asynchronous.fedvarp(gradient, X, asynchronous.events_of(found), eta=ETA, n_clients=N)
    ours = through_weights(estimators.memory, found, X, p=1 - 2 / N)
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_a_late_answer_enters_memory_after_its_ticks_estimate():
    late = np.array([True, False])
    arrivals = Arrivals(~late, ~late, late, np.array([3, 0]))
    weights = estimators.memory.weigh(arrivals, np.full(2, 0.5))
    assert weights.late is None
    assert weights.remembered.tolist() == [1, -1]


@pytest.mark.parametrize("name", ["fedbuff", "fedasync"])
def test_where_nothing_is_late_they_are_the_mean_of_who_answered(name):
    arrivals = Arrivals.now_or_never(np.random.default_rng(0).random((20, N)) < 0.5)
    p = np.full(N, 0.3)
    found = estimators.ESTIMATORS[name].weigh(arrivals, p)
    assert np.allclose(found.fresh, estimators.responder_average.weigh(arrivals, p).fresh)
    assert not found.late.any()


def test_a_federation_refuses_what_needs_the_models_of_late_answers():
    with pytest.raises(ArgumentError, match="estimator must not need the models that late answers"):
        Settings.of(estimator="fedasync", learning_rate=0.1)
