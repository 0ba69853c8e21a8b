"""Writes that are whole even if the process is killed; only their owner may read them.

Every durable write of every party passes a named crash point before and after it takes effect, so
that a test or a rehearsal can kill the process there: FEDCOMMONS_CRASH_AT=store.received:after.
With FEDCOMMONS_CRASH_ONCE=FILE it is killed only if FILE does not exist, and FILE is made.
"""

from __future__ import annotations

import contextlib
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from fedcommons.errors import FederationError
from fedcommons.locks import fcntl

BLOCK = 1 << 20  # bytes


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
    """Wraps the one step that makes a write durable."""
    reached(f"{name}:before")
    yield
    reached(f"{name}:after")


def write_file(
    path: Path, content: bytes | memoryview | Callable[[IO[bytes]], object], name: str
) -> None:
    """Replace a file as a whole or not at all; it is on the disk when this returns.

    `content` may write itself to the file.
    """
    temporary = path.with_name(f".{path.name}.part")
    with naming(path, "written"):
        try:
            with temporary.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                if callable(content):
                    content(file)
                else:
                    file.write(content)
                file.flush()
                os.fsync(file.fileno())
            with point(name):
                temporary.replace(path)
                sync_folder(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def write_for_show(path: Path, content: bytes) -> None:
    """Replace a file that nothing rests on: it is whole, but may be lost, or not be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with contextlib.suppress(OSError):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
        temporary.replace(path)


def append_to_file(path: Path, content: bytes, length: int, name: str) -> None:
    """Have a file hold `content` after its first `length` bytes, and nothing more.

    It is on the disk when this returns; if it does not return, the first bytes are as they were.
    """
    with naming(path, "written"), path.open("ab") as file, point(name):
        is_new = not length
        os.fchmod(file.fileno(), 0o600)
        os.ftruncate(file.fileno(), length)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        if is_new:
            sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """What was written to a file is on the disk when this returns."""
    with naming(path, "written"), path.open("rb") as file:
        os.fsync(file.fileno())


def move_into_place(part: Path, path: Path) -> None:
    """Rename a file that was written under another name; it is on the disk when this returns.

    It has no crash point: it is meant for files that are only a precaution.
    """
    with naming(path, "written"):
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)


def remove_file(path: Path, name: str) -> None:
    """Remove a file; it is gone from the disk when this returns."""
    with naming(path, "removed"), point(name):
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def overwrite(path: Path) -> None:
    """Write zeros over a file that is to be removed."""
    with path.open("r+b") as file:
        for _ in range(-(-path.stat().st_size // BLOCK)):
            file.write(bytes(BLOCK))
        file.flush()
        os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """Make a folder that is on the disk when this returns, so files in it can be too.

    An existing folder is left as it is, permissions included.
    """
    if not path.is_dir():
        with naming(path, "made"):
            path.mkdir(exist_ok=True, mode=0o700)
            sync_folder(path.parent)


@contextlib.contextmanager
def naming(path: Path, what: str) -> Iterator[None]:
    """Turn an error of the system (a full disk, say) into one that names the path."""
    try:
        yield
    except OSError as error:
        raise FederationError(f"{path} cannot be {what}: {error.strerror or error}") from None


def sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class FolderInUseError(FederationError):
    """Another process holds the folder."""


class Lock:
    """Reserves a folder for this process until it ends, however it ends."""

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
            raise FolderInUseError(f"state-dir {folder} is in use by another run") from None
