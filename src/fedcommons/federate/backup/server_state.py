"""What a backup of a server's state-dir holds, as it is between two of the server's durable writes.

A run holds the folder's lock for as long as it lasts, and it may last for days. So the lock is left
to it: all is copied, and copied anew if any file was replaced meanwhile. Files that a checkpoint
names are not changed while it names them; the history is copied as far as it counts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

from fedcommons.errors import FederationError
from fedcommons.federate.backup.archive import is_plain_name
from fedcommons.federate.protocol import durable
from fedcommons.federate.server import live_round
from fedcommons.federate.server.answer_files import AnswerFiles
from fedcommons.federate.server.checkpoints import Checkpoint, read_checkpoint
from fedcommons.federate.server.commit_files import read_commit
from fedcommons.federate.server.formats import STATE_DIR
from fedcommons.federate.server.quarantine import Quarantine
from fedcommons.federate.server.state import ServerState, version_of

__all__ = ["KIND", "VERSION", "about", "copy", "is_one", "version_of"]

KIND, VERSION = "state-dir", STATE_DIR.version
CHECKPOINT, ANSWERS, GROWING = "checkpoint.npz", "answers", ".jsonl"
ELSEWHERE = ("simulation", "sites")  # of federations in one process
TRIES, PAUSE = 50, 0.2

Stamps = dict[str, tuple[int, int, int]]


def is_one(folder: Path) -> bool:
    return (folder / "format.json").exists() or (folder / "commits").is_dir()


def copy(folder: Path, target: Path) -> dict[str, Any]:
    """Copy a state-dir as it is at one moment, whether or not a run goes on; what it is of.

    The copy is in the present format and read as a whole.
    """
    if (folder / "sites").is_dir():
        raise FederationError(
            f"{folder} is that of a simulation, with the stores of all sites: copy the folder "
            "while nothing runs"
        )
    for _ in range(TRIES):
        before = _stamps(folder)
        try:
            _copy_files(folder, target, before)
        except FederationError:
            if _stamps(folder) == before:
                raise  # it was not that
        else:
            if _stamps(folder) == before:
                return about(target)
        shutil.rmtree(target)
        target.mkdir(mode=0o700)
        time.sleep(PAUSE)
    raise FederationError(
        f"{folder} changed while it was copied, {TRIES} times: make the backup between two runs"
    )


def about(folder: Path) -> dict[str, Any]:
    """What a state-dir is of, read as a whole; damage raises an error."""
    with contextlib.closing(ServerState(folder.absolute())) as state:
        commits = [read_commit(path) for path in sorted((folder / "commits").glob("*-*.json"))]
        state.exchange()
        Quarantine(folder)
        trainings = {}
        for path in sorted(folder.glob(f"training-*/{CHECKPOINT}")):
            saved = read_checkpoint(path)
            if saved is not None:
                _check_answers(path.parent, saved)
                trainings[path.parent.name] = saved.round
        newest = state.commit()
        return {
            "federation": commits[-1].federation if commits else None,
            "commit": list(newest.order) if newest else None,
            "withdrawn": sum(map(len, newest.withdrawn)) if newest else 0,
            "rounds": trainings,
        }


def _stamps(folder: Path) -> Stamps:
    """Which files there are, and what tells whether one was replaced."""
    found: Stamps = {}
    for root, folders, files in os.walk(folder):
        here = Path(root)
        if here == folder:
            folders[:] = [name for name in folders if name not in ELSEWHERE]
        folders[:] = [name for name in folders if name != ANSWERS]
        for file in sorted(files):
            path = here / file
            name = path.relative_to(folder).as_posix()
            if file.startswith(".") or file.endswith((".part", GROWING)) or file == live_round.NAME:
                continue
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                if not stat.S_ISREG(status.st_mode) or not is_plain_name(name):
                    raise FederationError(f"{path} is no file of a state-dir: move it elsewhere")
                found[name] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


def _copy_files(folder: Path, target: Path, names: Stamps) -> None:
    with durable.naming(target, "written"):
        (target / "commits").mkdir(exist_ok=True, mode=0o700)
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.copyfile(folder / name, target / name)
        for path in target.glob(f"*/{CHECKPOINT}"):
            training = folder / path.parent.name
            for growing in training.glob(f"[!.]*{GROWING}"):
                shutil.copyfile(growing, path.parent / growing.name)
            saved = read_checkpoint(path)
            if saved is not None and saved.memory:
                (path.parent / ANSWERS).mkdir(exist_ok=True, mode=0o700)
                for row in saved.memory.values():
                    file = _answers(path.parent, saved).path(row.file)
                    if not file.exists():
                        shutil.copyfile(training / ANSWERS / file.name, file)


def _check_answers(training: Path, saved: Checkpoint) -> None:
    for row in (saved.memory or {}).values():
        _answers(training, saved).check(row)


def _answers(training: Path, saved: Checkpoint) -> AnswerFiles:
    return AnswerFiles(training / ANSWERS, len(saved.model), saved.model.dtype)
