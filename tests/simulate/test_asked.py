"""Studies in which a round asks some of the clients."""

import numpy as np
import pytest

from fedcommons import asking, coding, estimators, reliability
from fedcommons.errors import ArgumentError, StudyError
from fedcommons.estimators import ESTIMATORS, Arrivals
from fedcommons.simulate import asked, batched, draws, grids, timelines
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.few_rows import FewRows
from fedcommons.simulate.timing import Timing
from fedcommons.step_control import Secants, secant, sketch
from fedcommons.tasks import softmax

N, ROUNDS, SEED, RUN = 8, 9, 3, 2
SIZES = {"n_clients": N, "class_size": 16, "n_rounds": ROUNDS, "seed": SEED}
BASE = {"straggler_prob": 0.3, "proportion": 0.5, "copies": 2, "learning_rate": 0.3}
LINES = {
    "coded_sum": {"ask": 3.0},
    "memory": {"ask": 3.0, "estimator": "memory"},
    "latest_of_a_part": {"ask": 0.4, "ask_by": "independent", "estimator": "latest"},
    "by_norms": {"ask": 3.0, "ask_by": "norms", "estimator": "memory"},
    "by_norms_warm": {"ask": 3.0, "ask_by": "norms", "estimator": "memory", "warm": True},
    "by_norms_without_memory": {"ask": 2.0, "ask_by": "norms"},
    "controlled": {
        "ask": 3.0, "estimator": "latest", "step_control": True, "learning_rate": 30.0,
    },
    "filled": {"ask": 2.0, "estimator": "filled"},
    "filled_by_norms": {"ask": 2.0, "ask_by": "norms", "estimator": "filled"},
    "blended": {"ask": 3.0, "estimator": "blended"},
    "blended_by_norms": {"ask": 3.0, "ask_by": "norms", "estimator": "blended"},
    "average": {"ask": 5.0, "estimator": "responder_average"},
}  # fmt: skip


def curve(**line) -> Curve:
    return Curve("dirichlet", 0.3, **{**BASE, **line})


def plain_loop(dataset, line):
    """|g^|^2 of every round, and how many test examples the models get right."""
    data = draws.training_set(dataset, SIZES["class_size"], seed=SEED, run=RUN)
    (shared,) = draws.share_all([line], data, N, seed=SEED, run=RUN)
    task = softmax.SoftmaxRegression(
        data.inputs, data.labels, dataset.inputs("test"), dataset.y_test, 3
    )
    shares, estimator = coding.equal_split(shared.placement), ESTIMATORS[line.estimator]
    there = draws.answered(line, ROUNDS, N, seed=SEED, run=RUN)
    params, norms, p = task.initial(), np.full(N, np.nan), np.full(N, 0.3)
    first = task.answers(params, shares) if line.warm else None
    state = estimators.start(estimator, N, len(params), warm=first)
    moments, right, heard = [], [task.count_correct(params)], np.full(N, line.warm)
    W = np.asarray(shares.sum(axis=1)).ravel()
    secants, anchors = Secants.start(N), {}
    for t in range(ROUNDS):
        probs = line.ask_some.probs(np.ones(N, np.bool_), p, norms)
        ask = line.ask_some.chosen(probs, asked.units(N, t, seed=SEED, run=RUN))
        answers, here = task.answers(params, shares), ask & there[t]
        change = np.linalg.norm(answers - (0 if state is None else state), axis=1)
        norms = np.where(here, change, norms)
        missing = asking.missing_prob(probs, p)
        came = Arrivals(here, ask, np.zeros(N, np.bool_), None, heard, W)
        found, state = estimators.estimate(estimator, state, answers, came, missing)
        heard = heard | here
        rate = line.learning_rate * line.decay**t
        seen = np.full(N, np.nan)
        for i in np.flatnonzero(here):
            if i in anchors:
                seen[i] = secant(change[i], W[i], np.linalg.norm(sketch(params) - anchors[i]))
            anchors[i] = sketch(params)
        secants = secants.observe(seen)
        if line.step_control:
            rate = min(rate, secants.longest_step(W))
        params = params - rate / len(data.labels) * found
        moments.append(found @ found)
        right.append(task.count_correct(params))
    return np.array(moments), np.array(right)


@pytest.fixture(scope="module")
def trained(blobs):
    lines = [curve(**line) for line in LINES.values()]
    return batched.simulate_block(blobs, lines, **SIZES, runs=[RUN])[0]


@pytest.mark.parametrize("name", LINES)
def test_the_engine_is_the_plain_loop(blobs, trained, name):
    k = list(LINES).index(name)
    moments, right = plain_loop(blobs, curve(**LINES[name]))
    assert trained.second_moment[k] == pytest.approx(moments, rel=1e-3, abs=1e-6)
    assert np.abs(trained.correct[k] - right).max() <= 1


def test_asking_all_of_them_is_asking_all(blobs):
    lines = [curve(estimator="memory"), curve(estimator="memory", ask=float(N))]
    found = batched.simulate_block(blobs, lines, **SIZES, runs=[RUN])[0]
    assert found.second_moment[1] == pytest.approx(found.second_moment[0], rel=1e-5)


def test_rows_that_few_clients_need_are_those_of_a_whole_array():
    rng, few, whole = np.random.default_rng(0), FewRows(3, 20, 4), np.zeros((3, 20, 4), np.float32)
    for _ in range(12):
        flat = rng.choice(60, 5, replace=False)
        e, i = np.divmod(flat, 20)
        rows = rng.normal(size=(5, 4)).astype(np.float32)
        few[e, i] = few[e, i] + rows
        whole[e, i] += rows
        few[1, 7] += rows[0]
        whole[1, 7] += rows[0]
        v = rng.normal(size=(3, 20)).astype(np.float32)
        assert few.weighted(v) == pytest.approx(np.einsum("en,enp->ep", v, whole), abs=1e-5)
    assert few.n_written == np.count_nonzero(whole.any(axis=2)) < 60
    assert few[:2].weighted(v[:2]) == pytest.approx(few.weighted(v)[:2])
    few[0] = whole[1]
    everybody = np.arange(20)
    assert np.array_equal(few[np.zeros(20, np.int64), everybody], whole[1])


def test_room_is_for_those_that_are_asked():
    some, few = curve(estimator="memory", ask=3.0), curve(estimator="memory", ask=1.0)
    assert batched.remembered_bytes([some], 1, 1000, 10, 5) == 15 * 10 * 4
    assert batched.remembered_bytes([some, few], 2, 1000, 10, 5) == 2 * 20 * 10 * 4
    assert batched.remembered_bytes([some], 1, 8, 10, 5) == 8 * 10 * 4


def test_under_a_clock_the_free_ones_of_those_drawn_are_asked():
    more = {"policy": "deadline", "deadline": 0.6, "estimator": "memory", "late": "remember"}
    line = Curve("iid", **more, ask=3.0)
    timing = Timing(30.0, delays="exponential", rate=(40.0,) * N, link=0.2, multiply_adds=1.0)
    held, classes = np.full(N, 12), np.zeros(N, np.int64)
    found = timelines.of_clock(line, timing, held, classes, 1.0, seed=SEED, run=RUN)
    ticks = found.ticks
    assert len(ticks) > 20
    assert ticks.late.any()
    n_asked = ticks.asked.sum(axis=1)
    assert n_asked.max() == 3
    assert n_asked.min() < 3  # some owe an answer
    everybody = np.ones(N, np.bool_)
    for t in range(len(ticks)):
        drawn = asked.drawn(line.ask_some, everybody, t, seed=SEED, run=RUN)
        assert not (ticks.asked[t] & ~drawn).any()
    p = reliability.history(ticks.on_time, ticks.asked)
    assert found.probs == pytest.approx(1 - 3 / N * (1 - p))


def test_a_grid_draws_lines_that_cannot_ask_some_once():
    grid = {
        "partition": "iid",
        "p": 0.3,
        "estimator": ["memory", "wait_for_all"],
        "ask": ["all", 3, 0.5],
    }
    lines = grids.curves([grid], {})
    assert {(c.estimator, c.ask) for c in lines} == {
        ("memory", None),
        ("memory", 3.0),
        ("memory", 0.5),
        ("wait_for_all", None),
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"ask": 2.5}, "ask must be a whole number of clients, or a part of them below 1"),
        ({"ask": 0.0}, "ask must be a whole number"),
        ({"ask_by": "norms"}, "ask_by must go with ask"),
        ({"ask": 3.0, "ask_by": "luck"}, "ask_by must be one of uniform, independent, norms"),
        ({"ask": 3.0, "estimator": "wait_for_all"}, "ask must go with an algorithm whose server"),
        ({"ask": 3.0, "algorithm": "cyclic_repetition"}, "ask must go with an algorithm"),
        (
            {"ask": 3.0, "ask_by": "norms", "estimator": "responder_average"},
            "responder_average, which counts clients as often as they are asked",
        ),
        ({"ask": 3.0, "ask_by": "norms", "algorithm": "fedavg"}, "for fedavg, which counts"),
        ({"ask": 3.0, "ask_by": "norms", "policy": "all"}, 'ask_by must be "uniform" under a'),
    ],
)
def test_what_cannot_be_is_refused_by_name(line, message):
    with pytest.raises((ArgumentError, StudyError), match=message):
        Curve("iid", **{"straggler_prob": 0.0 if "policy" in line else 0.3, **line})
