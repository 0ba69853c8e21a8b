"""Ending what a deployment started, down to processes that nobody waits for any more."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType


def processes_of(home: Path) -> list[int]:
    """All processes with an FLWR_HOME below this folder, orphans too; none without /proc."""
    mark = f"FLWR_HOME={home}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def end_processes_of(home: Path) -> None:
    """Kill what is left: the SuperLink's helper processes have process groups of their own.

    Without /proc they are not found, but end by themselves when they notice that their parent did.
    """
    end = time.monotonic() + 5
    while (left := processes_of(home)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if noted:
            signal.raise_signal(noted[0])
