"""What a run config says: a mistake in it is named, before anything is exchanged."""

import pytest
from flwr.app import Context, RecordDict

from fedcommons import flower
from fedcommons.errors import ArgumentError
from fedcommons.federate.server import coordinator
from fedcommons.federate.server.evaluation import Evaluation
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.transport.coded_sum import CodedSum
from fedcommons.methods import Method


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("copies", "x", "copies must be an integer >= 0, got 'x'"),
        ("copies", None, "copies must be an integer >= 0, got None"),
        ("sites", 1, "sites must be an integer >= 2, got 1"),
        ("wait", "x", "wait must be a real number or numbers, got 'x'"),
        ("timeout", 0, "timeout must be > 0"),
        ("reshare", "false", "reshare must be true or false, got 'false'"),
        ("seed", 1.5, "seed must be an integer in .*, got 1.5"),
        ("leave", 3, "leave must be names with commas between, got 3"),
        ("state-dir", 3, "state-dir must be a path, got 3"),
    ],
)
def test_a_wrong_value_of_the_exchange_is_named(key, value, rule):
    config = {"state-dir": "/nowhere", "copies": 1, key: value}
    context = Context(1, 1, {}, RecordDict(), config)
    with pytest.raises(ArgumentError, match=rule):
        flower.share(None, context)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("num-rounds", "x", "num-rounds must be an integer >= 0, got 'x'"),
        ("num-rounds", 2.7, "num-rounds must be an integer >= 0, got 2.7"),
        ("warm", "false", "warm must be true or false, got 'false'"),
        ("estimator", "best", "estimator must be one of"),
        ("estimator", "nowhere:best", "estimator nowhere:best cannot be imported"),
        ("estimator", "wait_for_all", "and not wait for everybody, got 'wait_for_all'"),
        ("code", "tests.odd_parts:half_to_owner", "equal-split, .*, which sites have too"),
        ("server-optimizer", "lamb", "server_optimizer must be one of sgd, momentum, adam"),
        ("straggler-prob", "x", "straggler-prob must be a real number"),
        ("straggler-prob", 1.0, r"straggler_prob must be in \[0, 1\), got 1"),
        ("rehearse-stragglers", -0.5, "rehearse-stragglers must be in"),
        ("deadline", "x", "deadline must be a real number"),
        ("late", "forget", "late must be one of remember, discard, got 'forget'"),
        ("local-steps", 1.5, "local_steps must be an integer >= 1, got 1.5"),
    ],
)
def test_a_wrong_value_of_the_training_is_named_before_the_exchange(key, value, rule):
    with pytest.raises(ArgumentError, match=rule):
        flower.settings_from({key: value})


def test_names_of_sites_may_have_spaces_about_them(monkeypatch):
    monkeypatch.setattr(coordinator, "share", lambda _grid, **options: options)
    config = {"state-dir": "/nowhere", "copies": 1, "leave": "a, b,"}
    given = flower.share(None, Context(1, 1, {}, RecordDict(), config))
    assert given["leave"] == ["a", "b"]


def test_a_run_config_sets_when_sites_evaluate():
    given = flower.settings_from({"evaluate-every": 3, "fraction-evaluate": 0.0})
    strategy = CodedSum(None, **given)
    assert strategy.evaluation == Evaluation(every=3, fraction=0.0)


def test_a_run_config_sets_the_method():
    config = {"estimator": "tests.odd_parts:damped", "server-optimizer": "yogi", "batch-size": 0}
    settings = Settings.of(**flower.settings_from(config))
    assert settings.method == Method(estimator="tests.odd_parts:damped", server_optimizer="yogi")
