"""What an older version wrote is read; what a newer one wrote is refused, with both numbers.

`unversioned.zip` is a federation as the last version without numbers left it on the disks: `Tiny`
after two rounds of `SETTINGS`, a withdrawal of b's row 0 and a third round; and the parameters that
the same version reached after five rounds, in hexadecimal. `checkpoint-version-1.zip` is the same
of the last version that had history and memory in the checkpoint itself, `checkpoint-version-2.zip`
of the last one whose rounds had no metrics of sites, `checkpoint-version-3.zip` of the last one
before there was a quarantine, and sizes of answers in the checkpoint, `checkpoint-version-4.zip` of
the last one in which no answer was late, `state-dir-version-4.zip` of the last one before owners
signed what they withdraw.
"""

import json
import signal
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.withdrawals import is_owners_word
from fedcommons.federate.server import checkpoints, formats
from fedcommons.federate.server.formats import CHECKPOINT, STATE_DIR, Format
from fedcommons.federate.server.state import ServerState
from fedcommons.federate.site import store_format
from fedcommons.figures.federation import write_page
from fedcommons.npz import write_npz
from fedcommons.stragglers import Bernoulli
from tests.federate.tiny import Tiny, die_at, in_child
from tests.federate.transport.test_evaluation import measured

pytestmark = pytest.mark.usefixtures("impatient")

SETTINGS = {
    "stragglers": Bernoulli(0.4),
    "straggler_prob": 0.4,
    "seed": 4,
    "estimator": "memory",
    "warm": True,
}


def unpacked(archive: str, folder: Path) -> Tiny:
    found = Tiny(folder)
    with zipfile.ZipFile(Path(__file__).with_name(archive)) as file:
        file.extractall(folder)
    return found


@pytest.fixture
def old(tmp_path):
    found = unpacked("unversioned.zip", tmp_path)
    yield found
    found.close()


@pytest.fixture
def version_1(tmp_path):
    found = unpacked("checkpoint-version-1.zip", tmp_path)
    yield found
    found.close()


def expected_after_5_rounds(old: Tiny) -> list[float]:
    text = (old.folder / "model-after-5-rounds.txt").read_text()
    return [float.fromhex(line) for line in text.split()]


def format_of(state_dir: Path) -> dict:
    return json.loads((state_dir / "format.json").read_text())


def notes_of(path: Path) -> dict:
    with np.load(path) as file:
        return json.loads(file["notes"].tobytes())


def rewritten(path: Path, **changes) -> None:
    """A checkpoint with other notes."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    notes = {**json.loads(arrays["notes"].tobytes()), **changes}
    arrays["notes"] = np.frombuffer(json.dumps(notes).encode(), np.uint8)
    with path.open("wb") as file:
        write_npz(file, arrays)


def test_a_state_dir_without_numbers_is_gone_on_with(old):
    (path,) = old.state_dir.glob("epoch1-*/checkpoint.npz")
    assert "version" not in notes_of(path)
    assert not (old.state_dir / "format.json").exists()
    model = old.run(5, **SETTINGS)
    np.testing.assert_allclose(model.ravel(), expected_after_5_rounds(old), rtol=1e-12)
    training = path.parent.name.removeprefix("epoch1-")
    assert not path.parent.exists()
    (path,) = old.state_dir.glob("training-*/checkpoint.npz")
    assert path.parent.name == f"training-{training}"
    assert format_of(old.state_dir)["version"] == STATE_DIR.version
    assert notes_of(path)["version"] == CHECKPOINT.version


def test_of_a_training_in_several_epochs_the_last_goes_on(tiny):
    """State-dir 1 -> 2."""
    (tiny.state_dir / "commits").mkdir(parents=True)
    (tiny.state_dir / "format.json").write_text('{"version": 1}')
    for name in ("epoch2-a-1", "epoch10-a-1", "epoch9-a-1", "epoch3-b-2"):
        (tiny.state_dir / name).mkdir()
        (tiny.state_dir / name / "run.json").write_text(name)
    for _ in range(2):  # and again, if it was interrupted before its version was written
        (tiny.state_dir / "format.json").write_text('{"version": 1}')
        ServerState(tiny.state_dir).close()
        folders = {p.parent.name: p.read_text() for p in tiny.state_dir.glob("*/run.json")}
        assert folders["training-a-1"] == "epoch10-a-1"
        assert folders["training-b-2"] == "epoch3-b-2"
    assert set(folders) == {"training-a-1", "training-b-2", "epoch2-a-1", "epoch9-a-1"}


def test_a_checkpoint_with_history_and_memory_in_it_is_gone_on_with(version_1):
    (path,) = version_1.state_dir.glob("epoch1-*/checkpoint.npz")
    assert notes_of(path)["version"] == 1
    before = checkpoints.read_checkpoint(path)
    with np.load(path) as file:
        remembered = file["memory"]
    assert [note.round for note in before.history] == [0, 1, 2, 3]
    assert remembered.any(axis=1).sum() == len(before.unfiled) > 0
    model = version_1.run(5, **SETTINGS)
    np.testing.assert_allclose(model.ravel(), expected_after_5_rounds(version_1), rtol=1e-12)
    (path,) = version_1.state_dir.glob("training-*/checkpoint.npz")
    after = checkpoints.read_checkpoint(path)
    assert notes_of(path)["version"] == CHECKPOINT.version
    assert after.history[:4] == before.history
    assert [note.round for note in after.history] == [0, 1, 2, 3, 4, 5]
    assert not after.unfiled


def test_a_history_without_metrics_of_sites_is_gone_on_with(tmp_path):
    """Checkpoint 2 -> 3: the rounds that were are as they were, those to come have metrics."""
    old = unpacked("checkpoint-version-2.zip", tmp_path)
    (path,) = old.state_dir.glob("training-*/checkpoint.npz")
    assert notes_of(path)["version"] == 2
    before = checkpoints.read_checkpoint(path)
    model = old.run(5, grid=old.grid(evaluate=measured), **SETTINGS)
    old.close()
    np.testing.assert_allclose(model.ravel(), expected_after_5_rounds(old), rtol=1e-12)
    after = checkpoints.read_checkpoint(path)
    assert notes_of(path)["version"] == CHECKPOINT.version
    assert after.history[:4] == before.history
    assert not any(note.evaluation for note in before.history)
    assert after.history[5].evaluation.pooled["n"] > 0
    assert "n over all sites" in write_page(path.parent).read_text()


def test_a_state_dir_and_a_checkpoint_from_before_quarantine_are_gone_on_with(tmp_path):
    """State-dir 2 -> 3, checkpoint 3 -> 4."""
    old = unpacked("checkpoint-version-3.zip", tmp_path)
    assert format_of(old.state_dir)["version"] == 2
    (path,) = old.state_dir.glob("training-*/checkpoint.npz")
    assert notes_of(path)["version"] == 3
    model = old.run(5, **SETTINGS)
    old.close()
    np.testing.assert_allclose(model.ravel(), expected_after_5_rounds(old), rtol=1e-12)
    assert notes_of(path)["version"] == CHECKPOINT.version
    assert format_of(old.state_dir)["version"] == STATE_DIR.version
    assert checkpoints.read_checkpoint(path).sizes


def test_withdrawals_from_before_owners_signed_them_are_signed(tmp_path):
    """State-dir 4 -> 5, stores 5 -> 6."""
    old = unpacked("state-dir-version-4.zip", tmp_path)
    assert format_of(old.state_dir)["version"] == 4
    before = ServerState(old.state_dir)
    listed = before.commit()
    before.close()
    assert (listed.withdrawn[1], listed.signed) == ((0,), ())
    model = old.run(5, **SETTINGS)
    old.close()
    np.testing.assert_allclose(model.ravel(), expected_after_5_rounds(old), rtol=1e-12)
    after = ServerState(old.state_dir)
    signed = after.commit()
    after.close()
    assert signed.withdrawn == listed.withdrawn
    assert is_owners_word(signed, 1)
    assert format_of(old.state_dir)["version"] == STATE_DIR.version


def test_a_checkpoint_and_stores_from_before_late_answers_are_gone_on_with(tmp_path):
    """Checkpoint 4 -> 5, stores 4 -> 5."""
    old = unpacked("checkpoint-version-4.zip", tmp_path)
    (path,) = old.state_dir.glob("training-*/checkpoint.npz")
    assert notes_of(path)["version"] == 4
    model = old.run(5, **SETTINGS)
    old.close()
    np.testing.assert_allclose(model.ravel(), expected_after_5_rounds(old), rtol=1e-12)
    assert notes_of(path)["version"] == CHECKPOINT.version
    assert checkpoints.read_checkpoint(path).owed == {}
    with old.store("a") as store:
        assert store.database.version == store_format.VERSION
        store.kept.keep("training", 1, {}, {})


def test_a_checkpoint_from_before_step_control_is_gone_on_with(tmp_path):
    """Checkpoint 5 -> 6."""
    old = unpacked("checkpoint-version-5.zip", tmp_path)
    (path,) = old.state_dir.glob("training-*/checkpoint.npz")
    assert notes_of(path)["version"] == 5
    model = old.run(5, **SETTINGS)
    old.close()
    np.testing.assert_allclose(model.ravel(), expected_after_5_rounds(old), rtol=1e-12)
    assert checkpoints.read_checkpoint(path).secants.values == {}


def test_a_checkpoint_from_before_corrections_is_gone_on_with(tmp_path):
    """Checkpoint 6 -> 7."""
    old = unpacked("checkpoint-version-6.zip", tmp_path)
    (path,) = old.state_dir.glob("training-*/checkpoint.npz")
    assert notes_of(path)["version"] == 6
    model = old.run(5, **SETTINGS)
    old.close()
    np.testing.assert_allclose(model.ravel(), expected_after_5_rounds(old), rtol=1e-12)
    assert checkpoints.read_checkpoint(path).anchors == {}


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("name", ["answers", "history", "checkpoint"])
def test_a_server_that_dies_as_it_upgrades_goes_on(version_1, name, side):
    def main() -> None:
        durable.reached = die_at(f"server.{name}:{side}")
        version_1.run(5, **SETTINGS)

    assert in_child(main) == -signal.SIGKILL
    model = version_1.run(5, **SETTINGS)
    np.testing.assert_allclose(model.ravel(), expected_after_5_rounds(version_1), rtol=1e-12)


def test_a_new_state_dir_has_the_present_version_at_once(tiny):
    state = ServerState(tiny.state_dir)
    state.close()
    assert format_of(tiny.state_dir) == {
        "format": "fedcommons.server-state",
        "version": STATE_DIR.version,
    }


def test_a_state_dir_from_the_future_is_refused_with_both_versions(tiny):
    tiny.run(1)
    path, later = tiny.state_dir / "format.json", STATE_DIR.version + 1
    path.write_text(json.dumps({"version": later}))
    message = f"state-dir format has version {later}, .* reads up to version {STATE_DIR.version}"
    for _ in range(2):  # it is not held after the refusal
        with pytest.raises(FederationError, match=message):
            tiny.run(2)


def test_a_checkpoint_from_the_future_is_refused_with_both_versions(tiny):
    tiny.run(1)
    (path,) = tiny.state_dir.glob("training-*/checkpoint.npz")
    rewritten(path, version=CHECKPOINT.version + 1)
    message = (
        f"checkpoint format has version {CHECKPOINT.version + 1}, "
        f".* reads up to version {CHECKPOINT.version}"
    )
    with pytest.raises(FederationError, match=message):
        tiny.run(2)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": "one"}'])
def test_a_damaged_version_is_named(tiny, content):
    tiny.run(1)
    (tiny.state_dir / "format.json").write_text(content)
    with pytest.raises(FederationError, match=r"format.json (is damaged|cannot be read)"):
        tiny.run(2)


@pytest.mark.parametrize(
    "changes",
    [
        {"round": 7},
        {"round": "many"},
        {"history_bytes": 0},
        {"history_bytes": "all"},
        {"memory": {"a": [1]}},
        {"commit": [1]},
        {"layout": "beta"},
        {"straggler_prob": ["x"]},
    ],
    ids=str,
)
def test_a_checkpoint_whose_notes_cannot_be_is_damaged(tiny, changes):
    tiny.run(1)
    (path,) = tiny.state_dir.glob("training-*/checkpoint.npz")
    rewritten(path, **changes)
    with pytest.raises(FederationError, match=r"checkpoint.npz is damaged"):
        checkpoints.read_checkpoint(path)


def test_the_next_change_of_a_format_is_one_entry():
    """Each function makes one version of the one before; the number follows from the list."""
    numbers = Format("list", upgrades=(lambda x: [*x, 1], lambda x: [*x, 2], lambda x: [*x, 3]))
    assert numbers.version == 3
    assert numbers.upgraded([], 0, Path("x")) == [1, 2, 3]
    assert numbers.upgraded([], 2, Path("x")) == [3]
    assert numbers.upgraded([], 3, Path("x")) == []


def test_an_upgrade_of_checkpoints_is_applied_when_they_are_read(tiny, monkeypatch):
    tiny.run(1)
    (path,) = tiny.state_dir.glob("training-*/checkpoint.npz")

    def renamed(saved):
        saved.notes["initial"] = "as the next version has it"
        return saved

    later = Format("checkpoint", (*CHECKPOINT.upgrades, renamed))
    monkeypatch.setattr(checkpoints, "CHECKPOINT", later)
    assert checkpoints.read_checkpoint(path).initial == "as the next version has it"
    assert formats.CHECKPOINT.version == later.version - 1


# What changed with joint draws and chains of commits: state-dir 2 -> 3, stores 2 -> 3


def test_an_upgraded_store_knows_whom_it_gave_what(old):
    """So that what an older version gave away counts against the most copies, too."""
    for name in old.names:
        shareable = int(old.data[name].shareable.sum())
        with old.store(name) as store:
            ((number, _, places, prints, *_),) = store.database.rows("given")
            assert (number, len(prints)) == (1, 16 * shareable)
            assert len(places) == 4 * old.copies * shareable
            found = np.frombuffer(prints, np.uint8).reshape(-1, 16)
            assert store.given.most_recipients(found, [[] for _ in found]) == old.copies
            assert store.given.n_exchanges == 1


def test_an_exchange_that_the_server_drew_is_given_up(tiny):
    tiny.run(1)
    tiny.close()
    exchange = tiny.state_dir / "exchange.json"
    old_form = {"epoch": json.dumps({"number": 2, "seed": 5}), "receipts": []}
    for _ in range(2):  # and again, if it was interrupted before its version was written
        exchange.write_text(json.dumps(old_form))
        (tiny.state_dir / "format.json").write_text('{"version": 2}')
        state = ServerState(tiny.state_dir)
        assert (state.given_up, state.exchange()) == (2, None)
        state.close()
    assert json.loads((tiny.state_dir / "exchange-version-2.json").read_text()) == old_form
    assert np.isfinite(tiny.run(2)).all()


def test_an_upgraded_server_names_all_commits_for_sites_that_were_away(old):
    before = [path.name for path in (old.state_dir / "commits").iterdir()]
    state = ServerState(old.state_dir)
    commit = state.commit()
    state.close()
    assert len(before) > 1
    assert len(commit.follows) == len(before)
    assert commit.serial == len(before)
