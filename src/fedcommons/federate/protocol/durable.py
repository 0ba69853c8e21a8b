"""Writes that survive the death of the process at any instant, readable by their owner alone.

Every durable write of every party passes a named point before and after it takes effect, so that
a rehearsal can kill the process exactly there: FEDCOMMONS_CRASH_AT=store.received:after. With
FEDCOMMONS_CRASH_ONCE=FILE it dies only while there is no such file, and leaves it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from fedcommons.errors import FederationError


def _die_where_asked(point: str) -> None:
    if os.environ.get("FEDCOMMONS_CRASH_AT") != point:
        return
    if once := os.environ.get("FEDCOMMONS_CRASH_ONCE"):
        try:
            Path(once).touch(exist_ok=False)
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


reached: Callable[[str], None] = _die_where_asked
"""Called with `name:before` and `name:after` around every durable write."""


@contextlib.contextmanager
def point(name: str) -> Iterator[None]:
    """Around the one step that makes a write durable."""
    reached(f"{name}:before")
    yield
    reached(f"{name}:after")


def write_file(path: Path, content: bytes | memoryview, name: str) -> None:
    """Replace a file whole or not at all; after the return it is on the disk."""
    temporary = path.with_name(f".{path.name}.part")
    with _naming(path, "written"):
        try:
            with temporary.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            with point(name):
                temporary.replace(path)
                _sync_folder(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def move_into_place(part: Path, path: Path) -> None:
    """Give a file that was written under another name its own; after the return both are durable.

    For a file that is only a precaution: it has no crash point of its own.
    """
    with _naming(path, "written"):
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)


def remove_file(path: Path, name: str) -> None:
    """After the return the file is gone from the disk."""
    with _naming(path, "removed"), point(name):
        path.unlink(missing_ok=True)
        _sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """A folder that is on the disk after the return: so are files written into it.

    One that is there already stays as it is, with whoever may read it.
    """
    if not path.is_dir():
        with _naming(path, "made"):
            path.mkdir(exist_ok=True, mode=0o700)
            _sync_folder(path.parent)


@contextlib.contextmanager
def _naming(path: Path, what: str) -> Iterator[None]:
    """What the system refuses, as an error that says where: a full disk, for one."""
    try:
        yield
    except OSError as error:
        raise FederationError(f"{path} cannot be {what}: {error.strerror or error}") from None


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Lock:
    """Holds a folder for this process alone; it ends with the process, however that ends."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise FederationError(f"state-dir {folder} cannot be written: {error}") from None
        self.release = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise FederationError(f"state-dir {folder} is in use by another run") from None
