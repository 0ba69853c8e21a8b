"""Events as lines of JSON in a file that only grows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedcommons.tracking.events import About, Event


class Sink:
    """A line for each event, with the key of what it is of."""

    def __init__(self, where: str, about: About) -> None:
        self.path, self.about = Path(where), about

    def write(self, events: Sequence[Event]) -> None:
        same = {"name": self.about.name, "key": self.about.key}
        lines = [json.dumps({**same, **asdict(event)}) + "\n" for event in events]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))

    def close(self) -> None:
        pass
