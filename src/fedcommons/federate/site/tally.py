"""What a site counts for its operator: messages, bytes, seconds.

A deployed site is a new process for every message, so the counts are in a file of its store. They
leave the machine only if the operator serves them (`fedcommons federate metrics`). Nothing rests on
them: they are not forced to the disk, and what cannot be counted is not.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import ClassVar

from fedcommons.federate.protocol import durable

NAME = "tally.json"
Counts = dict[str, dict[str, float]]


class Tally:
    """The counts of one store."""

    FAMILIES: ClassVar[dict[str, tuple[str, list[str]]]] = {  # words and labels, by name
        "messages": ("Messages that this site handled.", ["kind", "outcome"]),
        "seconds": ("Seconds that it took to handle them.", ["kind"]),
        "bytes_received": ("Arrays and envelopes in questions, in bytes.", ["kind"]),
        "bytes_sent": ("Arrays and envelopes in replies, in bytes.", ["kind"]),
        "last_message": ("When the last message was handled, in seconds since 1970.", []),
        "last_round": ("The round of the last question that was answered.", []),
    }

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def read(self) -> Counts:
        """The counts by family, then by the labels with | between; none if there are none."""
        try:
            content = json.loads(self._path.read_bytes())
            return {
                str(name): {str(key): float(value) for key, value in of_it.items()}
                for name, of_it in content.items()
            }
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}

    def note(
        self,
        kind: str,
        outcome: str,
        seconds: float,
        *,
        received: int,
        sent: int,
        in_round: int | None = None,
    ) -> None:
        """A message was handled."""
        found = self.read()
        for name, key, by in (
            ("messages", f"{kind}|{outcome}", 1),
            ("seconds", kind, seconds),
            ("bytes_received", kind, received),
            ("bytes_sent", kind, sent),
        ):
            of_it = found.setdefault(name, {})
            of_it[key] = of_it.get(key, 0.0) + by
        found["last_message"] = {"": time.time()}
        if in_round is not None:
            found["last_round"] = {"": in_round}
        durable.write_for_show(self._path, json.dumps(found).encode())
