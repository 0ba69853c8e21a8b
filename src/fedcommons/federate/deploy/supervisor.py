"""A supervisor: it starts a process again whenever it ends, as a SuperNode needs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedcommons.errors import FederationError

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 4.0
GRACE = 8.0  # seconds from asking a process to end until it is killed
POLL = 0.1


class Process:
    """A process in its own process group, with its output appended to a log."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        self._printed: set[str] = set()
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as sink:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def exit_code(self) -> int | None:
        return self._popen.poll()

    def output(self) -> str:
        """What it has printed so far."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def has_printed(self, text: str) -> bool:
        if text not in self._printed and text in self.output():
            self._printed.add(text)
        return text in self._printed

    def wait(self, seconds: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._popen.wait(seconds)
        return None

    def kill(self) -> None:
        """SIGKILL to the whole group, as if the machine had lost power."""
        signal_group(self.pid, signal.SIGKILL)
        self.wait(GRACE)

    def stop(self, grace: float = GRACE) -> None:
        """SIGTERM, then SIGKILL for what is still running after `grace` seconds."""
        if self.exit_code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            self.wait(grace)
        self.kill()


def signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def wait_until(
    what: str, is_so: Callable[[], bool], seconds: float, *, poll: float = POLL
) -> float:
    """Poll until `is_so()`; the seconds that it took. Raise if it takes too long."""
    start = time.monotonic()
    while not is_so():
        if time.monotonic() - start > seconds:
            raise FederationError(f"{what}: not ready within {seconds:g} s")
        time.sleep(poll)
    return time.monotonic() - start


class Supervisor:
    """Keeps a process running until it is told to stop.

    A SuperLink refuses a SuperNode for up to a minute after it was killed, and the SuperNode then
    ends at once. So it is started again and again, with growing pauses up to `LONGEST_PAUSE`.
    `is_up` is the text that it prints once it is accepted.
    """

    def __init__(
        self, command: Callable[[], Sequence[str]], log: Path, env: Mapping[str, str], is_up: str
    ) -> None:
        self.command, self.log, self.env, self._is_up_text = command, log, dict(env), is_up
        self.starts = 0
        self.process: Process | None = None
        self._changed = threading.Condition()
        self._wanted = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the process, and keep it running from now on."""
        if self._thread is None:
            self._wanted = True
            self._thread = threading.Thread(target=self._keep_running, daemon=True)
            self._thread.start()

    def stop(self, grace: float = GRACE) -> None:
        """Ask the process to end, and do not start it again."""
        with self._changed:
            self._wanted = False
            self._changed.notify_all()
            process = self.process
        if process is not None:
            process.stop(grace)
        if self._thread is not None:
            self._thread.join(GRACE)
            self._thread = None

    def kill(self) -> None:
        """Kill the process; it is then started again."""
        if self.process is not None:
            self.process.kill()

    @property
    def is_up(self) -> bool:
        process = self.process
        return (
            process is not None
            and process.exit_code() is None
            and process.has_printed(self._is_up_text)
        )

    def _keep_running(self) -> None:
        pause = FIRST_PAUSE
        while True:
            with self._changed:
                if not self._wanted:
                    return
                process = self.process = Process(self.command(), self.log, self.env)
                self.starts += 1
            while process.wait(1.0) is None:
                pass
            process.kill()  # and with it what it started
            pause = FIRST_PAUSE if process.has_printed(self._is_up_text) else pause * 2
            with self._changed:
                if self._wanted:
                    self._changed.wait(min(pause, LONGEST_PAUSE))
