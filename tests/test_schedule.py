from itertools import pairwise

import numpy as np
import pytest

from fedcommons import policies, schedule
from fedcommons.delays import Absences, Law, Recorded, Units, where_away
from fedcommons.errors import ArgumentError
from fedcommons.policies import Policy
from fedcommons.schedule import Clock, Ticks
from tests.reference import clock as plain

N = 5
POLICIES = {
    "all": Policy(),
    "fastest": Policy("fastest", 2),
    "fastest_late": Policy("fastest", 3, late="remember"),
    "deadline": Policy("deadline", deadline=1.1),
    "deadline_late": Policy("deadline", deadline=1.1, late="remember"),
    "adaptive": Policy("deadline"),
    "adaptive_late": Policy("deadline", late="remember"),
}
WEIGHT = np.array([1.0, 2.0, 1.0, 3.0, 1.0])


def law(seed: int = 0, **changes) -> Law:
    zero = np.zeros(N)
    units = Units(N, lambda block: np.random.default_rng([seed, block]))
    parts = {"spread": zero + 0.5, "stall": zero, "link": zero + 0.2, "failure": zero + 0.1}
    return Law(np.array([4.0, 2.0, 1.0, 0.5, 0.3]), **{**parts, **changes}, units=units)


def absences(seed: int, share: float = 0.4) -> Absences:
    rng = np.random.default_rng(seed)
    return Absences(share, np.array([3.0, 1.0, 5.0, 2.0, 0.4]), N, horizon=60, rng=rng)


def intervals(of: Absences) -> list[list[tuple[float, float]]]:
    cut = of._first
    both = list(zip(of._away.tolist(), of._again.tolist(), strict=True))
    return [both[a:b] for a, b in pairwise(cut)]


@pytest.mark.parametrize("away", [False, True], ids=["there", "away"])
@pytest.mark.parametrize("name", POLICIES)
def test_ticks_are_those_of_a_plain_event_loop(name, away):
    policy = POLICIES[name]
    for seed in range(3):
        gone, delays = absences(seed) if away else None, law(seed)
        clock = Clock(delays, policy, np.ones(N), absences=gone, weight=WEIGHT)
        found = [clock.tick(np.ones(N, bool)) for _ in range(60)]
        again = law(seed)  # numbers do not depend on who asks first

        def took(i, job, again=again):
            return float(again.seconds(np.array([i]), np.array([job]), np.ones(1))[0])

        wanted = plain.ticks(
            *(took, intervals(gone) if gone else [[] for _ in range(N)]),
            wait=policy.wait, late=policy.late, fastest=policy.fastest,
            deadline=policy.deadline, weight=WEIGHT, n_ticks=60,
        )  # fmt: skip
        for one, other in zip(found, wanted, strict=True):
            for what in ("asked", "on_time", "away"):
                assert set(np.flatnonzero(getattr(one, what)).tolist()) == other[what]
            late = np.flatnonzero(one.late).tolist()
            assert {i: int(one.since[i]) for i in late} == other["late"]
            assert (one.since[~one.late] == -1).all()
            assert [one.begin, one.end] == pytest.approx([other["begin"], other["end"]])


@pytest.mark.parametrize("name", POLICIES)
def test_a_client_has_one_job_at_a_time(name):
    clock = Clock(law(), POLICIES[name], np.ones(N), absences=absences(1), weight=WEIGHT)
    ticks = schedule.run(clock, lambda _t: np.ones(N, bool), seconds=50)
    assert (ticks.ends <= 50).all()
    assert (ticks.begins[1:] >= ticks.ends[:-1]).all()
    owed = np.zeros(N, bool)
    for t in range(len(ticks)):
        assert not (ticks.asked[t] & owed).any()
        assert (ticks.on_time[t] <= ticks.asked[t]).all()
        assert (ticks.late[t] <= owed).all()
        asked_then = ticks.since[t][ticks.late[t]]
        assert ticks.asked[asked_then, np.flatnonzero(ticks.late[t])].all()
        owed = (owed & ~ticks.late[t]) | (ticks.asked[t] & ~ticks.on_time[t])
        if POLICIES[name].late == "discard":
            owed[:] = False
    arrives = np.zeros_like(ticks.asked)
    for t, i in np.argwhere(ticks.late):
        arrives[ticks.since[t, i], i] = True
    assert np.array_equal(ticks.kept, arrives)
    assert ticks.arrivals.age is None or (ticks.arrivals.age[ticks.late] > 0).all()


def test_rounds_are_a_schedule_in_which_nothing_is_late():
    answered = np.random.default_rng(0).random((7, 3)) < 0.5
    ticks = Ticks.of_rounds(answered)
    assert np.array_equal(ticks.on_time, answered)
    assert ticks.asked.all()
    assert not ticks.late.any()
    assert ticks.arrivals.age is None
    assert ticks.begins.tolist() == list(range(7))
    assert (ticks.jobs == np.arange(7)[:, None]).all()
    asked = np.random.default_rng(1).random((7, 3)) < 0.5
    assert np.array_equal(Ticks.of_rounds(answered, asked).on_time, answered & asked)


def test_lines_that_are_compared_share_durations_by_job_and_absences_by_time():
    """Whatever the policy, a client's k-th job takes as long, and it is away at the same times."""
    took, gone = {}, {}
    for policy in POLICIES.values():
        clock = Clock(law(), policy, np.ones(N), absences=absences(2), weight=WEIGHT)
        for _ in range(20):
            clock.tick(np.ones(N, bool))
        every = np.repeat(np.arange(N), 9), np.tile(np.arange(9), N)
        took[policy] = clock.delays.seconds(*every, np.ones(9 * N)).tolist()
        gone[policy] = [where_away(clock.absences, N, t).tolist() for t in np.linspace(0, 60, 50)]
    assert len({str(one) for one in took.values()}) == 1
    assert len({str(one) for one in gone.values()}) == 1


def test_a_warm_start_takes_the_time_of_the_slowest_full_batch():
    clock = Clock(law(), Policy(), np.ones(N))
    longest = law().seconds(np.arange(N), np.zeros(N, int), np.full(N, 30.0)).max()
    clock.everybody(np.full(N, 30.0))
    assert clock.now == longest
    assert clock.tick(np.ones(N, bool)).begin == longest


def test_while_nobody_is_there_time_passes():
    gone = absences(3, share=0.97)
    clock = Clock(law(), Policy("deadline", deadline=0.5), np.ones(N), absences=gone)
    ticks = schedule.run(clock, lambda _t: np.ones(N, bool), seconds=40)
    assert ticks.asked.any(axis=1).all()  # a tick always asks somebody


def test_a_recording_is_played_job_after_job():
    delays = Recorded((np.array([1.0, 2.0]), np.array([5.0])), np.array([1, 0]))
    clock = Clock(delays, Policy("fastest", 1), np.ones(2))
    ends = [clock.tick(np.ones(2, bool)).end for _ in range(4)]
    assert ends == [2, 3, 5, 6]


def test_what_cannot_go_on_is_refused():
    with pytest.raises(ArgumentError, match="every job take time, got none of client 1"):
        Clock(Recorded((np.ones(1), np.zeros(1)), np.zeros(2, int)), Policy(), np.ones(2))
    clock = Clock(law(), Policy(), np.ones(N))
    with pytest.raises(ArgumentError, match="wanted must name a client"):
        clock.tick(np.zeros(N, bool))


def test_words_name_policies():
    assert policies.parse("fastest:10") == Policy("fastest", 10)
    assert policies.parse("deadline", 2.5, "remember") == Policy("deadline", 0, 2.5, "remember")
    assert policies.parse("deadline").adaptive
    for wait, deadline, late in (("some", None, "discard"), ("fastest:0", None, "discard"),
                                 ("all", 2.0, "discard"), ("deadline", 0.0, "discard"),
                                 ("all", None, "keep")):  # fmt: skip
        with pytest.raises(ArgumentError):
            policies.parse(wait, deadline, late)
