"""Holders of absent owners' examples correct what is remembered of these: `correct = true`."""

import signal

import numpy as np
import pytest
from flwr.app import ConfigRecord

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.server.open_question import OWES
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.site.chunk_memory import FOLDER
from fedcommons.stragglers import Bernoulli
from fedcommons.tasks import softmax
from tests.federate.tiny import N_CLASSES, ByTick, Tampered, die_at, in_child, train, train_by_tick
from tests.federate.transport.test_fitted_answers import DEADLINE, PACE, timed  # noqa: F401
from tests.reference.corrected_federation import Site

pytestmark = pytest.mark.usefixtures("impatient")

P = np.array([0.2, 0.6, 0.5, 0.4])
ROUNDS, RATE = 14, 0.3


def settings(**others):
    return {
        "estimator": "latest",
        "work": "fits",
        "correct": True,
        "deadline": DEADLINE,
        "stragglers": Bernoulli(P),
        "seed": 4,
        "learning_rate": RATE,
        "answer_bound": 0,
        **others,
    }


def plain_loop(tiny, commit, notes, deadline=DEADLINE, *, warm=False):
    """The parameters by the rounds' records, and how large the corrections were."""
    placement, x, y = tiny.placement(commit)
    task = softmax.SoftmaxRegression(x, y, x, y, N_CLASSES)
    inputs = softmax.with_bias(x)

    def one(j, params):
        beta = params.reshape(inputs.shape[1], -1)
        some = slice(j, j + 1)
        return softmax.weighted_gradient(beta, inputs[some], y[some], np.ones(1)).ravel()

    params, sites, everybody = task.initial(), [], range(len(commit.members))
    for i, member in enumerate(commit.members):
        held = placement.held_by(i)
        mine = {s: held[placement.owner[held] == s].tolist() for s in everybody}
        own, pace = mine.pop(i), PACE[member.site]
        sites.append(Site(own, mine, pace, deadline, len(params), one))
    h, anchors, owed = [np.zeros(len(params)) for _ in everybody], {}, {}
    if warm:
        for i, site in enumerate(sites):
            site.models[params.tobytes()] = params
            site.cut(0)
            site.work_on(0, params)
            site.cut(0)
            for k in range(site.number):
                site.work_on(k, params)
            h[i], anchors[i] = sum(site.r), {params.tobytes(): len(site.own)}
    sizes = []
    for note in notes:
        of = dict(enumerate(note["sites"]))
        late = {i for i in of if of[i]["late_counts"]}
        out = ("not asked", OWES)
        asked = [i for i in of if of[i]["outcome"] not in out and not (i in late and i in owed)]
        absent = {i: anchors[i] for i in everybody if i in anchors and i not in asked}
        counts = {i: sum(len(sites[k].received.get(i, ())) for k in asked) for i in absent}
        total, fresh = np.zeros(len(params)), {}
        for k in asked:
            answer = *_, drift = sites[k].answer(params, absent, counts, note["round"])
            if of[k]["answered"]:
                h[k], anchors[k] = answer[:2]
                total += drift
            else:
                fresh[k] = answer[:2]
        came = {i: owed.pop(i) for i in late}
        owed |= fresh
        for i in set(came) - set(absent):  # nobody stood for it
            h[i], anchors[i] = came.pop(i)
        if any(of[i]["answered"] for i in of) or OWES in [one["outcome"] for one in of.values()]:
            params = params - RATE / len(y) * (sum(h) + total)
            sizes.append(np.linalg.norm(total) / (1e-9 + np.linalg.norm(sum(h))))
        for i, one_of_them in came.items():
            h[i], anchors[i] = one_of_them
    return params, np.array(sizes)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_the_model_is_that_of_a_plain_loop(tiny, timed, warm):  # noqa: F811
    slow, _ = timed
    notes = []
    for rounds in (6, ROUNDS):  # restarted in between
        grid = tiny.grid(train=slow)
        with tiny.shared(grid) as federation:
            reached, some = train(federation, grid, rounds, **settings(warm=warm))
            commit = federation.commit
        notes += some
        tiny.close()
    params, sizes = plain_loop(tiny, commit, notes, warm=warm)
    assert (sizes > 0.01).sum() > 5
    np.testing.assert_allclose(reached.ravel(), params, rtol=1e-12, atol=1e-12)


def test_whose_part_holders_corrected_counts_once_when_it_comes_late(tiny, timed):  # noqa: F811
    slow, _ = timed
    grid = tiny.grid(ByTick, train=slow)
    grid.due = lambda site, tick: tick + {"b": 3, "d": 2}.get(site, 0)
    with tiny.shared(grid) as federation:
        about = settings(stragglers=None, deadline=1e-6)
        models, notes = train_by_tick(federation, grid, 15, **about)
        params, sizes = plain_loop(tiny, federation.commit, notes, 1e-6)
    assert sum(one["late_counts"] for note in notes for one in note["sites"]) >= 7
    assert (sizes > 0.01).sum() > 5
    np.testing.assert_allclose(models[-1].ravel(), params, rtol=1e-12, atol=1e-12)


def test_whoever_dies_the_model_is_the_same(tiny, timed, monkeypatch):  # noqa: F811
    """With one chunk each, what a round computes does not depend on how often it was begun."""
    slow, _ = timed
    for name in PACE:
        monkeypatch.setitem(PACE, name, 1e-6)
    at_sites = ("store.model", "store.stand-in", "store.chunk", "store.chunks")
    points = [(f"{name}:{side}", 5 if "chunk" in name else 3) for name in at_sites
              for side in ("before", "after")]  # fmt: skip
    points += [("server.checkpoint:before", 3), ("server.checkpoint:after", 3)]

    def run():
        grid = tiny.grid(train=slow)
        with tiny.shared(grid) as federation:
            reached, _ = train(federation, grid, ROUNDS, **settings(warm=True))
            return reached, federation.commit, federation.state.newest_checkpoint().history

    killed = []
    for point, times in points:

        def main(point=point, times=times):
            durable.reached = die_at(point, times)
            run()

        killed.append(in_child(main))
        tiny.close()
    reached, commit, history = run()
    assert killed.count(-signal.SIGKILL) >= len(points) - 2
    notes = [note.to_json() for note in history[1:]]
    params, sizes = plain_loop(tiny, commit, notes, warm=True)
    assert (sizes > 0.01).sum() > 5
    np.testing.assert_allclose(reached.ravel(), params, rtol=1e-12, atol=1e-12)


def test_a_withdrawal_clears_what_holders_computed_and_leaves_models(tiny, timed):  # noqa: F811
    slow, _ = timed

    def run(rounds):
        grid = tiny.grid(train=slow)
        with tiny.shared(grid) as federation:
            train(federation, grid, rounds, **settings(warm=True, stragglers=None))
            saved = federation.state.newest_checkpoint()
        tiny.close()
        return saved

    def stood_for(name):
        return {path.name for path in (tiny.folder / name / FOLDER).glob("owner*.bin")}

    def models(name):
        return len(list((tiny.folder / name / "models").glob("*/*.bin")))

    grid = tiny.grid(train=slow)
    with tiny.shared(grid) as federation:
        train(federation, grid, 4, **settings(warm=True, stragglers=None))
    tiny.close()
    grid = tiny.grid(train=slow, without="b")
    with tiny.shared(grid, n_sites=3) as federation:
        train(federation, grid, 6, **settings(warm=True, stragglers=None))
    tiny.close()
    assert {name: stood_for(name) for name in "acd"} == {name: {"owner1.bin"} for name in "acd"}
    before = {name: models(name) for name in "acd"}
    tiny.withdraw("a", 0)
    assert not stood_for("a")
    saved = run(7)
    assert all(models(name) == before[name] + 1 for name in "acd")
    anchors = {site["site"]: site["identity"] for site in saved.about["sites"]}
    assert set(saved.anchors) == set(saved.memory) == set(anchors.values())


def test_what_corrections_do_not_go_with_is_refused_by_name(tiny):
    fine = {"work": "fits", "correct": True, "estimator": "latest"}
    for other, message in (
        ({"work": "full"}, 'false with work = "full"'),
        ({"code": "reliability-split"}, "false with the code reliability-split"),
        ({"estimator": "memory"}, "latest, filled.*got true with memory"),
        ({"estimator": "coded_sum"}, "got true with coded_sum"),
        ({"estimator": "blended"}, "got true with blended"),
        ({"estimator": "trimmed_mean"}, "got true with trimmed_mean"),
        ({"sites_per_round": 2}, "false with sites_per_round"),
        ({"correct": 1}, "correct must be"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Settings.of(**{**fine, **other})
    for other in ({"local_steps": 2}, {"code": "owner-corrected"}):
        with pytest.raises(ArgumentError, match="work must be full"):
            Settings.of(**{**fine, **other})
    plain = {"work": "fits", "estimator": "latest"}
    assert Settings.of(**plain, correct=False).name({}) == Settings.of(**plain).name({})
    assert Settings.of(**fine).name({}) != Settings.of(**plain).name({})
    grid = tiny.grid()
    with (
        tiny.shared(grid, copies=0) as federation,
        pytest.raises(FederationError, match="correct must be false where nothing is shared"),
    ):
        train(federation, grid, 1, **settings())


def test_a_site_that_does_not_know_corrections_is_left_out(tiny):
    """One of an older version would answer for what it received, too, and say no anchors."""

    def older(site, _message, reply):
        fields = dict(reply.content["fedcommons"])
        if site == "c":
            fields.pop("own-anchors", None)
        reply.content["fedcommons"] = ConfigRecord(fields)
        return reply

    grid = tiny.grid(Tampered)
    grid.tamper = older
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 2, **settings(stragglers=None))
    outcomes = {one["site"]: one["outcome"] for one in notes[-1]["sites"]}
    assert outcomes == {"a": "answered", "b": "answered", "c": "malformed", "d": "answered"}
