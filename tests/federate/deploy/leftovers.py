"""What must not be left when a deployment has ended."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path


def processes_that_know(folder: Path) -> list[str]:
    """Command lines of processes with this folder in their environment, this one left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in entry.read_bytes():
                command = (entry.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if "pytest" not in command:
                    found.append(command)
    return found


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
