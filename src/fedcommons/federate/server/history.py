"""The history of a training: a line of JSON for each round, in a file that only grows.

The checkpoint beside it says how many of its bytes count: what a run that died wrote after that is
cut off when the next round is added.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.server.round_notes import RoundNote

NAME = "history.jsonl"


def append(folder: Path, notes: Sequence[RoundNote], length: int) -> int:
    """Add rounds after the first `length` bytes; how many bytes count now."""
    if not notes:
        return length
    lines = "".join(json.dumps(note.to_json(), separators=(",", ":")) + "\n" for note in notes)
    content = lines.encode()
    durable.append_to_file(folder / NAME, content, length, "server.history")
    return length + len(content)


def read(folder: Path, length: int) -> tuple[RoundNote, ...]:
    """The rounds in the first `length` bytes."""
    path = folder / NAME
    try:
        with path.open("rb") as file:
            content = file.read(length)
        if len(content) != length:
            raise ValueError(f"it must have {length} bytes or more, got {len(content)}")
        return tuple(RoundNote.from_json(json.loads(line)) for line in content.splitlines())
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise FederationError(f"{path} is damaged: {error}") from None
