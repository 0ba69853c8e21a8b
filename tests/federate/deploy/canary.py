"""Examples whose bytes are recognised wherever they turn up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

N_EXAMPLES = 20


def mark(kind: str, site: str) -> bytes:
    """28 bytes, as long as a row of pixels."""
    return f"<{kind}-of-{site}>".encode().ljust(28, b"#")


def write_data(path: Path, site: str, label: int) -> None:
    """Images that are nothing but their mark; every second one may be shared."""
    shareable = np.arange(N_EXAMPLES) % 2 == 0
    rows = [mark("shared" if may else "private", site) * 28 for may in shareable]
    x = np.frombuffer(b"".join(rows), np.uint8).reshape(N_EXAMPLES, 28, 28)
    np.savez(path, x=x, y=np.full(N_EXAMPLES, label), shareable=shareable)


def files_with(pattern: bytes, folder: Path) -> set[Path]:
    """All files below the folder in which the pattern occurs, relative to it."""
    found = set()
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it may be gone, or a socket
            if path.is_file() and pattern in path.read_bytes():
                found.add(path.relative_to(folder))
    return found


@contextlib.contextmanager
def watched(folder: Path, name: str, patterns: list[bytes]) -> Iterator[set[bytes]]:
    """Which of the patterns were seen, at any time, in files of the folder whose name begins so."""
    seen: set[bytes] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            for path in folder.glob(f"{name}*"):
                with contextlib.suppress(OSError):
                    content = path.read_bytes()
                    seen.update(pattern for pattern in patterns if pattern in content)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
