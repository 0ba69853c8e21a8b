"""Sites answer from as many examples as fit into the time that they are given: `work = "fits"`."""

import numpy as np
import pytest

from fedcommons import coding
from fedcommons.errors import ArgumentError
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.site.chunk_memory import FOLDER
from fedcommons.federate.transport import fitted_answer
from fedcommons.stragglers import Bernoulli
from fedcommons.streams import stream
from fedcommons.tasks import softmax
from tests.federate.tiny import N_CLASSES, gradient, train, trained_model

P = np.array([0.2, 0.4, 0.1, 0.3])
ROUNDS, SEED, DEADLINE = 12, 4, 20.0
LINKS: dict[str, float] = {}  # what the server knows of ways there and back: nothing
PACE = {"a": 0.1, "b": 1.3, "c": 2.5, "d": 50.0}  # seconds for an example


@pytest.fixture
def timed(monkeypatch):
    """A training function by whose examples alone time passes, and how many it was given."""
    now, given = [0.0], []
    monkeypatch.setattr(fitted_answer, "clock", lambda: now[0])
    monkeypatch.setattr(Deadline, "link", lambda _self, site: LINKS.get(site))

    def train_with(site, message, context):
        n = len(site.examples(context)[1])
        now[0] += PACE[str(context.node_config["site"])] * n
        given.append((str(context.node_config["site"]), n))
        return gradient(site, message, context)

    return train_with, given


def cut(n, n_own, pace):
    """The fewest chunks, of 1, 2, 4, ..., that take 0.8 of half of the time."""
    number = 1
    while 2 * number <= n_own and -(-n // number) > DEADLINE * 0.5 / pace * 0.8:
        number *= 2
    return number


@pytest.mark.parametrize(
    ("estimator", "warm"),
    [
        ("latest", False),
        ("latest", True),
        ("memory", False),
        ("memory", True),
        ("coded_sum", False),  # which remembers nothing
    ],
)
def test_the_model_is_that_of_a_plain_loop_over_chunks(tiny, timed, estimator, warm):
    slow, given = timed
    model = Bernoulli(P)
    settings = {
        "estimator": estimator,
        "warm": warm,
        "work": "fits",
        "deadline": DEADLINE,
        "straggler_prob": tuple(P),
        "stragglers": model,
        "seed": SEED,
        "learning_rate": 0.3,
        "answer_bound": 0,
    }
    for rounds in (5, ROUNDS):  # restarted in between
        grid = tiny.grid(train=slow)
        with tiny.shared(grid) as federation:
            reached, _ = train(federation, grid, rounds, **settings)
            commit = federation.commit
        tiny.close()

    placement, x, y = tiny.placement(commit)
    task = softmax.SoftmaxRegression(x, y, x, y, N_CLASSES)
    shares = coding.equal_split(placement).toarray()
    there = model.answered(ROUNDS, 4, rng=stream(SEED, "stragglers", 0))
    names = [member.site for member in commit.members]
    held, own = [], []
    for i in range(4):  # its own first, then what came from each sender
        own.append(np.flatnonzero(placement.owner == i))
        others = [np.flatnonzero((placement.owner == s) & (shares[i] > 0)) for s in range(4)]
        held.append(np.concatenate([own[i], *(o for s, o in enumerate(others) if s != i)]))
    params = task.initial()
    r = [np.zeros((len(held[i]), len(params))) for i in range(4)]  # of each example
    number = [1 << int(np.log2(len(own[i]))) for i in range(4)]
    turn, scale = [0] * 4, estimator != "latest"

    def gradients(i):
        one = [task.answers(params, _row(shares[i, j], j, len(y)))[0] for j in held[i]]
        return np.array(one)

    if warm:
        for i in range(4):
            number[i] = cut(len(held[i]), len(own[i]), PACE[names[i]])
            r[i] = gradients(i)
    worked = []
    for t in range(ROUNDS):
        h = np.array([one.sum(axis=0) for one in r])
        v = np.zeros(len(params)) if estimator == "coded_sum" else h.sum(axis=0)
        for i in np.flatnonzero(there[t]):
            chunk = turn[i]
            if scale:
                chunk = int(stream(commit.seed, "batches", names[i], t + 1).integers(number[i]))
            part = np.arange(chunk, len(held[i]), number[i])
            now = gradients(i)[part]
            change = (now - r[i][part]).sum(axis=0)
            if estimator == "latest":
                v += change
            elif estimator == "memory":
                v += number[i] * change / (1 - P[i])
            else:
                v += (h[i] + number[i] * change) / (1 - P[i])
            r[i][part], turn[i] = now, (chunk + 1) % number[i]
            after = cut(len(held[i]), len(own[i]), PACE[names[i]])
            number[i], turn[i] = after, turn[i] % after
            worked.append((names[i], len(part)))
        params = params - 0.3 / len(y) * v
    np.testing.assert_allclose(reached.ravel(), params, rtol=1e-8, atol=1e-10)
    assert set(worked) <= set(given)
    assert number[names.index("a")] == 1
    assert number[names.index("d")] > 1


def _row(share, j, n):
    from scipy.sparse import csr_array

    return csr_array(([share], ([0], [j])), shape=(1, n))


def test_chunks_of_what_is_withdrawn_are_cleared_and_others_stay(tiny, timed, monkeypatch):
    slow, _ = timed
    for name in PACE:
        monkeypatch.setitem(PACE, name, 50.0)  # as many chunks as there can be

    def run(rounds):
        grid = tiny.grid(train=slow)
        with tiny.shared(grid, copies=1) as federation:
            train(federation, grid, rounds, work="fits", estimator="latest", deadline=DEADLINE)
            commit = federation.commit
        tiny.close()
        return commit

    def files(name):
        return {path.name for path in (tiny.folder / name / FOLDER).glob("*-*.bin")}

    commit = run(2)
    place = [member.site for member in commit.members].index("b")
    row = np.flatnonzero(tiny.data["b"].shareable)[0]
    holder = commit.members[int(commit.draw.recipients_of(place, np.array([0]))[0, 0])].site
    assert {len(files(name)) for name in tiny.names} == {2}
    tiny.withdraw("b", int(row))
    assert not files("b")
    commit = run(2)  # nothing to train: all are asked until nobody holds it any more
    assert commit.serial == 1
    assert {name: len(files(name)) for name in tiny.names} == {
        name: 1 if name in ("b", holder) else 4 for name in tiny.names
    }


def test_what_ways_take_is_not_left_for_work(tiny, timed, monkeypatch):
    """Four fifths of what they leave; where nothing is left, as little as there can be."""
    slow, given = timed
    for name, link in (("b", 0.0), ("c", 10.0), ("d", 25.0)):
        monkeypatch.setitem(PACE, name, 2.0)
        monkeypatch.setitem(LINKS, name, link)
    grid = tiny.grid(train=slow)
    with tiny.shared(grid, copies=0) as federation:
        train(federation, grid, 3, work="fits", estimator="latest", deadline=DEADLINE)
    last = dict(given)
    assert last["b"] == 6  # all of them in 16 s
    assert last["c"] in (2, 3)  # half of 5 in 8 s
    assert last["d"] in (1, 2)  # a quarter of 7 in no time


def test_what_work_that_fits_does_not_go_with_is_refused_by_name(tiny):
    for settings in (
        {"code": "owner-corrected", "estimator": "memory"},
        {"local_steps": 2},
        {"batch_size": 4},
        {"work": "chunks"},
    ):
        with pytest.raises(ArgumentError, match=r"work must be (full|one of)"):
            Settings.of(**{"work": "fits", **settings})
    assert Settings.of(work="full").name({}) == Settings.of().name({})
    assert Settings.of(work="fits").name({}) != Settings.of().name({})

    def several(site, message, context):
        for _ in site.batches(context, epochs=3):
            pass
        return trained_model(0.1)(site, message, context)

    grid = tiny.grid(train=several)
    with tiny.shared(grid) as federation, pytest.raises(Exception, match="SeveralStepsRefused"):
        train(federation, grid, 1, work="fits", estimator="latest")
