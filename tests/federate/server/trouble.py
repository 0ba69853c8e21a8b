"""Grids on which replies are late, damaged or missing."""

from collections import Counter
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fedcommons.federate.protocol import chunks
from fedcommons.federate.server import asking, delivery, meeting, open_question
from fedcommons.federate.transport import messages
from tests.federate.tiny import (
    Counting,
)


class Clock(SimpleNamespace):
    """Time that passes only where somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1e-6)  # a sum of floats would stand still for less


class Troubled(Counting):
    """Replies of `sites` to messages of type `kind` pass `trouble(message, reply)`."""

    sites, kind = "b", messages.OFFER

    @staticmethod
    def trouble(_message: Message, reply: Message) -> Message | None:
        return reply

    def _handle(self, message):
        reply = super()._handle(message)
        context = self.contexts[message.metadata.dst_node_id]
        if context.node_config["site"] in self.sites and message.metadata.message_type == self.kind:
            return self.trouble(message, reply)
        return reply


class Slow(Counting):
    """What is sent is answered when it is looked for the fortieth time."""

    def __init__(self, *args):
        super().__init__(*args)
        self.looks = Counter()

    def pull_messages(self, message_ids):
        ids = list(message_ids)
        self.looks.update(ids)
        return super().pull_messages([sent for sent in ids if self.looks[sent] >= 40])


class Weighing(Counting):
    """Notes the most bytes of envelopes that are in flight at once."""

    largest = 0

    def push_messages(self, messages):
        messages = list(messages)
        self.largest = max(self.largest, sum(map(_envelope_bytes, messages)))
        return super().push_messages(messages)


def _envelope_bytes(message: Message) -> int:
    return sum(len(part) for part in messages.bytes_of(message))


def silence(_message: Message, _reply: Message) -> None:
    return None


def crash(message: Message, _reply: Message) -> Message:
    return Message(Error(8), reply_to=message)


def changed(**changes):
    """A reply with other fields."""

    def trouble(_message: Message, reply: Message) -> Message:
        reply.content[messages.FIELDS] = ConfigRecord({**reply.content[messages.FIELDS], **changes})
        return reply

    return trouble


def missing(*names: str):
    def trouble(_message: Message, reply: Message) -> Message:
        for name in names:
            del reply.content[messages.FIELDS][name]
        return reply

    return trouble


def empty(message: Message, _reply: Message) -> Message:
    return Message(RecordDict(), reply_to=message)


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """From now on time passes only where the server sleeps."""
    found = Clock()
    for module in (asking, open_question, delivery, meeting):
        monkeypatch.setattr(module, "time", found)
    return found


def in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One share number to a chunk, one envelope in flight."""
    for module in (chunks, delivery):
        monkeypatch.setattr(module, "CHUNK_BYTES", 120)
    monkeypatch.setattr(delivery, "WINDOW_BYTES", 360)
