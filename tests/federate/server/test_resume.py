"""Whatever ended a run, the next one goes on where it was."""

import dataclasses
import errno
import os
import shutil
import signal
import stat

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.server import coordinator
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.flower_link import FlowerLink
from fedcommons.stragglers import Bernoulli, Markov
from tests.federate.tiny import (
    Counting,
    Tiny,
    die_at,
    in_child,
    outcomes,
    serving,
    train,
    trained_model,
)

pytestmark = pytest.mark.usefixtures("impatient")

TRACE = {"stragglers": Bernoulli(0.5), "straggler_prob": 0.5, "seed": 4}
WAYS = {
    "paper": {},
    "memory": {"estimator": "memory"},
    "memory, warm": {"estimator": "memory", "warm": True},
    "owner-corrected": {"code": "owner-corrected"},
    "adam": {"server_optimizer": "adam"},
    "memory, momentum": {"estimator": "memory", "server_optimizer": "momentum"},
}


@pytest.fixture
def tiny(tmp_path):
    found = Tiny(tmp_path / "tiny")
    yield found
    found.close()


def run_and_die(tiny: Tiny, point: str, times: int, **settings) -> None:
    def main():
        durable.reached = die_at(point, times)
        tiny.run(6, **settings)

    assert in_child(main) == -signal.SIGKILL


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("k", [1, 4])
def test_a_server_killed_in_a_round_reaches_the_same_model(tmp_path, tiny, way, side, k):
    settings = {**TRACE, **WAYS[way]}
    whole = Tiny(tmp_path / "whole")
    expected = whole.run(6, **settings)
    whole.close()
    checkpoints = k + (way == "memory, warm")
    run_and_die(tiny, f"server.checkpoint:{side}", checkpoints, **settings)
    grid = tiny.grid(Counting)
    assert tiny.run(6, grid=grid, **settings).tobytes() == expected.tobytes()
    assert not [sent for sent in grid.sent if sent[1] == messages.SEND]


def test_a_resumed_training_knows_how_often_sites_were_missing(tmp_path, tiny):
    settings = {"stragglers": Markov(0.4, 3.0), "seed": 1}
    whole = Tiny(tmp_path / "whole")
    expected = whole.run(6, **settings)
    whole.close()
    run_and_die(tiny, "server.checkpoint:after", 3, **settings)
    assert tiny.run(6, **settings).tobytes() == expected.tobytes()


@pytest.mark.parametrize("way", WAYS)
def test_more_rounds_later_are_the_same_training(tmp_path, tiny, way):
    settings = {**TRACE, **WAYS[way]}
    whole = Tiny(tmp_path / "whole")
    expected = whole.run(6, **settings)
    whole.close()
    tiny.run(2, **settings)
    tiny.run(4, **settings)
    assert tiny.run(6, **settings).tobytes() == expected.tobytes()
    assert tiny.run(3, **settings).tobytes() == expected.tobytes()  # it is at round 6


def test_another_estimator_takes_up_the_exchange(tiny):
    tiny.run(2)
    grid = tiny.grid(Counting)
    tiny.run(2, grid=grid, estimator="memory")
    assert {kind for _, kind in grid.sent} == {messages.OFFER, "train"}
    assert len(list(tiny.state_dir.glob("training-*"))) == 2


def test_other_copies_need_a_new_exchange(tiny):
    tiny.run(1)
    with pytest.raises(FederationError, match="copies is 1, but the exchange was made with 2"):
        tiny.run(1, sharing={"copies": 1})
    tiny.run(1, sharing={"copies": 1, "reshare": True})
    with tiny.shared(copies=1) as federation:
        assert (federation.commit.number, federation.commit.copies) == (2, 1)


def test_a_state_dir_is_for_one_run_at_a_time(tiny):
    with tiny.shared(), pytest.raises(FederationError, match="in use by another run"):
        tiny.run(1)
    tiny.run(1)


def test_a_state_dir_is_free_again_after_a_failure(tiny):
    failures = []  # kept: what an exception refers to lives on
    for options in ({"copies": 9}, {"leave": ["nobody"]}):
        with pytest.raises(FederationError) as failure:
            tiny.run(1, sharing=options)
        failures.append(failure)
    tiny.run(1)


def test_a_state_dir_must_be_absolute_and_of_this_federation(tiny):
    tiny.run(1)
    grid = tiny.grid()
    for folder, name, message in (
        (tiny.state_dir, "others", "belongs to the federation 'hospitals'"),
        (tiny.state_dir.relative_to("/"), "hospitals", "must be an absolute path"),
    ):
        options = {"federation": name, "state_dir": folder, "run_id": grid.run_id, "copies": 2}
        with pytest.raises(FederationError, match=message):
            serving(grid, lambda options=options: coordinator.share(FlowerLink(grid), **options))


def test_a_lost_state_dir_adopts_the_newest_commit_that_sites_report(tiny):
    tiny.run(2)
    tiny.withdraw("b", 0)
    tiny.run(4)  # commit (1, 1); a site that is away keeps (1, 0)
    with tiny.shared() as federation:
        before = federation.commit
    assert before.order == (1, 1)
    shutil.rmtree(tiny.state_dir)
    grid = tiny.grid(Counting)
    with tiny.shared(grid) as federation:
        assert federation.commit.record == before.record
        _, notes = train(federation, grid, 1)
    assert notes[0]["round"] == 1  # the model was lost with it: training begins anew
    assert set(outcomes(notes[0]).values()) == {"answered"}
    assert messages.SEND not in {kind for _, kind in grid.sent}


def test_an_older_state_dir_adopts_what_happened_since(tiny, tmp_path):
    tiny.run(2)
    shutil.copytree(tiny.state_dir, tmp_path / "backup")
    tiny.withdraw("b", 0)
    tiny.run(4)
    shutil.rmtree(tiny.state_dir)
    shutil.copytree(tmp_path / "backup", tiny.state_dir)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        assert federation.commit.order == (1, 1)
        _, notes = train(federation, grid, 4)
    assert [note["round"] for note in notes] == [3, 4]
    assert set(outcomes(notes[0]).values()) == {"answered"}


@pytest.mark.parametrize(
    "file", ["exchange.json", "commits/00001-00000.json", "training-*/checkpoint.npz"]
)
@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", bytes(40)], ids=["empty", "object", "list", "zeros"]
)
def test_a_damaged_file_is_named(tiny, file, content):
    tiny.run(1)
    path = next(tiny.state_dir.glob(file))
    path.write_bytes(content)
    with pytest.raises(FederationError, match=rf"{path.name} (is damaged|cannot be read)"):
        tiny.run(2)


def test_a_damaged_checkpoint_of_another_training_is_passed_over(tiny, caplog):
    tiny.run(1)
    path = next(tiny.state_dir.glob("training-*/checkpoint.npz"))
    path.write_bytes(b"nothing")
    tiny.run(1, estimator="memory")
    assert f"{path} is damaged" in caplog.text
    with pytest.raises(FederationError, match=f"{path} is damaged"):
        tiny.run(2)


def test_a_checkpoint_that_lacks_something_is_damaged(tiny):
    tiny.run(1)
    path = next(tiny.state_dir.glob("training-*/checkpoint.npz"))
    with np.load(path) as file:
        np.savez(path, **{name: file[name] for name in file.files if name != "missed"})
    with pytest.raises(FederationError, match=r"checkpoint.npz is damaged: it lacks 'missed'"):
        tiny.run(2)


def test_a_half_written_file_of_a_dead_process_does_not_count(tiny):
    tiny.run(1)
    (tiny.state_dir / "commits" / ".00009-00000.json.part").write_bytes(b"{")
    assert np.isfinite(tiny.run(2)).all()


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_a_full_disk_is_said_with_the_file_and_leaves_nothing_behind(tiny, monkeypatch, call):
    expected = tiny.run(1)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        federation.state.questions.fresh()  # so that numbers are reserved
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            path = next(tiny.state_dir.glob("training-*")) / "history.jsonl"
            with pytest.raises(FederationError, match=f"{path} cannot be written: No space left"):
                train(federation, grid, 2)
    assert not list(tiny.state_dir.rglob(".*.part"))
    assert tiny.run(1).tobytes() == expected.tobytes()  # the last round is still there


def test_only_its_owner_may_read_what_the_server_keeps(tiny):
    before = os.umask(0o022)
    try:
        tiny.state_dir.mkdir(parents=True)
        tiny.state_dir.chmod(0o750)  # of the operator's own making: left as it is
        tiny.run(1)
        durable.Lock(tiny.folder / "new").release()
    finally:
        os.umask(before)
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in tiny.state_dir.rglob("*")}
    assert {modes[path] for path in modes if path.is_dir()} == {0o700}
    assert {modes[path] for path in modes if path.is_file()} == {0o600}
    assert stat.S_IMODE(tiny.state_dir.stat().st_mode) == 0o750
    assert stat.S_IMODE((tiny.folder / "new").stat().st_mode) == 0o700


def test_the_newest_commit_is_found_beyond_five_digits(tiny):
    tiny.run(1)
    with tiny.shared() as federation:
        state, commit = federation.state, federation.commit
        for number in (99_999, 100_000):
            state.save_commit(dataclasses.replace(commit, number=number))
        assert state.commit().order == (100_000, 0)


def test_another_model_is_another_training(tiny):
    tiny.run(1)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        other = ArrayRecord({"beta": Array(np.zeros((9, 3)))})
        with pytest.raises(FederationError, match="holds the training of another model"):
            train(federation, grid, 2, model=other)


def test_an_unseeded_model_goes_on_from_the_one_that_the_training_began_with(tmp_path, caplog):
    """Also its arrays that are not trained, such as a random mask."""
    reached = []
    for k, second in enumerate((1.0, 7.0)):
        tiny = Tiny(tmp_path / str(k))
        for n, value in ((1, 1.0), (3, second)):
            grid = tiny.grid(train=trained_model_with_mask)
            mask = Array(np.full(2, int(value)))
            model = ArrayRecord({"beta": Array(np.full((5, 3), value)), "mask": mask})
            caplog.clear()
            with tiny.shared(grid) as federation:
                reached.append(train(federation, grid, n, model=model)[0])
            assert ("which is kept" in caplog.text) == (n == 3 and second != 1.0)
            tiny.close()
        with np.load(next(tiny.state_dir.glob("training-*/model.npz"))) as file:
            assert file["mask"].tolist() == [1, 1]
    assert reached[1].tobytes() == reached[3].tobytes()


def trained_model_with_mask(site, message, context):
    """A step on the arrays that the mask, as the server has it, lets through."""
    mask = message.content["arrays"]["mask"]
    reply = trained_model(0.1 * float(mask.numpy()[0]))(site, message, context)
    reply.content["arrays"]["mask"] = mask
    return reply


def test_what_the_training_functions_are_told_makes_another_training(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        for rate in (0.1, 0.2, 0.1):
            train(federation, grid, 2, config=ConfigRecord({"lr": rate}))
    assert len(list(tiny.state_dir.glob("training-*"))) == 2


def test_arrays_that_are_not_trained_stay(tiny):
    """Counters and the like pass through, whatever the sites make of them."""

    def with_counter(site, message, context):
        from tests.federate.tiny import gradient

        reply = gradient(site, message, context)
        reply.content["gradient"]["steps"] = Array(np.array([7]))
        return reply

    grid = tiny.grid(train=with_counter)
    model = ArrayRecord({"beta": Array(np.zeros((5, 3))), "steps": Array(np.array([3]))})
    with tiny.shared(grid) as federation:
        moved, notes = train(federation, grid, 1, model=model)
    assert moved.any()
    assert set(outcomes(notes[0]).values()) == {"answered"}


def test_the_lock_ends_with_its_process(tiny):
    def main():
        tiny.share(tiny.grid())
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(main) == -signal.SIGKILL
    tiny.run(1)
