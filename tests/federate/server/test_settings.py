"""Settings name a training, and what was trained is in the results folder."""

import json

import numpy as np
import pyarrow.parquet
import pytest
from flwr.app import ConfigRecord

from fedcommons import estimators
from fedcommons.errors import ArgumentError
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.transport.coded_sum import CodedSum
from fedcommons.stragglers import Bernoulli, Trace
from tests.federate.tiny import (
    initial,
    serving,
    trace,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "wait_for_all"}, "estimator must be one of coded_sum, memory"),
        ({"estimator": "best"}, "estimator must be one of"),
        ({"code": "best"}, "code must be one of"),
        ({"warm": True, "estimator": "coded_sum"}, "warm must go with an estimator that remembers"),
        ({"straggler_prob": 1.0}, "straggler_prob must be in"),
        ({"learning_rate": 0}, "learning_rate must be > 0"),
        ({"estimator": "memory", "warm": "false"}, "warm must be true or false, got 'false'"),
        ({"learning_rate": "fast"}, "learning_rate must be a real number"),
        ({"local_steps": 0}, "local_steps must be an integer >= 1"),
    ],
)
def test_settings_say_what_is_wrong(settings, message):
    with pytest.raises(ArgumentError, match=message):
        Settings.of(**settings)


def test_the_estimator_that_nobody_names_suits_the_work():
    assert Settings.of().method.estimator == "blended"
    assert Settings.of(work="fits").method.estimator == "filled"
    assert Settings.of(work="fits", correct=True).correct


def test_a_training_is_named_by_its_settings():
    plain = Settings()
    assert plain.name({}) == Settings(learning_rate=1, seed=np.int64(0)).name({})
    assert plain.name({}).startswith("training-equal-split-coded-sum-")
    assert plain.name({"lr": 0.1, "b": 2}) == plain.name({"b": 2, "lr": 0.1})
    assert len({plain.name(config) for config in ({}, {"lr": 0.1}, {"lr": 0.2})}) == 3
    others = [
        Settings(learning_rate=0.5),
        Settings(stragglers=Bernoulli(0.5)),
        Settings(straggler_prob=(0.5, 0.5)),
        Settings(stragglers=Trace(np.ones((2000, 2), bool))),
        Settings(stragglers=Trace(np.arange(4000).reshape(2000, 2) != 2001)),
    ]
    assert len({settings.name({}) for settings in [plain, *others]}) == 6
    assert Settings(straggler_prob=[0.5, 0.5]).name({}) == others[2].name({})


def test_a_training_keeps_its_folder_from_version_to_version():
    """By the names that earlier versions wrote, behind the epoch that some had before them."""
    known = Settings.of(
        stragglers=Bernoulli(0.4),
        straggler_prob=0.4,
        seed=4,
        estimator="memory",
        warm=True,
        learning_rate=0.5,
    )
    assert known.name({}) == "training-equal-split-memory-warm-febdd65a"
    other = Settings.of(estimator="tests.odd_parts:damped", server_optimizer="adam")
    assert other.name({}).startswith("training-equal-split-tests-odd-parts-damped-")
    assert other.name({}) != Settings.of(estimator="tests.odd_parts:damped").name({})


def test_a_strategy_names_the_folder_of_its_results(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        strategy = CodedSum(federation, learning_rate=0.5)
        config = ConfigRecord({"lr": 0.1})
        serving(grid, lambda: strategy.start(grid, initial(), 1, train_config=config))
        (folder,) = tiny.state_dir.glob("training-*")
        assert strategy.folder == folder


def test_results_hold_every_round_and_every_answer(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 2, stragglers=trace("abc", "abcd"))
        model, _ = train(federation, grid, 3, stragglers=trace("abc", "abcd", "d"))
        folder = next(federation.state.folder.glob("training-*/run.json")).parent
    folders = list(folder.parent.glob("training-*"))
    assert len(folders) == 2  # another recorded trace is another training
    newest = max(folders, key=lambda path: (path / "run.json").stat().st_mtime_ns)
    rounds = pyarrow.parquet.read_table(newest / "rounds.parquet").to_pylist()
    assert [row["answered"] for row in rounds] == [0, 3, 4, 1]
    answered = pyarrow.parquet.read_table(newest / "answers.parquet").to_pylist()
    assert [row["site"] for row in answered if row["outcome"] == "not asked"] == ["d", *"abc"]
    with np.load(newest / "model.npz") as file:
        assert file["beta"].tobytes() == model.tobytes()
    run = json.loads((newest / "run.json").read_text())
    assert (run["rounds"], run["examples"], run["epoch"]) == (3, 22, 1)
    assert estimators.ESTIMATORS[run["settings"]["estimator"]] is estimators.coded_sum
