import math

import numpy as np
import pyarrow
import pytest

from fedcommons.simulate import times
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Figure, Line, Study
from fedcommons.simulate.timing import Timing

WAITING = Curve("iid", policy="all", estimator="responder_average")
FASTEST = Curve("iid", policy="fastest:3", work="sized", estimator="responder_average")
OURS = Curve("iid", policy="deadline", late="remember", estimator="memory")


def test_a_run_that_never_got_there_counts_as_infinity():
    found = times.of(np.array([3.0, math.inf, 1.0, 2.0]))
    assert (found.runs, found.reached) == (4, 3)
    assert (found.low, found.median, found.high) == (1, 2, math.inf)
    assert math.isnan(found.log_mean)
    assert math.isnan(found.log_sem)
    assert times.of(np.full(3, math.inf)).median == math.inf


def test_the_mean_is_of_logarithms_where_all_got_there():
    found = times.of(np.array([1.0, 10.0, 100.0]))
    assert found.log_mean == pytest.approx(10)
    assert found.log_sem == pytest.approx(math.log(10) / math.sqrt(3))
    assert math.isnan(times.of(np.array([2.0])).log_sem)


def test_ratios_are_run_by_run():
    never = math.inf
    found = times.ratios(np.array([6.0, 6.0, never, never]), np.array([2.0, never, 2.0, never]))
    assert found[:3].tolist() == [3, 0, never]
    assert math.isnan(found[3])


def test_the_best_simple_policy_is_the_one_that_most_runs_get_there_with():
    figure = Figure("f", "curves", "", tuple(Line(c.key, c) for c in (WAITING, FASTEST, OURS)))
    seconds = {WAITING: np.array([9.0, 9.0]), FASTEST: np.array([1.0, math.inf]),
               OURS: np.array([0.1, 0.1])}  # fmt: skip
    assert times.best_simple(figure, seconds) == WAITING
    assert times.best_simple(figure, {**seconds, FASTEST: np.array([8.0, 8.5])}) == FASTEST
    alone = Figure("f", "curves", "", (Line("ours", OURS),))
    assert times.best_simple(alone, seconds) is None


def test_simple_policies_need_nothing_of_this_project():
    assert times.is_simple(WAITING)
    assert times.is_simple(FASTEST)
    assert times.is_simple(Curve("iid", policy="fastest:2", work="mini:8", algorithm="fedavg"))
    for other in (
        OURS,
        Curve("iid", policy="deadline", deadline=2.0, estimator="responder_average"),
        Curve("iid", policy="all", estimator="latest", work="chunk"),
        Curve("iid", policy="all", proportion=0.5, copies=2),
        Curve("iid", policy="fastest:1", estimator="fedbuff", late="remember"),
    ):
        assert not times.is_simple(other)


def test_what_is_said_of_the_first_to_get_there():
    figure = Figure("f", "curves", "", tuple(Line(c.policy, c) for c in (WAITING, OURS)))
    clock = Timing(9.0, target=0.8)
    study = Study("s", (figure,), clock=clock)

    def said(waiting, ours):
        of = {WAITING: waiting, OURS: ours}
        rows = np.stack([of[curve] for curve in study.curves], axis=1).ravel()
        runs = pyarrow.table({times.SECONDS: np.array(rows, float)})
        (found,) = times.sentences(study, runs, lambda f: [line.label for line in f.lines])
        return found

    assert said([9, 8], [2, 3]) == (
        "deadline reaches 0.8 first, in 2 s in the median of 2 runs; the best simple policy, all, "
        "in 8 s in the median of 2 runs."
    )
    assert said([1, 2], [3, 4]).endswith("in 1 s in the median of 2 runs: it is a simple policy.")
    assert said([math.inf] * 2, [math.inf] * 2) == "no line reaches 0.8."
    assert said([math.inf] * 2, [math.inf, 5]).startswith("deadline reaches 0.8 first, in 5 s")
