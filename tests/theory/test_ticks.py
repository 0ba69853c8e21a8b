"""Ticks take as long as forecast: the laws against their draws, the forecasts against the clock."""

import itertools

import numpy as np
import pytest

from fedcommons import delay_table
from fedcommons.delays import SERVICES, Absences, Law, Recorded, Units
from fedcommons.errors import ArgumentError
from fedcommons.policies import Policy
from fedcommons.schedule import Clock, run
from fedcommons.theory import ticks
from fedcommons.theory.durations import Presence, within

ALL = Policy("all")
KOLMOGOROV = 1.95  # / sqrt(n): what a sample's distribution function is off by with chance .001


def units(n_clients, seed=0):
    return Units(n_clients, lambda block: np.random.default_rng([seed, block]))


def law(n_clients=8, *, service="exponential", stall=0.0, tail=2.5, seed=0):
    rate = np.exp(np.random.default_rng(1).normal(size=n_clients))
    rest = (np.full(n_clients, v) for v in (0.6, stall, 0.2, 0.1))
    return Law(rate, *rest, units(n_clients, seed), service, tail)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_a_law_has_the_distribution_of_its_draws(service, stall):
    n = 40_000
    one = law(service=service, stall=stall)
    drawn = np.sort(one.seconds(np.full(n, 3), np.arange(n), np.full(n, 2.0)))
    some = np.arange(50, n, 200)
    found = within(one, np.full(8, 2.0), drawn[some])[:, 3]
    assert np.abs(found - (some + 0.5) / n).max() < KOLMOGOROV / np.sqrt(n)


@pytest.mark.parametrize("begun_away", [0.0, 1.0])
def test_jobs_wait_while_their_client_is_away(begun_away):
    one, presence = law(), Presence.of(0.4, 5.0, 8)
    rng, n = np.random.default_rng(0), 4000
    took = np.empty(n)
    for k in range(n):  # a new calendar each, looked at where the client is there, or away
        away = Absences(0.4, 5.0, 1, horizon=400, rng=rng.spawn(1)[0])
        begin = away.back(np.array([0]), 20.0)
        s = one.seconds(np.array([2]), np.array([k]), np.array([4.0]))
        # An absence that has just begun lasts as long as one from whose middle it is seen.
        took[k] = away.done(np.array([0]), begin, s)[0] - begin[0]
        took[k] += rng.exponential(5.0) if begun_away else 0.0
    took.sort()
    some = np.arange(10, n, 40)
    found = within(one, np.full(8, 4.0), took[some], presence=presence, begun_away=begun_away)
    # .01 for the quantiles that absences are averaged over.
    assert np.abs(found[:, 2] - (some + 0.5) / n).max() < KOLMOGOROV / np.sqrt(n) + 0.01


def seen(delays, work, policy, presence=None, n_ticks=4000):
    """Mean seconds of a tick in the schedule with its standard error (50 blocks), and who came."""
    forecast = ticks.forecast(delays, policy, work, presence=presence)
    horizon, absences = forecast.seconds * n_ticks, None
    if presence is not None:
        rng = np.random.default_rng(2)
        absences = Absences(presence.away, presence.seconds, len(work), horizon=horizon, rng=rng)
    clock = Clock(delays, policy, work, absences=absences)
    found = run(clock, lambda _: np.ones(len(work), np.bool_), seconds=horizon)
    took = np.diff(np.concatenate([[0.0], found.ends]))
    blocks = [block.mean() for block in np.array_split(took, 50)]
    return forecast, took.mean(), np.std(blocks) / np.sqrt(50), found


@pytest.mark.parametrize(
    "policy",
    [
        ALL,
        Policy("fastest", 5),
        Policy("deadline", deadline=2.0),
        Policy("deadline", deadline=12.0),
        Policy("deadline", deadline=1.0, late="remember"),
        Policy("deadline", deadline=3.0, late="remember"),
        Policy("deadline", deadline=12.0, late="remember"),
    ],
    ids=str,
)
@pytest.mark.parametrize("which", ["published", "stalls", "lognormal"])
def test_a_tick_takes_as_long_as_forecast(policy, which):
    delays = {
        "published": delay_table.published(8).law(5e6, units(8)),
        "stalls": law(stall=0.5),
        "lognormal": law(service="lognormal"),
    }[which]
    work = np.full(8, 5e6 if which == "published" else 2.0)
    forecast, seconds, error, found = seen(delays, work, policy)
    assert forecast.seconds == pytest.approx(seconds, rel=0.05)
    if policy.late == "discard":  # exact
        assert abs(forecast.seconds - seconds) < 4 * error + 1e-3 * seconds
    asked = found.asked.sum(axis=0)
    on_time = found.on_time.sum(axis=0) / asked
    spread = np.sqrt(np.maximum(forecast.on_time * (1 - forecast.on_time), 1e-4) / asked)
    assert (np.abs(on_time - forecast.on_time) < 5 * spread + 2e-3).all()
    np.testing.assert_allclose(found.asked.mean(axis=0), forecast.asked, atol=0.03)


@pytest.mark.parametrize(
    "policy",
    [
        ALL,
        Policy("deadline", deadline=12.0),
        Policy("deadline", deadline=12.0, late="remember"),
    ],
    ids=str,
)
def test_absences_are_forecast_from_the_long_run(policy):
    presence = Presence.of(0.3, 20.0, 8)
    forecast, seconds, error, _ = seen(
        law(service="lognormal"), np.full(8, 2.0), policy, presence, n_ticks=3000
    )
    assert error < 0.025 * seconds
    assert forecast.seconds == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize(("n", "deadline"), [(2, 0.5), (3, 0.5), (3, 1.0)])
def test_where_everybody_may_be_busy_a_tick_is_known_roughly(n, deadline):
    """Few clients, and most jobs longer than the deadline: to three tenths."""
    policy = Policy("deadline", deadline=deadline, late="remember")
    forecast, seconds, error, _ = seen(law(n), np.full(n, 2.0), policy)
    assert error < 0.01 * seconds
    assert forecast.seconds == pytest.approx(seconds, rel=0.3)


def test_a_recording_is_enumerated():
    took = (np.array([1.0, 5.0]), np.array([2.0]), np.array([0.5, 3.0, 4.0]))
    delays = Recorded(took, np.zeros(3, np.int64))
    outcomes = np.array(list(itertools.product(*took)))
    work = np.ones(3)
    for policy, value in (
        (ALL, outcomes.max(axis=1)),
        (Policy("fastest", 2), np.sort(outcomes, axis=1)[:, 1]),
        (Policy("deadline", deadline=3.5), np.minimum(outcomes.max(axis=1), 3.5)),
    ):
        found = ticks.forecast(delays, policy, work)
        assert found.seconds == pytest.approx(value.mean(), rel=0.005)  # a grid of 400 steps
    np.testing.assert_allclose(found.on_time, [1 / 2, 1, 2 / 3])


def test_what_cannot_be_forecast_is_said():
    with pytest.raises(ArgumentError, match="got one that adapts"):
        ticks.forecast(law(), Policy("deadline"), np.ones(8))
    with pytest.raises(ArgumentError, match="late answers are discarded"):
        ticks.forecast(law(), Policy("fastest", 2, late="remember"), np.ones(8))
    with pytest.raises(ArgumentError, match="away must be < 1"):
        Presence.of(1.0, 3.0, 8)
