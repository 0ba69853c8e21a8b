"""What compressed files may expand to: a small file must not fill the memory or the disk.

A file may hold a gigabyte, or a hundred times its own size if that is more. Real data stay far
below that; what is refused is written again without compression, which has no limit.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from fedcommons.errors import FedcommonsError

ALWAYS = 1 << 30  # bytes that any file may expand to
TIMES = 100  # its own size
GZIP = b"\x1f\x8b"


def check_expanded(
    path: str | os.PathLike[str], expanded: int, packed: int, error: type[FedcommonsError]
) -> None:
    """Refuse a file of `packed` bytes that says it holds `expanded` ones."""
    most = max(ALWAYS, TIMES * packed)
    if expanded > most:
        raise error(
            f"{path} must expand to at most {most} bytes (a gigabyte, or {TIMES} times its size), "
            f"got {expanded}: write it without compression"
        )


def read_bytes(path: Path, error: type[FedcommonsError]) -> bytes:
    """What a file holds, expanded if it is gzip-compressed."""
    try:
        content = path.read_bytes()
        if not content.startswith(GZIP):
            return content
        parts, expanded, rest = [], 0, content
        while rest:
            unpacker = zlib.decompressobj(wbits=31)
            while not unpacker.eof:
                part = unpacker.decompress(rest, 1 << 20)
                rest = unpacker.unconsumed_tail
                if not part and not rest and not unpacker.eof:
                    raise error(f"{path} cannot be read: it ends within its compressed data")
                expanded += len(part)
                check_expanded(path, expanded, len(content), error)
                parts.append(part)
            rest = unpacker.unused_data.lstrip(b"\0")  # gzip files may follow each other, padded
        return b"".join(parts)
    except (OSError, EOFError, zlib.error, MemoryError) as cause:
        raise error(f"{path} cannot be read: {cause}") from None
