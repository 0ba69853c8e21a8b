"""What the server remembers of each site lies in files beside the checkpoint, which names them."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcommons import estimators
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.model_schema import ModelSchema
from fedcommons.federate.server import answer_files, checkpoints, estimation
from fedcommons.federate.server.answer_files import AnswerFiles
from fedcommons.federate.server.withdrawals import holders_of_what_left
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid
from fedcommons.stragglers import Bernoulli
from tests.federate.tiny import Tiny, die_at, in_child, initial, rows_of, trace, train
from tests.odd_parts import damped

pytestmark = pytest.mark.usefixtures("impatient")

REHEARSED = {"stragglers": Bernoulli(0.5), "straggler_prob": 0.5, "seed": 4}
WAYS = {
    "memory, warm": {"estimator": "memory", "warm": True},
    "damped": {"estimator": "tests.odd_parts:damped"},
}


@pytest.fixture
def tiny(tmp_path):
    found = Tiny(tmp_path / "tiny")
    yield found
    found.close()


@pytest.fixture
def small_files(monkeypatch):
    """Two answers of `Tiny` fill a file."""
    monkeypatch.setattr(answer_files, "FILE_BYTES", 2 * 15 * 8)


def folder_of(tiny: Tiny) -> Path:
    (path,) = tiny.state_dir.glob("training-*")
    return path


def files_of(tiny: Tiny) -> set[str]:
    return {path.name for path in (folder_of(tiny) / "answers").iterdir()}


def named_by(tiny: Tiny) -> set[str]:
    saved = checkpoints.read_checkpoint(folder_of(tiny) / "checkpoint.npz")
    return {f"{row.file:06d}.float64" for row in (saved.memory or {}).values()}


# What is estimated


@pytest.mark.parametrize(
    "estimator", [estimators.memory, damped, estimators.coded_sum, estimators.blended]
)
@pytest.mark.parametrize("block", [1, 7, 30, 1000])
def test_the_estimate_in_blocks_is_the_estimate(tmp_path, monkeypatch, estimator, block):
    monkeypatch.setattr(estimation, "BLOCK", block)
    monkeypatch.setattr(estimation, "SOME", block)
    monkeypatch.setattr(answer_files, "CACHED_BYTES", 4 * block)
    monkeypatch.setattr(answer_files, "FILE_BYTES", 60)
    rng, p = np.random.default_rng(0), np.array([0.1, 0.5, 0.3])
    answers, state = rng.normal(size=(2, 3, 10)).astype(np.float32)
    answered = np.array([True, False, True])
    state[2] = 0
    files = AnswerFiles(tmp_path / "answers", 10, np.float32)
    old = [files.put([row]) if row.any() else None for row in state]
    new = [
        files.put([row]) if there else None for row, there in zip(answers, answered, strict=True)
    ]
    if not estimator.remembers:
        state = old = None
    heard, W = np.array([True, True, False]), np.array([1.0, 2.0, 0.5])
    arrived = replace(estimators.Arrivals.now_or_never(answered), heard=heard, shares=W)
    expected, remembered = estimators.estimate(estimator, state, answers, arrived, p)
    found, rows = estimation.estimate(estimator, files, new, old, arrived, p)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    if estimator.remembers:
        np.testing.assert_array_equal(rows_of(files, rows), remembered.astype(np.float32))
        for row in filter(None, rows):
            files.check(row)


class Reversed(EmbeddedGrid):
    """The last one that was asked answers first."""

    def push_messages(self, messages):
        return list(super().push_messages(list(messages)[::-1]))[::-1]


@pytest.mark.parametrize("way", WAYS)
def test_who_answers_first_does_not_matter(tmp_path, tiny, way):
    other = Tiny(tmp_path / "other")
    settings = {**REHEARSED, **WAYS[way]}
    found = tiny.run(5, **settings)
    assert other.run(5, grid=other.grid(Reversed), **settings).tobytes() == found.tobytes()
    other.close()


def test_answers_of_float32_are_kept_as_they_came(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 2, model=initial("float32"), estimator="memory")
        saved = federation.state.newest_checkpoint()
    assert saved.model.dtype == np.float32
    schema = ModelSchema.of({"beta": initial("float32")["beta"].numpy()})
    files = AnswerFiles(folder_of(tiny) / "answers", schema.n_params, schema.precision)
    assert {path.suffix for path in files.folder.iterdir()} == {".float32"}
    for row in saved.memory.values():
        files.check(row)


# What is on the disk


@pytest.mark.usefixtures("small_files")
def test_files_of_sites_that_did_not_answer_are_not_rewritten(tiny):
    settings = {"estimator": "memory", "straggler_prob": 0.5}
    settings["stragglers"] = trace("abcd", "ab", "ab", "ab")
    tiny.run(1, **settings)
    folder = folder_of(tiny) / "answers"
    before = {path.name: path.stat() for path in folder.iterdir()}
    assert len(before) == 2  # a and b in one, c and d in the other
    tiny.run(4, **settings)
    (stayed,) = files_of(tiny) & set(before)
    after = (folder / stayed).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before[stayed].st_ino, before[stayed].st_mtime_ns)
    assert files_of(tiny) == named_by(tiny)


def test_files_together_stay_below_twice_what_is_remembered(tmp_path):
    files = AnswerFiles(tmp_path / "answers", 10, np.float32)
    rng, n = np.random.default_rng(0), 50
    expected = rng.normal(size=(n, 10)).astype(np.float32)
    rows = [files.put([values]) for values in expected]
    for _ in range(40):
        rows = files.settle(rows)
        files.sweep(rows)
        size = sum(path.stat().st_size for path in files.folder.iterdir())
        assert size <= 2 * n * files.row_bytes
        for i in np.flatnonzero(rng.random(n) < 0.2):
            expected[i] = rng.normal(size=10)
            rows[i] = files.put([expected[i]])
    np.testing.assert_array_equal(rows_of(files, rows), expected)


def test_without_memory_no_answer_stays(tiny):
    tiny.run(2)
    assert files_of(tiny) == set()


def test_a_withdrawal_clears_what_absent_holders_answered(tiny):
    """Their rows leave the disk, not only the sum, although others shared the file with them."""
    settings = {"estimator": "memory", "straggler_prob": 0.2}
    tiny.run(2, sharing={"seed": 7}, **settings)
    saved = checkpoints.read_checkpoint(folder_of(tiny) / "checkpoint.npz")
    (before,) = {row.file for row in saved.memory.values()}  # all in one
    path = folder_of(tiny) / "answers" / f"{before:06d}.float64"
    content = path.read_bytes()
    with tiny.shared(grid := tiny.grid(without="d"), leave=["c"]) as federation:
        first = federation.state.commit_of((1, 0))
        affected = holders_of_what_left(first, federation.commit)
        train(federation, grid, 2, **settings)  # no round is left
    assert 3 in affected  # d was away
    saved = checkpoints.read_checkpoint(folder_of(tiny) / "checkpoint.npz")
    assert set(saved.memory) == {
        m.identity for place, m in enumerate(first.members) if place not in affected
    }
    held = b"".join(path.read_bytes() for path in (folder_of(tiny) / "answers").iterdir())
    for place in range(4):
        row = content[place * 120 : (place + 1) * 120]
        assert (row in held) == (place not in affected)


def test_a_withdrawal_leaves_what_the_checkpoint_names_until_there_is_another(tiny, monkeypatch):
    """A server that dies before the round is over still finds it, one file for each answer."""
    monkeypatch.setattr(answer_files, "FILE_BYTES", 1)
    settings = {"estimator": "memory", "straggler_prob": 0.2}
    tiny.run(2, **settings)
    tiny.withdraw("b", 0)

    def main() -> None:
        durable.reached = die_at("server.answers:before")
        tiny.run(3, **settings)

    assert in_child(main) == -signal.SIGKILL
    tiny.close()
    tiny.run(3, **settings)
    assert files_of(tiny) == named_by(tiny)


def test_files_of_no_use_are_written_over(tmp_path):
    """Of another number, so that no checkpoint means them, and as long as what is in them."""
    files = AnswerFiles(tmp_path / "answers", 10, np.float32)
    rows = [files.put([np.full(10, i, np.float32)]) for i in range(3)]
    (old,) = files.folder.iterdir()
    inode = old.stat().st_ino
    files.settle(rows)
    files.sweep([], reuse=True)
    row = files.put([np.ones(10, np.float32)])
    (row,) = files.settle([row])
    (new,) = files.folder.iterdir()
    assert (new.stat().st_ino, new.stat().st_size) == (inode, files.row_bytes)
    assert new != old
    files.check(row)


# Whatever ended a run


def writes_of(settings: dict, folder: Path) -> list[str]:
    """Every durable write and every removal of a run of three rounds, in order."""
    tiny, found = Tiny(folder), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "reached", found.append)
        tiny.run(3, **settings)
    tiny.close()
    return [point for point in found if point.startswith("server.")]


def dies_at(nth: int, tiny: Tiny, settings: dict) -> None:
    """The server dies at its nth change of the disk: a write, or a removal."""

    def main() -> None:
        left = [nth]

        def tick(*_arguments: object) -> None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        durable.reached = lambda point: tick() if point.startswith("server.") else None
        unlink = Path.unlink

        def unlinked(path: Path, missing_ok: bool = False) -> None:
            tick()
            unlink(path, missing_ok)

        Path.unlink = unlinked
        rename = Path.rename

        def renamed(path: Path, target: Path) -> Path:
            tick()
            return rename(path, target)

        Path.rename = renamed
        tiny.run(3, **settings)

    assert in_child(main) in (0, -signal.SIGKILL)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("way", WAYS)
def test_a_server_killed_between_any_two_changes_of_the_disk_goes_on(tmp_path, way):
    settings = {**REHEARSED, **WAYS[way]}
    expected = Tiny(tmp_path / "whole").run(3, **settings).tobytes()
    begun = Tiny(tmp_path / "begun")
    with begun.shared():
        pass
    begun.close()
    n = len(writes_of(settings, tmp_path / "counted"))
    for nth in range(n + 8):
        shutil.copytree(begun.folder, tmp_path / f"{nth}")
        tiny = Tiny(tmp_path / f"{nth}")
        dies_at(nth, tiny, settings)
        assert tiny.run(3, **settings).tobytes() == expected
        assert files_of(tiny) == named_by(tiny)
        rounds = checkpoints.read_checkpoint(folder_of(tiny) / "checkpoint.npz").history
        assert [note.round for note in rounds] == [0, 1, 2, 3]
        tiny.close()
        shutil.rmtree(tiny.folder)


def test_what_a_dead_run_wrote_after_the_checkpoint_does_not_count(tiny):
    settings = {**REHEARSED, "estimator": "memory"}
    expected = tiny.run(2, **settings)
    tiny.close()
    folder = folder_of(tiny)
    with (folder / "history.jsonl").open("a") as file:
        file.write('{"round":3,')
    (folder / "answers" / "000999.float64").write_bytes(b"half of an answer")
    assert tiny.run(2, **settings).tobytes() == expected.tobytes()
    tiny.run(3, **settings)
    assert files_of(tiny) == named_by(tiny)
    lines = (folder / "history.jsonl").read_text().splitlines()
    assert len(lines) == 4


DAMAGE = {
    "gone": lambda path: path.unlink(),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-8]),
    "changed": lambda path: path.write_bytes(b"\x01" + path.read_bytes()[1:]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_answers_is_named(tiny, damage):
    tiny.run(2, estimator="memory")
    (path,) = (folder_of(tiny) / "answers").iterdir()
    DAMAGE[damage](path)
    with pytest.raises(FederationError, match=f"{path} is damaged"):
        tiny.run(3, estimator="memory")


@pytest.mark.parametrize("content", [b"", b"[1]\n" * 1000, bytes(10_000)])
def test_a_damaged_history_is_named(tiny, content):
    tiny.run(2)
    path = folder_of(tiny) / "history.jsonl"
    path.write_bytes(content)
    with pytest.raises(FederationError, match=f"{path} is damaged"):
        tiny.run(3)


def test_the_checkpoint_does_not_grow_with_rounds_nor_with_sites(tiny):
    sizes = []
    for rounds in (2, 12):
        tiny.run(rounds, estimator="memory")
        sizes.append((folder_of(tiny) / "checkpoint.npz").stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 100
