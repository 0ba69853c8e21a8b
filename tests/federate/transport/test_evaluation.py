"""Sites measure the model on data of their own: asked after a round, and shown site by site."""

from __future__ import annotations

import json
import signal

import numpy as np
import pyarrow.parquet as pq
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedcommons.errors import ArgumentError
from fedcommons.federate.protocol import durable
from fedcommons.federate.server import results, site_metrics
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.federate.server.site_metrics import EXAMPLES, SiteMetrics
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.coded_sum import CodedSum
from fedcommons.figures.federation import write_page
from tests.federate.tiny import (
    Counting,
    Tampered,
    die_at,
    gradient,
    in_child,
    initial,
    serving,
    trace,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")

N = {"a": 10, "b": 20, "c": 30, "d": 40}  # examples that each site measures


def norm(arrays: ArrayRecord) -> float:
    return float(np.abs(arrays["beta"].numpy()).sum())


def measured(_site: object, message: Message, context: Context) -> Message:
    """Metrics that differ between sites and say at which model they were taken."""
    site = str(context.node_config["site"])
    numbers = {"norm": norm(message.content["arrays"]), "n": float(N[site]), EXAMPLES: N[site]}
    return Message(RecordDict({"metrics": MetricRecord(numbers)}), reply_to=message)


def training_with(**metrics):
    """The gradient, and metrics beside it."""

    def function(site: object, message: Message, context: Context) -> Message:
        reply = gradient(site, message, context)
        reply.content["metrics"] = MetricRecord(metrics)
        return reply

    return function


def only(sites: str, otherwise):
    """`measured` at these sites, something else elsewhere."""

    def function(site: object, message: Message, context: Context) -> Message:
        if str(context.node_config["site"]) in sites:
            return measured(site, message, context)
        return otherwise(site, message, context)

    return function


def replying(record):
    return lambda _s, message, _c: Message(RecordDict({"m": record}), reply_to=message)


def failing(_site, _message, _context):
    raise ValueError("row 17 is secret")


def run(tiny, grid, num_rounds=2, **settings):
    """Results and folder of a training."""
    strategy_class = settings.pop("strategy_class", CodedSum)
    with tiny.shared(grid) as federation:
        strategy = strategy_class(federation, **{"learning_rate": 0.5, **settings})
        result = serving(grid, lambda: strategy.start(grid, initial(), num_rounds))
        return result, strategy.folder


WEIGHTED = sum(n * n for n in N.values()) / sum(N.values())


def test_metrics_of_the_sites_are_weighted_by_their_examples(tiny):
    result, folder = run(tiny, tiny.grid(evaluate=measured))
    found = result.evaluate_metrics_clientapp
    assert sorted(found) == [1, 2]
    assert found[2]["n"] == pytest.approx(WEIGHTED)
    assert found[2]["norm"] == pytest.approx(norm(result.arrays))  # of the model after the round
    rounds = pq.read_table(folder / "rounds.parquet").to_pylist()
    assert rounds[0]["sites_n"] is None
    assert [row["sites_n"] for row in rounds[1:]] == pytest.approx([WEIGHTED] * 2)
    rows = pq.read_table(folder / "site_metrics.parquet").to_pylist()
    of_n = {r["site"]: (r["value"], r["examples"]) for r in rows if r["metric"] == "n"}
    assert of_n == {site: (n, n) for site, n in N.items()}


def test_the_log_says_how_far_sites_differ(tiny, caplog):
    run(tiny, tiny.grid(evaluate=measured), 1)
    assert f"sites_n {WEIGHTED:.4f}, " in caplog.text
    assert "n from 10.0000 (a) to 40.0000 (d), 4 of 4 answered" in caplog.text


def test_metrics_of_training_come_through(tiny):
    train_loss = training_with(**{"loss": 0.25, "norms": [1.0, 2.0], EXAMPLES: 4})
    result, folder = run(tiny, tiny.grid(train=train_loss))
    assert result.train_metrics_clientapp[2]["loss"] == 0.25
    assert not result.evaluate_metrics_clientapp
    rows = pq.read_table(folder / "site_metrics.parquet").to_pylist()
    assert {r["left_out"] for r in rows if r["metric"] is None} == {"norms is not one number"}
    assert {r["kind"] for r in rows} == {"training"}


def test_training_metrics_without_a_number_of_examples_go_by_the_shares(tiny):
    result, folder = run(tiny, tiny.grid(train=training_with(loss=0.5)), 1)
    assert result.train_metrics_clientapp[1]["loss"] == 0.5
    rows = pq.read_table(folder / "site_metrics.parquet").to_pylist()
    assert sum(r["examples"] for r in rows) == pytest.approx(22)  # all examples


BAD = {
    "an error": (failing, "ValueError"),
    "NaN": (replying(MetricRecord({"n": np.nan, EXAMPLES: 5})), "n is nan"),
    "infinity": (replying(MetricRecord({"n": -np.inf, EXAMPLES: 5})), "n is -inf"),
    "a list": (replying(MetricRecord({"n": [1.0, 2.0], EXAMPLES: 5})), "n is not one number"),
    "no examples": (replying(MetricRecord({"n": 1.0})), "num-examples must be a number > 0"),
    "zero examples": (
        replying(MetricRecord({"n": 1.0, EXAMPLES: 0})),
        "num-examples must be a number > 0",
    ),
    "examples below zero": (
        replying(MetricRecord({"n": 1.0, EXAMPLES: -3})),
        "num-examples must be a number > 0",
    ),
    "no metrics": (replying(ConfigRecord({"n": 1.0})), "NothingMeasured"),
    "a name that moves the cursor": (
        replying(MetricRecord({"n\x1b[2J": 1.0, EXAMPLES: 5})),
        "a metric whose name cannot be shown",
    ),
    "too many": (
        replying(MetricRecord({f"m{k}": 1.0 for k in range(99)} | {EXAMPLES: 5})),
        "more than 64 metrics, num-examples must be a number > 0",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_number_is_left_out_and_the_site_is_named(tiny, caplog, name):
    otherwise, why = BAD[name]
    result, folder = run(tiny, tiny.grid(evaluate=only("abd", otherwise)), 1)
    others = [N[site] for site in "abd"]
    expected = sum(n * n for n in others) / sum(others)
    assert result.evaluate_metrics_clientapp[1]["n"] == pytest.approx(expected)
    rows = pq.read_table(folder / "site_metrics.parquet").to_pylist()
    assert {r["site"]: r["left_out"] for r in rows if r["left_out"]} == {"c": why}
    assert f"evaluation at c: {why}" in caplog.text
    assert "\x1b" not in caplog.text


def test_an_error_crosses_the_wire_by_its_class(tiny):
    class Watched(Counting):
        def _handle(self, message):
            reply = super()._handle(message)
            if reply is not None and reply.has_error():
                reasons.append((message.metadata.message_type, reply.error.reason))
            return reply

    reasons: list = []
    run(tiny, tiny.grid(Watched, evaluate=failing), 1)
    assert reasons == [("evaluate", "ValueError")] * 4


def test_nothing_but_numbers_leaves_a_site(tiny):
    def verbose(site, message, context):
        reply = measured(site, message, context)
        reply.content["rows"] = message.content["arrays"]
        reply.content["notes"] = ConfigRecord({"row": "secret"})
        return reply

    class Watched(Counting):
        def _handle(self, message):
            reply = super()._handle(message)
            if message.metadata.message_type == "evaluate":
                left.append({name: dict(record) for name, record in reply.content.items()})
            return reply

    left: list = []
    run(tiny, tiny.grid(Watched, evaluate=verbose), 1)
    assert len(left) == 4
    for records in left:
        assert set(records) == {messages.FIELDS, messages.METRICS}
        fields = records[messages.FIELDS]
        assert set(fields) == {"round", "question"}  # what the server asked by, and no more
        assert {type(value) for value in fields.values()} == {int}


def test_an_app_without_an_evaluate_function_is_not_asked(tiny):
    grid = tiny.grid(Counting)
    run(tiny, grid)
    assert "evaluate" not in {kind for _, kind in grid.sent}


def test_an_evaluate_function_without_the_mod_is_not_asked_and_named(tiny, caplog):
    grid = tiny.grid(Counting)
    grid.app.evaluate()(lambda message, _context: message)
    run(tiny, grid)
    assert "evaluate" not in {kind for _, kind in grid.sent}
    assert caplog.text.count("a is not asked to evaluate") == len(
        [r for r in caplog.records if "a is not asked to evaluate" in r.getMessage()]
    )
    assert "mods=[evaluated(site)]" in caplog.text


def test_only_sites_that_answered_are_asked_every_k_rounds_and_after_the_last(tiny):
    grid = tiny.grid(Counting, evaluate=measured)
    absences = trace("ab", "abc", "a", "abd", "cd")
    result, _ = run(tiny, grid, 5, evaluate_every=2, stragglers=absences, straggler_prob=0.4)
    assert sorted(result.evaluate_metrics_clientapp) == [2, 4, 5]
    assert [site for site, kind in grid.sent if kind == "evaluate"] == [*"abc", *"abd", *"cd"]


def test_a_fraction_is_drawn_anew_each_time_and_by_the_seed(tiny):
    drawn = []
    for _ in range(2):
        grid = tiny.grid(Counting, evaluate=measured)
        with tiny.shared(grid) as federation:
            strategy = CodedSum(federation, fraction_evaluate=0.5, learning_rate=0.5)
            serving(grid, lambda s=strategy, g=grid: s.start(g, initial(), 8 * (len(drawn) + 1)))
        drawn.append([site for site, kind in grid.sent if kind == "evaluate"])
        tiny.close()
    assert [len(some) for some in drawn] == [16, 16]
    assert len({tuple(drawn[0][k : k + 2]) for k in range(0, 16, 2)}) > 1
    assert set(drawn[0]) == set("abcd")


def test_a_site_that_is_too_slow_to_evaluate_is_left_out_and_the_rounds_go_on(tiny):
    class Slow(Counting):
        def _handle(self, message):
            reply = super()._handle(message)
            site = self.contexts[message.metadata.dst_node_id].node_config["site"]
            return None if (site, message.metadata.message_type) == ("b", "evaluate") else reply

    result, folder = run(tiny, tiny.grid(Slow, evaluate=measured), 2, deadline=0.05)
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2]
    rows = pq.read_table(folder / "site_metrics.parquet").to_pylist()
    assert {r["site"]: r["left_out"] for r in rows if r["left_out"]} == {"b": "no answer"}
    answers = pq.read_table(folder / "answers.parquet").to_pylist()
    assert all(row["answered"] for row in answers)


def test_evaluation_changes_nothing_of_training(tmp_path, tiny):
    plain, _ = run(tiny, tiny.grid(), 3)
    tiny.close()
    again = type(tiny)(tmp_path / "again")
    evaluated, folder = run(again, again.grid(evaluate=measured), 3, evaluate_every=2)
    again.close()
    assert evaluated.arrays["beta"].numpy().tobytes() == plain.arrays["beta"].numpy().tobytes()
    assert folder.name in {path.name for path in tiny.state_dir.glob("training-*")}


def test_a_resumed_training_keeps_its_metrics(tiny):
    def main():
        durable.reached = die_at("server.checkpoint:after", 2)
        run(tiny, tiny.grid(evaluate=measured), 4)

    assert in_child(main) == -signal.SIGKILL
    result, folder = run(tiny, tiny.grid(evaluate=measured), 4)
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2, 3, 4]
    page = write_page(folder).read_text()
    assert "What each site measured" in page
    assert "n over all sites after each round" in page


# The best model


def falling(values):
    """An evaluate function whose metric is the value of the round."""

    def function(_site, message, _context):
        value = values[message.content["config"]["server-round"] - 1]
        return Message(
            RecordDict({"m": MetricRecord({"loss": value, EXAMPLES: 1})}), reply_to=message
        )

    return function


LOSSES = [5.0, 3.0, 4.0, 3.5, 3.2, 1.0]
WATCH = {"watch": "sites_loss", "direction": "min"}


def test_the_best_model_is_kept_and_training_ends_when_it_gets_no_better(tiny, caplog):
    models = {}
    grid = tiny.grid(evaluate=falling(LOSSES))
    with tiny.shared(grid) as federation:
        _, notes = train(
            federation,
            grid,
            6,
            evaluate_fn=lambda t, arrays: models.update({t: arrays["beta"].numpy().copy()}),
            patience=3,
            **WATCH,
        )
    assert [note["round"] for note in notes] == [1, 2, 3, 4, 5]
    assert "training ends after round 5: sites_loss has not been better than 3," in caplog.text
    (path,) = tiny.state_dir.glob("training-*/best.npz")
    with np.load(path) as best:
        np.testing.assert_array_equal(best["beta"], models[2])
    assert json.loads(path.with_name("best.json").read_text()) == {
        "metric": "sites_loss", "direction": "min", "round": 2, "value": 3.0
    }  # fmt: skip


def test_more_patience_goes_on_where_it_ended(tiny):
    for patience, last, n_asked in ((2, 4, 16), (2, 4, 4), (9, 6, 8)):
        grid = tiny.grid(Counting, evaluate=falling(LOSSES))
        result, folder = run(tiny, grid, 6, patience=patience, **WATCH)
        assert max(result.evaluate_metrics_clientapp) == last
        # Sites are asked once though nothing is left to train: they hear of withdrawals.
        assert [kind for _, kind in grid.sent].count("train") == n_asked
        tiny.close()
    assert json.loads((folder / "best.json").read_text())["round"] == 6


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("name", ["checkpoint", "best-model", "best"])
def test_the_best_model_survives_a_death_at_any_point(tmp_path, name, side, tiny):
    whole = type(tiny)(tmp_path / "whole")
    _, folder = run(whole, whole.grid(evaluate=falling(LOSSES)), 4, **WATCH)
    expected = (folder / "best.npz").read_bytes()
    whole.close()

    def main():
        durable.reached = die_at(f"server.{name}:{side}", 2)
        run(tiny, tiny.grid(evaluate=falling(LOSSES)), 4, **WATCH)

    assert in_child(main) == -signal.SIGKILL
    _, folder = run(tiny, tiny.grid(evaluate=falling(LOSSES)), 4, **WATCH)
    assert (folder / "best.npz").read_bytes() == expected
    assert json.loads((folder / "best.json").read_text())["round"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"watch": "loss"}, "direction must be max or min"),
        ({"watch": "loss", "direction": "down"}, "direction must be max or min"),
        ({"patience": 3}, "watch must name the metric"),
        ({"watch": "", "direction": "max"}, "watch must be the name of a metric"),
        ({"patience": 0, **WATCH}, "patience must be an integer >= 1, got 0"),
        ({"evaluate_every": 0}, "evaluate_every must be an integer >= 1, got 0"),
        ({"fraction_evaluate": 1.5}, r"fraction_evaluate must be in \[0, 1\], got 1.5"),
        ({"min_available_nodes": 5}, "share waits for sites"),
    ],
    ids=str,
)
def test_arguments_are_checked(tiny, arguments, message):
    with tiny.shared() as federation, pytest.raises(ArgumentError, match=message):
        CodedSum(federation, **arguments)


# Means


def test_a_mean_is_over_the_sites_that_have_the_metric():
    by_site = {"a": {"x": 1.0, "y": 2.0, EXAMPLES: 1.0}, "b": {"x": 4.0, EXAMPLES: 2.0}}
    assert site_metrics.pooled(by_site) == {"x": pytest.approx(3.0), "y": 2.0}


def test_a_mean_of_what_is_huge_is_finite():
    huge = {"x": 1e308, EXAMPLES: 1e15}
    assert site_metrics.pooled({"a": huge, "b": huge}) == {"x": pytest.approx(1e308)}


def test_replies_that_are_tampered_with_are_left_out(tiny):
    class Wrong(Tampered):
        def _handle(self, message):
            reply = super()._handle(message)
            if message.metadata.message_type == "evaluate":
                site = self.contexts[message.metadata.dst_node_id].node_config["site"]
                if site == "a":
                    reply.content[messages.FIELDS] = ConfigRecord({"round": 7})
                elif site == "b":
                    del reply.content[messages.FIELDS]
                elif site == "c":
                    reply.metadata.__dict__["_src_node_id"] = 77
            return reply

    result, _ = run(tiny, tiny.grid(Wrong, evaluate=measured), 1)
    assert result.evaluate_metrics_clientapp[1]["n"] == N["d"]


def test_a_site_that_sends_other_names_in_every_round_cannot_add_columns_without_end(monkeypatch):
    """Those of the most rounds have a column, and the server's own."""
    monkeypatch.setattr(results, "MOST_COLUMNS", 3)
    history = [
        RoundNote(
            t,
            metrics={"own": 1.0},
            training=SiteMetrics.of(
                {"a": {"loss": 1.0, EXAMPLES: 5}, "b": {f"x{t}": 1.0, f"y{t}": 2.0, EXAMPLES: 5}},
                {},
            ),
        )
        for t in range(20)
    ]
    rounds, _, of_sites = results.tables(history)
    columns = {name for row in rounds for name in row} - set(results.OF_A_ROUND)
    assert {"own", "training_loss"} < columns
    assert len(columns) == 4
    assert {row["metric"] for row in of_sites} >= {"loss", "x7", "y19"}  # rows have no such end
