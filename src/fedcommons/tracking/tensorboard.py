"""Events as scalars of TensorBoard: a folder for the whole, and one for each site or line."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcommons.tracking.events import About, Event
from fedcommons.tracking.sinks import MOST_SERIES, slug


class Sink:
    """A writer for each folder; TensorBoard draws the same numbers of all in one chart."""

    def __init__(self, where: str, about: About) -> None:
        self._library: Any = importlib.import_module("tensorboardX")
        self._folder = Path(where) / slug(about.key)
        self._about = about
        self._writers: dict[str, Any] = {}

    def write(self, events: Sequence[Event]) -> None:
        for event in events:
            writer = self._writer(event.of)
            if writer is None:
                continue
            for name, value in event.values.items():
                writer.add_scalar(f"{event.kind}/{name}", value, event.step, event.at)
        for writer in self._writers.values():
            writer.flush()

    def _writer(self, of: str) -> Any:
        if of not in self._writers:
            if of and len(self._writers) > MOST_SERIES:
                return None
            folder = self._folder / (f"{slug(of)}-{self._about.key_of(of)[-4:]}" if of else "all")
            self._writers[of] = self._library.SummaryWriter(str(folder))
        return self._writers[of]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
