"""What a round needs is said before it is needed, and refused where it is not there."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, RecordDict

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.model_schema import ModelSchema
from fedcommons.federate.server import room
from fedcommons.flower import share
from tests.federate.tiny import Counting, initial, serving, train

pytestmark = pytest.mark.usefixtures("impatient")

MODEL = ModelSchema.of({"beta": np.zeros(1000, np.float32), "steps": np.zeros(1, np.int64)})
NOTHING = ModelSchema.of({"beta": np.zeros(0, np.float32)})


def needed(n_sites: int, schema: ModelSchema = MODEL, **settings: str) -> room.Room:
    defaults = {"estimator": "coded_sum", "server_optimizer": "sgd"}
    return room.needed(n_sites, schema, **{**defaults, **settings})


def test_memory_does_not_grow_with_the_number_of_sites():
    assert needed(10).memory == needed(1000).memory
    assert needed(10, estimator="memory").memory == needed(10).memory


def test_the_disk_holds_every_answer_and_every_one_that_is_remembered():
    assert needed(11).disk - needed(10).disk == 4 * 1000
    assert needed(11, estimator="memory").disk - needed(10, estimator="memory").disk == 8 * 1000


def test_an_optimizers_moments_count():
    more, P = needed(10, server_optimizer="adam"), 1000
    assert more.disk - needed(10).disk == 2 * 2 * 8 * P
    assert more.memory - needed(10).memory == 2 * 2 * 8 * P


def test_a_training_leaves_what_was_said(tiny):
    """The files of a round, counted: they fit into what was said, and fill most of it."""
    grid, model = tiny.grid(), ArrayRecord({"beta": initial("float32")["beta"]})
    with tiny.shared(grid) as federation:
        train(federation, grid, 2, model=model, estimator="memory", stragglers=None)
        (folder,) = federation.state.folder.glob("training-*/answers")
    schema = ModelSchema.of({"beta": np.zeros(15, np.float32)})
    kept = sum(path.stat().st_size for path in folder.iterdir())
    assert kept == 4 * 15 * 4 <= needed(4, schema, estimator="memory").disk


@pytest.mark.parametrize("what", ["memory", "disk"])
def test_what_cannot_fit_is_refused_before_the_exchange(tiny, monkeypatch, what):
    def little(*_arguments: object) -> SimpleNamespace:
        return SimpleNamespace(free=100)

    if what == "disk":
        monkeypatch.setattr(shutil, "disk_usage", little)
    else:
        monkeypatch.setattr(room, "available_memory", lambda: 100)
    config = {"state-dir": str(tiny.state_dir), "sites": 4, "wait": 0, "copies": 2}
    config |= {"federation": "hospitals", "estimator": "memory"}
    grid = tiny.grid(Counting)
    context = Context(grid.run_id, 1, {}, RecordDict(), config)
    message = (
        rf"a round of 4 sites with 15 parameters and memory of each needs .* of {what}, 0.0 MB"
    )
    with pytest.raises(FederationError, match=message):
        serving(grid, lambda: share(grid, context, initial_arrays=initial()))
    assert {kind for _, kind in grid.sent} == {"query.fc_offer"}
    with tiny.shared(grid) as federation, pytest.raises(FederationError, match=f"of {what}"):
        train(federation, grid, 1, estimator="memory")
    assert not list(tiny.state_dir.glob("training-*"))


def test_what_a_training_has_on_the_disk_is_room_that_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=100))
    assert room.available_disk(tmp_path / "none") == 100
    (tmp_path / "file").write_bytes(bytes(30))
    assert room.available_disk(tmp_path) == 130


def test_a_system_that_does_not_say_is_not_asked(monkeypatch):
    monkeypatch.setattr(room, "Path", lambda _path: Path("/nowhere"))
    assert room.available_memory() is None
