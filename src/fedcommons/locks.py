"""POSIX file locks: results folders and sites' stores are held by one process at a time."""

from __future__ import annotations

from fedcommons.errors import UnsupportedSystemError

try:
    import fcntl
except ModuleNotFoundError:
    raise UnsupportedSystemError(
        "this needs file locks, which Windows does not have: use Linux or macOS, or the Windows "
        "Subsystem for Linux"
    ) from None

__all__ = ["fcntl"]
