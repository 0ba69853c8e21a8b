"""CodedSum is a strategy of Flower: what overrides its methods, or wraps them, is what trains."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol.refusals import CommitUnknown
from fedcommons.federate.site.site import Site
from fedcommons.federate.transport.coded_sum import CodedSum
from tests.federate.tiny import Counting, gradient, initial, outcomes, serving, trained_model
from tests.federate.transport.test_evaluation import N, measured, run

pytestmark = pytest.mark.usefixtures("impatient")


class Logging(CodedSum):
    """A habit of Flower users: a subclass that looks at what goes through."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list = []
        CALLS.append(self.calls)

    def configure_train(self, server_round, arrays, config, grid):
        self.calls.append(("configure_train", server_round))
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.calls.append(("aggregate_train", server_round, len(replies)))
        return super().aggregate_train(server_round, replies)

    def configure_evaluate(self, server_round, arrays, config, grid):
        self.calls.append(("configure_evaluate", server_round))
        return super().configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round, replies):
        replies = list(replies)
        self.calls.append(("aggregate_evaluate", server_round, len(replies)))
        return super().aggregate_evaluate(server_round, replies)


CALLS: list = []


def test_it_is_a_strategy_whose_methods_are_called_in_turn(tmp_path, tiny):
    plain, _ = run(tiny, tiny.grid(evaluate=measured), 2)
    tiny.close()
    again = type(tiny)(tmp_path / "again")
    logged, _ = run(again, again.grid(evaluate=measured), 2, strategy_class=Logging)
    again.close()
    assert CALLS.pop() == [
        call
        for t in (1, 2)
        for call in (
            ("configure_train", t),
            ("aggregate_train", t, 4),
            ("configure_evaluate", t),
            ("aggregate_evaluate", t, 4),
        )
    ]
    assert issubclass(Logging, Strategy)
    assert logged.arrays["beta"].numpy().tobytes() == plain.arrays["beta"].numpy().tobytes()
    assert logged.evaluate_metrics_clientapp == plain.evaluate_metrics_clientapp


def test_the_signature_of_start_is_flowers(tiny):
    grid = tiny.grid(evaluate=measured)
    with tiny.shared(grid) as federation:
        strategy = CodedSum(federation)
        strategy.summary()
        result = serving(
            grid,
            lambda: strategy.start(
                grid, initial(), 1, 60.0, ConfigRecord({"lr": 1.0}), ConfigRecord({"k": 2}), None
            ),
        )
    assert list(result.evaluate_metrics_clientapp) == [1]


def test_warm_memory_is_asked_for_as_round_0(tiny):
    grid = tiny.grid(Counting)
    run(tiny, grid, 1, strategy_class=Logging, estimator="memory", warm=True)
    assert CALLS.pop() == [
        ("configure_train", 0),
        ("configure_train", 1),
        ("aggregate_train", 1, 4),
    ]
    assert [kind for _, kind in grid.sent].count("train") == 8


# What a subclass may change


class Proximal(CodedSum):
    """As FedProx does it: a number for the training functions."""

    def configure_train(self, server_round, arrays, config, grid):
        config["proximal-mu"] = 0.5
        return super().configure_train(server_round, arrays, config, grid)

    def configure_evaluate(self, server_round, arrays, config, grid):
        config["top-k"] = 5
        return super().configure_evaluate(server_round, arrays, config, grid)


def test_a_config_that_a_subclass_extends_reaches_the_sites(tiny):
    seen = []

    def looking(function):
        def look(site, message, context):
            seen.append((message.metadata.message_type, dict(message.content["config"])))
            return function(site, message, context)

        return look

    grid = tiny.grid(train=looking(gradient), evaluate=looking(measured))
    run(tiny, grid, 1, strategy_class=Proximal)
    assert seen == [
        *[("train", {"proximal-mu": 0.5, "server-round": 1})] * 4,
        *[("evaluate", {"top-k": 5, "server-round": 1})] * 4,
    ]


def test_it_reaches_a_site_that_is_asked_again_for_lack_of_the_commit(tiny, monkeypatch):
    """The second question, with the whole commit, is what the subclass made of the first."""
    configs, rounds, unknown, of_site = [], [], [], Site.record_of

    def record_of(site, digest):
        if site.name == "b" and not unknown:
            unknown.append(digest)
            raise CommitUnknown("as if it had lost it")
        return of_site(site, digest)

    class Once(Proximal):
        def configure_train(self, server_round, arrays, config, grid):
            rounds.append(server_round)
            return super().configure_train(server_round, arrays, config, grid)

    def looking(site, message, context):
        configs.append(dict(message.content["config"]))
        return gradient(site, message, context)

    grid = tiny.grid(Counting, train=looking)
    with tiny.shared(grid) as federation:
        strategy = Once(federation, learning_rate=0.5)
        serving(grid, lambda: strategy.start(grid, initial(), 1))
        monkeypatch.setattr(Site, "record_of", record_of)
        serving(grid, lambda: strategy.start(grid, initial(), 2))
    assert unknown
    assert configs == [{"proximal-mu": 0.5, "server-round": t} for t in (1, 2) for _ in range(4)]
    assert rounds == [1, 2]


class Fewer(CodedSum):
    def configure_train(self, server_round, arrays, config, grid):
        return list(super().configure_train(server_round, arrays, config, grid))[1:]


def test_a_site_that_a_subclass_leaves_out_is_not_asked(tiny):
    grid = tiny.grid(Counting)
    notes = []
    with tiny.shared(grid) as federation:
        strategy = Fewer(federation, learning_rate=0.5)
        start = lambda: strategy.start(grid, initial(), 1, on_round=notes.append)  # noqa: E731
        serving(grid, start)
    assert outcomes(notes[0]) == {"a": "not asked", **dict.fromkeys("bcd", "answered")}
    assert sorted(site for site, kind in grid.sent if kind == "train") == list("bcd")


class Dropping(CodedSum):
    """Drops the first reply, as a strategy against outliers would."""

    def aggregate_train(self, server_round, replies):
        return super().aggregate_train(server_round, list(replies)[1:])


def test_a_reply_that_a_subclass_drops_does_not_count(tiny):
    notes = []
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        strategy = Dropping(federation, learning_rate=0.5)
        start = lambda: strategy.start(grid, initial(), 1, on_round=notes.append)  # noqa: E731
        serving(grid, start)
    assert outcomes(notes[0])["a"] == "left out by the strategy"
    assert [site["answered"] for site in notes[0]["sites"]] == [False, True, True, True]


class Projected(CodedSum):
    """Keeps the model in a ball; the next round begins there."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        beta = arrays["beta"].numpy()
        beta = beta * min(1.0, 0.1 / np.linalg.norm(beta))
        return ArrayRecord({"beta": Array(beta)}), metrics


def test_training_goes_on_from_the_model_that_a_subclass_returns(tiny):
    started = []

    def looking(site, message, context):
        started.append(float(np.linalg.norm(message.content["arrays"]["beta"].numpy())))
        return gradient(site, message, context)

    result, folder = run(tiny, tiny.grid(train=looking), 3, strategy_class=Projected)
    assert started == pytest.approx([0.0] * 4 + [0.1] * 8)
    with np.load(folder / "model.npz") as model:
        assert np.linalg.norm(model["beta"]) == pytest.approx(0.1)
    assert np.linalg.norm(result.arrays["beta"].numpy()) == pytest.approx(0.1)


class Cautious(CodedSum):
    """Takes the step of every other round back."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        return (None, metrics) if server_round % 2 else (arrays, metrics)


def test_a_step_can_be_taken_back(tiny):
    models = {}
    with tiny.shared(grid := tiny.grid()) as federation:
        strategy = Cautious(federation, learning_rate=0.5)
        look = lambda t, arrays: models.update({t: arrays["beta"].numpy().copy()})  # noqa: E731
        serving(grid, lambda: strategy.start(grid, initial(), 2, evaluate_fn=look))
    np.testing.assert_array_equal(models[1], models[0])
    assert np.abs(models[2]).max() > 0


class Worst(CodedSum):
    def aggregate_evaluate(self, server_round, replies):
        replies = list(replies)
        pooled = super().aggregate_evaluate(server_round, replies)
        pooled["worst"] = min(reply.content["metrics"]["n"] for reply in replies)
        return pooled


def test_metrics_that_a_subclass_adds_are_kept(tiny):
    result, _ = run(tiny, tiny.grid(evaluate=measured), 1, strategy_class=Worst)
    assert result.evaluate_metrics_clientapp[1]["worst"] == min(N.values())


# What is refused


class Silent(CodedSum):
    def aggregate_train(self, server_round, replies):
        del server_round, replies
        return None, None


class Twice(CodedSum):
    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        super().aggregate_train(server_round, replies)
        return super().aggregate_train(server_round, replies)


class OtherShape(CodedSum):
    def aggregate_train(self, server_round, replies):
        _, metrics = super().aggregate_train(server_round, replies)
        return ArrayRecord({"gamma": Array(np.zeros(3))}), metrics


class NotFinite(CodedSum):
    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        return ArrayRecord({"beta": Array(arrays["beta"].numpy() * np.nan)}), metrics


class OwnMessages(CodedSum):
    def configure_train(self, server_round, arrays, config, grid):
        del server_round
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, node, "train") for node in grid.get_node_ids()]


class Elsewhere(CodedSum):
    def configure_train(self, server_round, arrays, config, grid):
        messages = list(super().configure_train(server_round, arrays, config, grid))
        return [*messages, *messages]


class Early(CodedSum):
    def configure_train(self, server_round, arrays, config, grid):
        self.aggregate_train(server_round, [])
        return super().configure_train(server_round, arrays, config, grid)


WRONG = {
    Silent: "aggregate_train must call the one that it overrides",
    Twice: "the answers of a round can be aggregated once",
    OtherShape: "aggregate_train must return the model's arrays, got gamma",
    NotFinite: "aggregate_train must return a model of finite numbers",
    OwnMessages: "configure_train must keep the record 'fedcommons'",
    Elsewhere: "one for a node",
    Early: "aggregate_train must be called by the start of CodedSum, in its turn",
}


@pytest.mark.parametrize("strategy_class", WRONG, ids=lambda c: c.__name__)
def test_what_cannot_train_is_refused_with_a_reason(tiny, strategy_class):
    with pytest.raises(FederationError, match=WRONG[strategy_class]):
        run(tiny, tiny.grid(), 1, strategy_class=strategy_class)


def test_another_model_than_the_servers_is_refused_at_the_sites(tiny, caplog):
    class Rounded(CodedSum):
        def configure_train(self, server_round, arrays, config, grid):
            arrays = ArrayRecord({"beta": Array(arrays["beta"].numpy() + 0.5)})
            return super().configure_train(server_round, arrays, config, grid)

    with pytest.raises(FederationError, match="nobody answered"):
        run(tiny, tiny.grid(), 1, strategy_class=Rounded)
    assert "a: ModelChanged: the model that its app would get is not the one" in caplog.text


# Wrappers


class Wrapper(Strategy):
    """A wrapper of any strategy, by composition."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy, self.rounds = strategy, []

    def configure_train(self, server_round, arrays, config, grid) -> Iterable[Message]:
        self.rounds.append(server_round)
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(self, server_round, arrays, config, grid) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round, replies) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        self.strategy.summary()


class Passing(Wrapper):
    def start(self, *args, **kwargs):
        return self.strategy.start(*args, hooks=self, **kwargs)


def test_a_wrapper_passes_itself_on(tiny):
    with tiny.shared(grid := tiny.grid(train=trained_model(0.1))) as federation:
        wrapper = Passing(CodedSum(federation))
        result = serving(grid, lambda: wrapper.start(grid, initial(), 2))
    assert wrapper.rounds == [1, 2]
    assert np.abs(result.arrays["beta"].numpy()).max() > 0


FLOWERS = {
    DifferentialPrivacyServerSideFixedClipping: (1.0, 1.0, 4),
    DifferentialPrivacyClientSideFixedClipping: (1.0, 1.0, 4),
    DifferentialPrivacyServerSideAdaptiveClipping: (0.1, 40),
    DifferentialPrivacyClientSideAdaptiveClipping: (0.1, 40),
}


@pytest.mark.parametrize("wrapper", [Wrapper, *FLOWERS], ids=lambda c: c.__name__)
def test_a_wrapper_that_drives_by_itself_is_refused_before_anything_is_sent(tiny, wrapper):
    grid = tiny.grid(Counting)
    with tiny.shared(grid) as federation:
        grid.sent.clear()
        wrapped = wrapper(CodedSum(federation), *FLOWERS.get(wrapper, ()))
        with pytest.raises(FederationError, match="DifferentialPrivacy wrappers do not go with"):
            serving(grid, lambda: wrapped.start(grid, initial(), 1))
        if wrapper in FLOWERS:
            with pytest.raises(ArgumentError, match=f"hooks must not be {wrapper.__name__}"):
                wrapped.strategy.start(grid, initial(), 1, hooks=wrapped)
    assert grid.sent == []
