"""Late answers: a site that owes one is not asked again, and it counts when it comes."""

import json
import signal

import numpy as np
import pytest
from flwr.app import MetricRecord

from fedcommons import coding, delay_table, estimators, simulate
from fedcommons.asking import missing_prob
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS, Arrivals, estimate
from fedcommons.federate.protocol import durable
from fedcommons.federate.server.open_question import OWES
from fedcommons.federate.server.settings import Settings
from fedcommons.step_control import Secants, secant, sketch
from fedcommons.tasks import softmax
from tests.cli import command
from tests.federate.tiny import ByTick, Tiny, die_at, gradient, in_child, train_by_tick
from tests.federate.transport.test_kill_matrix import Forking

pytestmark = pytest.mark.usefixtures("impatient")

P, RATE = 0.3, 0.5
SLOW = {"b": 3, "d": 2}  # ticks that the answers of these sites take


def later(site: str, tick: int) -> int:
    return tick + SLOW.get(site, 0)


def of(note: dict, site: str) -> dict:
    return next(one for one in note["sites"] if one["site"] == site)


def late_ones(notes: list[dict]) -> list[tuple[int, str, int, bool]]:
    """(round, site, the round in which it was asked, whether it counts) of every late answer."""
    return [
        (note["round"], one["site"], one["asked_in"], one["late_counts"])
        for note in notes
        for one in note["sites"]
        if one["asked_in"] is not None
    ]


def plain_loop(
    tiny: Tiny, commit, notes: list[dict], estimator: str, *, rate=RATE, step_control=False
) -> list[np.ndarray]:
    """The same training through `estimators.estimate` alone, by the rounds' records."""
    placement, x, y = tiny.placement(commit)
    shares = coding.equal_split(placement).toarray()
    x = softmax.with_bias(x)

    def answers(beta):
        gradients = [
            softmax.weighted_gradient(beta, x[[j]], y[[j]], np.ones(1)).ravel()
            for j in range(len(y))
        ]
        return shares @ np.array(gradients)

    models, method = [np.zeros((x.shape[1], 3))], ESTIMATORS[estimator]
    state = estimators.start(method, len(shares), models[0].size)
    secants, anchors = Secants.start(len(shares)), [None] * len(shares)
    for t, note in enumerate(notes):
        sites = note["sites"]
        on_time = np.array([one["answered"] for one in sites])
        late = np.array([one["late_counts"] for one in sites])
        asked = np.array([one["asked"] and one["outcome"] != OWES for one in sites]) & ~late
        p = missing_prob(np.array([one["ask_prob"] for one in sites]), np.full(len(sites), P))
        came = answers(models[t])
        for i in np.flatnonzero(late):
            came[i] = answers(models[sites[i]["asked_in"] - 1])[i]
        found = np.full(len(shares), np.nan)
        for i in np.flatnonzero(on_time | late):
            model = models[sites[i]["asked_in"] - 1] if late[i] else models[t]
            if step_control and anchors[i] is not None:
                far = np.linalg.norm(sketch(model.ravel()) - sketch(anchors[i].ravel()))
                found[i] = secant(np.linalg.norm(came[i] - state[i]), shares[i].sum(), far)
            anchors[i] = model
        secants = secants.observe(found)
        longest = secants.longest_step(shares.sum(axis=1)) if step_control else np.inf
        age = np.array([note["round"] - (one["asked_in"] or note["round"]) for one in sites])
        value, state = estimate(method, state, came, Arrivals(on_time, asked, late, age), p)
        models.append(models[t] - min(rate, longest) / len(y) * value.reshape(models[0].shape))
    return models


@pytest.mark.parametrize(
    ("estimator", "how"),
    [
        ("memory", {}),
        ("latest", {}),
        ("latest", {"rate": 25.0, "step_control": True}),
        ("fedbuff", {}),
    ],
)
def test_training_with_late_answers_is_the_plain_loop_of_the_same_schedule(tiny, estimator, how):
    grid = tiny.grid(ByTick)
    grid.due = later
    with tiny.shared(grid) as federation:
        models, notes = train_by_tick(
            federation, grid, 9, estimator=estimator, straggler_prob=P,
            learning_rate=how.get("rate", RATE), step_control=bool(how), late="remember",
        )  # fmt: skip
        expected = plain_loop(tiny, federation.commit, notes, estimator, **how)
    assert late_ones(notes) == [
        (3, "d", 1, True), (4, "b", 1, True), (6, "d", 4, True),
        (8, "b", 5, True), (9, "d", 7, True),
    ]  # fmt: skip
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-12)
    assert np.abs(models[-1]).max() > 0.1
    assert (notes[-1]["rate"] < how.get("rate", RATE)) == bool(how)


def test_what_a_federation_has_recorded_is_a_recording_for_plans_and_studies(tiny, tmp_path):
    """Of answers in time and late ones; of who never answered it has nothing."""
    grid = tiny.grid(ByTick)
    grid.due = later
    with tiny.shared(grid) as federation:
        _, notes = train_by_tick(federation, grid, 9, estimator="latest")
        (path,) = federation.state.folder.glob("training-*/answers.parquet")
    found = delay_table.read_recording(path)
    answers = [one for note in notes for one in note["sites"]]
    for site in "abcd":
        took = [one["seconds"] for one in answers if one["site"] == site]
        took = [max(seconds, 0.0005) for seconds in took if seconds is not None]
        assert found[site].tolist() == took
        assert took
    sites = tmp_path / "sites.csv"
    sites.write_text("site,x,y\n" + "".join(f"{site},10,20\n" for site in "dcba"))
    told = command.run("plan", "--sites", sites, "--delays", path, "--copies", "0,1", "--json")
    assert told.returncode == 0, told.stderr
    plan = json.loads(told.stdout)
    assert plan["times"].startswith("recorded: ")
    study = simulate.study(
        "as it was",
        clock={"seconds": 3 * sum(sum(took) for took in found.values()), "delays": str(path)},
        grid={"partition": "iid", "policy": ["all", "deadline"]},
        clients=4, class_size=4, rounds=2, runs=1, test_size=50,
    )  # fmt: skip
    ticks = simulate.run(study, workers=1).curves["ticks_mean"].to_pylist()
    assert max(ticks) > 3


@pytest.mark.parametrize("by", ["uniform", "norms"])
def test_a_round_that_asks_some_leaves_out_those_that_owe_an_answer(tiny, by):
    grid = tiny.grid(ByTick)
    grid.due = later
    with tiny.shared(grid) as federation:
        models, notes = train_by_tick(
            federation, grid, 14, estimator="memory", straggler_prob=P, learning_rate=RATE,
            sites_per_round=2, ask_by=by,
        )  # fmt: skip
        expected = plain_loop(tiny, federation.commit, notes, "memory")
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-12)
    assert late_ones(notes)
    drawn = {
        (note["round"], one["site"]) for note in notes for one in note["sites"] if one["asked"]
    }
    owing = {
        (n["round"], one["site"]) for n in notes for one in n["sites"] if one["outcome"] == OWES
    }
    asked = {(t, who) for t, who, task in grid.asked if task == "answer"}
    assert asked == drawn - owing
    assert owing
    if by == "uniform":
        assert len(drawn) == 2 * 14


def test_a_site_that_owes_an_answer_is_asked_nothing(tiny):
    grid = tiny.grid(ByTick)
    grid.due = later
    with tiny.shared(grid) as federation:
        _, notes = train_by_tick(federation, grid, 9)
    ticks = {site: [t for t, who, _ in grid.asked if who == site] for site in "abcd"}
    assert ticks == {"a": list(range(1, 10)), "b": [1, 5, 9], "c": ticks["a"], "d": [1, 4, 7]}
    assert of(notes[1], "b")["outcome"] == OWES
    assert of(notes[1], "b")["straggler_prob"] == of(notes[3], "b")["straggler_prob"]


def test_who_was_busy_was_neither_absent_nor_silent(tiny):
    grid = tiny.grid(ByTick)
    grid.due = later
    with tiny.shared(grid) as federation:
        train_by_tick(federation, grid, 9)
        known = federation.state.newest_checkpoint().reliability
    assert (known.rounds + known.run).tolist() == [9, 3, 9, 3]


def test_discarded_late_answers_are_never_heard(tiny):
    grid = tiny.grid(ByTick)
    grid.due = later
    with tiny.shared(grid) as federation:
        _, notes = train_by_tick(federation, grid, 4, late="discard")
    assert not late_ones(notes)
    assert [of(note, "b")["outcome"] for note in notes] == ["no answer"] * 4


@pytest.mark.parametrize("estimator", ["memory", "fedbuff"])
def test_the_metrics_of_late_answers_come_through(tiny, estimator):
    """In the round in which each comes."""
    numbers = {"a": 3.0, "b": 5.0, "c": 7.0, "d": 11.0}

    def measured(site, message, context):
        reply = gradient(site, message, context)
        number = numbers[str(context.node_config["site"])]
        reply.content["metrics"] = MetricRecord({"n": number, "num-examples": 2})
        return reply

    grid = tiny.grid(ByTick, train=measured)
    grid.due = later
    with tiny.shared(grid) as federation:
        _, notes = train_by_tick(federation, grid, 6, estimator=estimator, late="remember")
    for note in notes:
        came = {one["site"] for one in note["sites"] if one["answered"] or one["late_counts"]}
        found = {site: of["n"] for site, of in note["training"]["by_site"].items()}
        assert found == {site: numbers[site] for site in came}
        assert note["training"]["pooled"]["n"] == pytest.approx(np.mean([*found.values()]))
    assert late_ones(notes)


def test_late_answers_need_an_estimator_that_has_a_use_for_them(tiny):
    with tiny.shared() as federation:
        grid = tiny.grid(ByTick)
        for late, message in (("remember", "needs an estimator with a use"), ("x", "must be")):
            with pytest.raises(ArgumentError, match=message):
                train_by_tick(federation, grid, 1, late=late, estimator="coded_sum")


def test_an_answer_survives_the_loss_of_a_link(tiny):
    """While a node is not connected it is not looked at; `ByTick` fails if it is."""
    grid = tiny.grid(ByTick)
    grid.due = lambda site, tick: tick + (site == "b" and tick == 1) * 2

    def before(tick: int) -> None:
        grid.away = "b" if 2 <= tick <= 4 else ""

    with tiny.shared(grid) as federation:
        _, notes = train_by_tick(federation, grid, 6, before=before)
    assert late_ones(notes) == [(5, "b", 1, True)]
    assert [of(note, "b")["outcome"] for note in notes[1:4]] == ["not connected"] * 3
    assert of(notes[5], "b")["answered"]


@pytest.mark.parametrize(("withdrawing", "row"), [("a", 0), ("c", 1)])
def test_an_answer_under_an_older_commit_counts_unless_its_site_held_what_left(
    tiny, withdrawing, row
):
    """b's answer to round 1 comes after another site withdrew an example; row 1 is not shared."""
    grid = tiny.grid(ByTick)
    grid.due = lambda site, tick: tick + (site == "b" and tick == 1) * 3

    def before(tick: int) -> None:
        if tick == 2:
            tiny.withdraw(withdrawing, row)

    with tiny.shared(grid) as federation:
        first = federation.commit
        _, notes = train_by_tick(federation, grid, 5, before=before)
        place = {member.site: i for i, member in enumerate(first.members)}
        holders = first.draw.recipients_of(place["a"], np.array([0])).ravel().tolist()
        assert federation.commit.serial == 1
    held = withdrawing == "a" and place["b"] in holders
    assert late_ones(notes) == [(4, "b", 1, not held)]


def run_until_killed(tiny: Tiny, times: int, due) -> None:
    def main() -> None:
        durable.reached = die_at("server.checkpoint:after", times)
        grid = tiny.grid(ByTick)
        grid.due = due
        with tiny.shared(grid) as federation:
            train_by_tick(federation, grid, 9, straggler_prob=P)

    assert in_child(main) == -signal.SIGKILL


def test_after_the_servers_death_a_slow_answer_is_not_computed_again(tiny):
    """The site kept it: the next run asks for it by its number, and trains on."""
    run_until_killed(tiny, 3, lambda site, tick: tick + (site == "b") * 99)
    calls = []

    def counted(site, message, context):
        calls.append(context.node_config["site"])
        return gradient(site, message, context)

    grid = tiny.grid(ByTick, train=counted)
    with tiny.shared(grid) as federation:
        saved = federation.state.newest_checkpoint()
        (identity,) = saved.owed
        assert saved.owed[identity].round == 1
        _, notes = train_by_tick(federation, grid, 5, straggler_prob=P)
    assert (1, "b", "kept") in grid.asked
    assert late_ones(notes) == [(4, "b", 1, True)]
    assert calls.count("b") == 1  # in round 5 alone


def test_an_answer_that_was_not_kept_is_asked_for_anew(tiny):
    run_until_killed(tiny, 3, lambda site, tick: tick + (site == "b") * 99)
    with tiny.store("b") as store:
        store.kept.drop(store.kept.training)
    grid = tiny.grid(ByTick)
    with tiny.shared(grid) as federation:
        _, notes = train_by_tick(federation, grid, 5, straggler_prob=P)
    assert late_ones(notes) == [(4, "b", 1, False)]
    assert of(notes[1], "b")["answered"]


def test_a_kept_answer_goes_with_what_it_was_made_of(tiny):
    run_until_killed(tiny, 3, lambda site, tick: tick + (site == "b") * 99)
    with tiny.store("b") as store:
        assert store.kept.training
        store.withdrawals.withdraw(np.array([0]))
        assert not store.kept.training


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("point", ["server.answers", "server.history", "server.checkpoint"])
def test_a_server_that_dies_loses_nothing_slow(tiny, point, side):
    """The rounds of both runs are one schedule, and the model is that of the plain loop."""

    def main() -> None:
        durable.reached = die_at(f"{point}:{side}", 4)
        grid = tiny.grid(ByTick)
        grid.due = later
        with tiny.shared(grid) as federation:
            train_by_tick(federation, grid, 9, straggler_prob=P)

    assert in_child(main) == -signal.SIGKILL
    grid = tiny.grid(ByTick)
    grid.due = later
    with tiny.shared(grid) as federation:
        models, _ = train_by_tick(federation, grid, 9, straggler_prob=P)
        history = [note.to_json() for note in federation.state.newest_checkpoint().history[1:]]
        expected = plain_loop(tiny, federation.commit, history, "memory")
    np.testing.assert_allclose(models[-1], expected[-1], rtol=0, atol=1e-12)
    heard = {(site, asked_in) for _, site, asked_in, counts in late_ones(history) if counts}
    assert {("b", 1), ("d", 1)} <= heard


class Dying(Forking, ByTick):
    """Sites die in their handlers, by tick."""


def test_sites_die_as_they_keep_an_answer_and_as_they_drop_it(tiny, tmp_path):
    grid = tiny.grid(Dying)
    grid.due = lambda site, tick: tick + (site == "d")
    with tiny.shared(grid) as federation:
        grid.marks = tmp_path
        sides = ("before", "after")
        grid.points = [f"store.{n}:{side}" for n in ("kept", "acknowledged") for side in sides]
        models, notes = train_by_tick(federation, grid, 12, straggler_prob=P)
        expected = plain_loop(tiny, federation.commit, notes, "memory")
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-12)
    assert len(list(tmp_path.glob("? store.*"))) == 4 * 4
    assert ("d", True) in {(who, counts) for _, who, _, counts in late_ones(notes)}


def test_step_control_shortens_steps_that_would_not_settle_and_survives_a_kill(tmp_path):
    """At fifty times the usual rate; whole, and killed in round 4."""
    settings = {"learning_rate": 25.0, "step_control": True, "estimator": "latest", "warm": True}
    losses, reached = {}, {}
    for name, controlled, killed in (
        ("free", False, False), ("whole", True, False), ("killed", True, True),
    ):  # fmt: skip
        tiny = Tiny(tmp_path / name)
        now = settings | {"step_control": controlled}

        def main(tiny=tiny, now=now) -> None:
            durable.reached = die_at("server.checkpoint:before", 5)
            with tiny.shared(grid := tiny.grid(ByTick)) as federation:
                train_by_tick(federation, grid, 12, **now)

        if killed:
            assert in_child(main) == -signal.SIGKILL
        with tiny.shared(grid := tiny.grid(ByTick)) as federation:
            models, notes = train_by_tick(federation, grid, 12, **now)
            last = [note["rate"] for note in notes][-1]
            assert (last < 25) == controlled
        reached[name] = models[-1]
        x = softmax.with_bias(
            np.concatenate([d.x.take(np.arange(d.n_examples)) for d in tiny.data.values()])
        )
        y = np.concatenate([d.y for d in tiny.data.values()])
        scores = x @ models[-1]
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        losses[name] = -np.log(chances[np.arange(len(y)), y]).mean()
        tiny.close()
    assert losses["whole"] < losses["free"]
    np.testing.assert_array_equal(reached["killed"], reached["whole"])


def test_every_answer_of_a_slow_site_counts(tiny):
    """However many rounds it takes: what it was asked is what counted, but for the last."""
    grid = tiny.grid(ByTick)
    grid.due = lambda site, tick: tick + (site == "b") * (1 + tick % 4)
    with tiny.shared(grid) as federation:
        _, notes = train_by_tick(federation, grid, 30)
        still_open = [q.round for q in federation.state.newest_checkpoint().owed.values()]
    asked = [tick for tick, who, task in grid.asked if (who, task) == ("b", "answer")]
    counted = [asked_in for _, who, asked_in, counts in late_ones(notes) if counts]
    assert len(counted) > 5
    assert asked == counted + still_open


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "coded_sum"}, "must go with an estimator that remembers"),
        ({"server_optimizer": "adam"}, "server optimizers sgd, momentum"),
        ({"local_steps": 2}, "one step on all examples"),
    ],
)
def test_step_control_is_refused_where_it_means_nothing(settings, message):
    with pytest.raises(ArgumentError, match=message):
        Settings.of(step_control=True, **settings)
