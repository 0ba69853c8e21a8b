"""Hands events to sinks without ever holding up what they are of."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterable, Sequence

from fedcommons import shown
from fedcommons.tracking.events import About, Event
from fedcommons.tracking.sinks import Sink, Target

logger = shown.logger(__name__)

PATIENCE = 20.0  # seconds that an end waits for what was not written yet


class Tracker:
    """Writes events to all targets, each in a thread of its own.

    A target that cannot be reached is warned of once; what waits for it by then is lost, and it is
    tried again with the next events.
    """

    def __init__(self, targets: Iterable[Target], about: About) -> None:
        self._writers = [_Writer(target, about) for target in targets]

    def send(self, events: Sequence[Event]) -> None:
        """Have events written, some time soon; it returns at once."""
        if events:
            for writer in self._writers:
                writer.queue.put(list(events))

    def close(self, patience: float = PATIENCE) -> None:
        """Write what is left, if that does not take too long."""
        end = time.monotonic() + patience
        for writer in self._writers:
            writer.queue.put(None)
        for writer in self._writers:
            writer.thread.join(max(0.0, end - time.monotonic()))
            if writer.thread.is_alive():
                logger.warning("%s: what was not written within %g s is lost", writer, patience)


class _Writer:
    def __init__(self, target: Target, about: About) -> None:
        self.target, self.about = target, about
        self.queue: queue.SimpleQueue[list[Event] | None] = queue.SimpleQueue()
        self._sink: Sink | None = None
        self._warned = False
        self.thread = threading.Thread(target=self._work, daemon=True, name=f"track {target}")
        self.thread.start()

    def __str__(self) -> str:
        return f"tracking to {self.target}"

    def _work(self) -> None:
        while (events := self.queue.get()) is not None:
            self._try(events)
        if self._sink is not None:
            self._try(None)

    def _try(self, events: list[Event] | None) -> None:
        """Write them, or close."""
        try:
            if self._sink is None:
                self._sink = self.target.open(self.about)
            if events is None:
                self._sink.close()
            else:
                self._sink.write(events)
        except Exception as error:  # whatever a tracker does, what it looks at goes on
            if not self._warned:
                first = str(error).strip().partition("\n")[0][:300]
                logger.warning(
                    "%s does not work, and nothing waits for it: %s: %s",
                    *(self, type(error).__name__, first),
                )
            self._warned = True
            self._drop_what_waits()

    def _drop_what_waits(self) -> None:
        """Trying is slow where nothing is reached: the end must not wait for all of it."""
        with contextlib.suppress(queue.Empty):
            while (events := self.queue.get_nowait()) is not None:
                del events
            self.queue.put(None)
