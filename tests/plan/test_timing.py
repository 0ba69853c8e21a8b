"""What a plan says of time is what the clock of `schedule` gives."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedcommons import plan
from fedcommons.delays import Absences, Law, Units
from fedcommons.errors import ArgumentError, DataError
from fedcommons.estimators import latest
from fedcommons.plan import course, deadline, pilot, timing
from fedcommons.policies import Policy
from fedcommons.schedule import Clock, Ticks, run
from fedcommons.tasks import softmax
from fedcommons.theory.durations import Presence
from fedcommons.training import train

RATES = (40.0, 25.0, 12.0, 10.0, 6.0, 3.0)


def sites(**changes):
    arguments = dict(n_sites=6, n_classes=6, class_size=40, straggler_prob=0.1, shareable=0.5)
    return plan.sites_of("single-class", **{**arguments, **changes})


def made_timing(away=0.0):
    units = Units(6, lambda block: np.random.default_rng([7, block]))
    rest = (np.full(6, v) for v in (0.5, 0.0, 0.4, 0.1))
    own = np.full(6, 40.0)
    presence = Presence.of(away, 60.0, 6)
    return timing.Timing(Law(np.array(RATES), *rest, units), own, 3.5 * own, presence, "made up")


def question(away=0.0, **changes):
    who = sites(**changes)
    geometry = plan.assumed_geometry(6)
    return plan.Question(who, geometry, plan.Prices(), plan.assumed_course(50), made_timing(away))


@pytest.mark.parametrize("away", [0.0, 0.2])
@pytest.mark.parametrize("part", [0.0, 0.6])
def test_a_round_takes_as_long_as_planned(part, away):
    asked = question(away, straggler_prob=0.0)
    share = plan.shared(asked, part, 3 if part else 0)
    load = np.full(6, 40 + 3 * part * 20)
    for T in (12.0, 30.0, 60.0):
        found = plan.at_deadline(asked, share, T) if T > 14 else None
        if found is None:
            continue
        horizon = 3000 * found.seconds
        rng = np.random.default_rng(3)
        absences = Absences(away, 60.0, 6, horizon=horizon, rng=rng) if away else None
        clock = Clock(asked.timing.delays, Policy("deadline", deadline=T), load, absences=absences)
        ticks = run(clock, lambda _: np.ones(6, np.bool_), seconds=horizon)
        took = ticks.ends - ticks.begins
        error = np.std([b.mean() for b in np.array_split(took, 30)]) / np.sqrt(30)
        # Standard errors: below 1 % without absences, 2.5 % with.
        assert error < (0.025 if away else 0.01) * took.mean()
        assert found.seconds == pytest.approx(took.mean(), rel=0.05)
        missing = 1 - ticks.on_time.mean(axis=0)
        np.testing.assert_allclose(found.straggler_prob, missing, atol=0.08 if away else 0.035)


def test_interpolation_between_loads_is_within_a_percent():
    for away, most in ((0.0, 0.01), (0.2, 0.08)):  # who is asked is an approximation, too
        error = timing.interpolation_error(made_timing(away), np.array([20.0, 40.0, 60.0]))
        assert error < most


def test_the_deadline_is_the_longest_near_the_fewest_hours():
    asked = question()
    for part, d in ((0.0, 0), (1.0, 2)):
        share = plan.shared(asked, part, d)
        best = plan.at_deadline(asked, share, None)
        grid = deadline.tried(asked, asked.own + share.received, 300)
        hours = [plan.outcome(asked, share, T).hours for T in grid]
        assert best.hours <= 1.051 * min(hours)
        later = [h for T, h in zip(grid, hours, strict=True) if 1.03 * best.deadline < T]
        assert min(later) > 1.045 * min(hours)


def test_remembered_late_answers_allow_for_a_shorter_deadline():
    asked = question(straggler_prob=0.0)
    share = plan.shared(asked, 0.5, 2)
    seconds, arrives = plan.if_remembered(asked, share)
    jobs = asked.timing.job_quantiles(asked.own + share.received)
    grid = np.linspace(1, 100, 2000)
    # Every site's answer stands for as many examples: what it shares it also receives.
    F = timing.on_time(jobs, grid).mean(axis=1)
    best = grid[np.argmin(grid / np.maximum(F, 1e-9))]
    assert seconds == pytest.approx(best, rel=0.03)
    assert arrives == pytest.approx(np.interp(seconds, grid, F), abs=0.01)
    assert seconds < plan.at_deadline(asked, share, None).deadline


def test_an_outcome_agrees_with_its_option():
    asked = question()
    geometry = plan.assumed_geometry(6)
    plain = plan.Question(asked.sites, geometry, asked.prices, asked.course)
    options = plan.options(asked.sites, geometry, copies=(0, 2), proportions=(0.3, 1.0))
    for option in options:
        found = plan.outcome(plain, plan.shared(plain, option.part, option.copies))
        for name in ("variance", "heterogeneity", "moved", "extra_compute", "cost"):
            assert getattr(found, name) == pytest.approx(getattr(option, name))
    np.testing.assert_allclose(found.sent.sum(), found.received.sum())
    assert found.rounds == pytest.approx(50 * (1 + found.noise))
    assert found.hours is None


def test_a_site_that_is_never_on_time_is_named():
    asked = question()
    share = plan.shared(asked, 0.0, 0)
    with pytest.raises(ArgumentError, match=r"got 5 s: 'site 6' takes 1\d.\d s at least"):
        plan.at_deadline(asked, share, 5.0)
    heavy = plan.shared(asked, 1.0, 5)
    found = plan.at_deadline(asked, heavy, 15.0)
    assert np.isinf(found.hours)
    with pytest.raises(ArgumentError, match="deadline must be given with delays"):
        plan.at_deadline(plan.Question(asked.sites, asked.geometry, asked.prices, asked.course),
                         share, 5.0)  # fmt: skip


def test_delays_are_found_by_name_and_need_their_units(tmp_path):
    path = tmp_path / "delays.csv"
    path.write_text("site,multiply-adds,spread\nb,100,0\na,400,0\n")
    who = plan.Sites([[10, 0], [0, 20]], 0.1, 0.5, ("a", "b"))
    found = plan.read_timing(str(path), who, copies=1, multiply_adds=4.0)
    np.testing.assert_allclose(found.mean(found.own), [0.1, 0.8])
    np.testing.assert_allclose(found.most, [10 + 10, 20 + 5])
    np.testing.assert_allclose(found.mean(np.array([15.0, 25.0])), [0.15, 1.0])
    with pytest.raises(ArgumentError, match="multiply-adds must be given"):
        plan.read_timing(str(path), who, copies=1)
    with pytest.raises(DataError, match="must be of the 6 sites, got 2"):
        plan.read_timing(str(path), sites(), copies=1, multiply_adds=1.0)
    others = plan.Sites([[10, 0], [0, 20]], 0.1, 0.5, ("a", "c"))
    with pytest.raises(DataError, match="must have every site, got none for 'c'"):
        plan.read_timing(str(path), others, copies=1, multiply_adds=1.0)
    path.write_text("multiply-adds,spread\n100,0\n400,0\n")
    found = plan.read_timing(str(path), others, copies=1, multiply_adds=4.0)
    np.testing.assert_allclose(found.mean(found.own), [0.4, 0.2])


def test_recorded_times_grow_with_the_load():
    took = (np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    found = timing.of_recording(took, np.array([10.0, 20.0]), np.array([20.0, 30.0]), "recorded")
    np.testing.assert_allclose(found.mean(np.array([15.0, 20.0])), [3.0, 2.0])


def test_a_target_is_reached_when_it_stays_so():
    curve = np.array([0.1, 0.6, 0.3, 0.4, 0.8, 0.7, 0.9, 0.2, 0.6, 0.7])
    assert pilot.crossing(curve, 0.5) == pytest.approx(3.25)  # a quarter of the way to round 4
    assert pilot.crossing(curve, 0.5, lasting=1) == pytest.approx(0.8)
    assert pilot.crossing(curve[5:], 0.5) == pytest.approx(2.75)  # two points at the very end
    assert pilot.crossing(curve, 0.05) == 0
    assert pilot.crossing(curve, 0.95) == np.inf


def test_a_measured_course_never_falls_and_says_its_error():
    found = course.measured([0.1, 0.2, 0.4, 1.0], [10, 8, 20, 30], "seen")
    assert found.at(0.15) == found.at(0.0) == 9
    assert found.at(0.4) == pytest.approx(20)
    assert found.at(1.6) == pytest.approx(30 * 1.6)  # more than the last piece says
    # Between its neighbours 8 would be 10 + (20 - 10) / 3, and 20 would be 8 + (30 - 8) / 4.
    apart = [(10 + 10 / 3) / 8 - 1, (8 + 22 / 4) / 20 - 1]
    assert found.error == pytest.approx(np.sqrt(np.mean(np.square(apart))))
    assert not found.is_assumed
    assert course.assumed(9).is_assumed
    with pytest.raises(ArgumentError, match="two trainings"):
        course.measured([0.1], [10], "seen")


def test_hours_decide_where_times_are_known():
    asked = question()
    options = plan.options(asked.sites, asked.geometry, copies=(0, 1), proportions=(1.0,))
    taken = plan.recommend_by_hours(dict(zip(options, (10.0, 9.8), strict=True)), plan.Targets())
    assert taken.option == options[0]
    taken = plan.recommend_by_hours(dict(zip(options, (10.0, 5.0), strict=True)), plan.Targets())
    assert taken.option == options[1]
    never = dict.fromkeys(options, np.inf)
    assert plan.recommend_by_hours(never, plan.Targets()).option is None


def test_training_on_ticks_takes_a_late_answer_at_the_model_of_its_question(blobs):
    """Client 0 is asked in tick 0 and late in tick 2: written out tick by tick."""
    some, y = blobs.inputs("train", np.arange(9)), blobs.y_train[:9]
    task = softmax.SoftmaxRegression(some, y, blobs.inputs("test"), blobs.y_test, 3)
    shares = csr_array(np.repeat(np.eye(3), 3, axis=1))
    asked = np.array([[1, 1, 1], [0, 1, 1], [0, 1, 1], [1, 1, 1]], bool)
    on_time = asked & np.array([[0, 1, 1], [0, 1, 0], [0, 1, 1], [1, 1, 1]], bool)
    late = np.zeros((4, 3), bool)
    late[2, 0] = True
    since = np.where(late, 0, -1)
    ends = np.arange(1.0, 5.0)
    ticks = Ticks(asked, on_time, late, since, np.zeros_like(late), ends - 1, ends)
    found = list(train(task, shares, ticks, 0.0, estimator=latest, learning_rate=0.5))
    params, h, models = task.initial(), np.zeros((3, found[0].params.size)), []
    for t in range(4):
        models.append(params)
        now = task.answers(params, shares)
        h[on_time[t]] = now[on_time[t]]
        if late[t, 0]:
            h[0] = task.answers(models[0], shares)[0]
        params = params - 0.5 / 9 * h.sum(axis=0)
        np.testing.assert_allclose(found[t].params, params, rtol=1e-12)


def test_a_pilot_on_late_answers_says_when_the_accuracy_is_reached(blobs):
    """Where nobody is ever late that is when gradient descent reaches it."""
    who = plan.sites_of("single-class", n_sites=3, n_classes=3, class_size=10, straggler_prob=0.0)
    took = (np.array([2.0]), np.array([1.0]), np.array([1.5]))
    own = np.full(3, 10.0)
    times = timing.of_recording(took, own, 2 * own, "recorded")
    asked = plan.Question(
        who, plan.pilot_geometry(blobs), plan.Prices(), plan.assumed_course(5), times
    )

    def seconds(deadline, accuracy, **more):
        given = {"seconds": 60.0, "runs": 2, "rates": (0.5,), **more}
        return plan.seconds_if_remembered(asked, 1.0, 0, deadline, blobs, accuracy, **given)

    patient = seconds(5.0, 0.8)
    assert patient == seconds(2.0, 0.8)  # ticks of 2 s, when all have answered
    assert 0 < patient < 60
    curves = []
    for number in range(2):
        one = pilot.trial(who, 1.0, 0, np.zeros(3), blobs, "equal-split", 0, number)
        everybody = np.ones((30, 3), bool)
        rounds = train(one.task, one.shares, everybody, 0.0, estimator=latest, learning_rate=0.5)
        curves.append([one.accuracy(one.task.initial()), *(one.accuracy(r.params) for r in rounds)])
    ticks = np.argmax(np.mean(curves, axis=0) >= 0.8)
    assert patient == pytest.approx(2.0 * ticks, abs=0.3)  # a time is known to 60 s / 200
    assert seconds(5.0, 1.0, seconds=3.0) == np.inf
    assert seconds(1.2, 0.8) < 60  # the first is late in every other tick
