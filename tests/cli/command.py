"""The command as a user types it: in this process where that shows the same, or in one of its own.

A process of its own imports everything again, which is most of what a short command costs. It is
needed for what ends or watches the process (signals, terminals) and for what is logged to it.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from fedcommons.cli.app import main

COMMAND = Path(sys.executable).with_name("fedcommons")


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command printed and returned."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, cwd: Path | None = None) -> Ended:
    """The command in this process, with nobody at its terminal."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["fedcommons", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(sys, "stdin", io.StringIO()),
        mock.patch.object(sys, "path", [*sys.path]),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _signals_kept(),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def started(*arguments: object, cwd: Path | None = None) -> Ended:
    """The command in a process of its own."""
    ended = subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
