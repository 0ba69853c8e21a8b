"""Where results come from: versions, machine, commit."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("fedcommons", "numpy", "scipy", "pyarrow", "matplotlib")


def about(command: list[str]) -> dict[str, Any]:
    """What to write beside the results."""
    return {
        "command": shlex.join(command),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in PACKAGES},
        },
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
        "commit": _commit(),
    }


def command_line() -> list[str]:
    """The command as a user typed it."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next(
        (line.split(":", 1)[1].strip() for line in lines if "model name" in line), "unknown"
    )


def _commit() -> str | None:
    """The commit of the source tree, if fedcommons runs from one."""
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
