"""Between records and Flower's messages: asking sites and waiting for them, never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedcommons.federate.protocol.records import encode

FIELDS = "fedcommons"
ENVELOPES = "envelopes"
OFFER, SEND, RECEIVE = "query.fc_offer", "query.fc_send", "query.fc_receive"
UNAVAILABLE = "node unavailable"
POLL_SECONDS = 0.3  # Flower's own send_and_receive polls every 3 s


def content(fields: Mapping[str, Any], **records: Any) -> RecordDict:
    """A message's content: fields, and other records by name."""
    return RecordDict({FIELDS: ConfigRecord(dict(fields)), **records})


def fields(message: Message) -> Mapping[str, Any]:
    """The fields of a message; empty if it has none."""
    if not message.has_content():
        return {}
    record = message.content.get(FIELDS)
    return record if isinstance(record, ConfigRecord) else {}


def bytes_record(parts: list[bytes]) -> ArrayRecord:
    """Large byte strings: as arrays they cost the SuperLink a third of what they do as fields."""
    return ArrayRecord(
        {str(i): Array(np.frombuffer(part, np.uint8)) for i, part in enumerate(parts)}
    )


def bytes_of(message: Message) -> list[bytes]:
    """The byte strings of `bytes_record`; none if the message carries none."""
    record = message.content.get(ENVELOPES)
    if not isinstance(record, ArrayRecord):
        return []
    return [record[str(i)].numpy().tobytes() for i in range(len(record))]


def ask(
    grid: Grid,
    contents: Mapping[int, RecordDict],
    message_type: str,
    *,
    seconds: float,
    on_reply: Callable[[int, Message, float], None] | None = None,
    enough: Callable[[float], bool] | None = None,
) -> dict[int, Message]:
    """Send each node its content and collect what arrives in time: node -> reply.

    The message's ttl is the same limit, so that a node does not work on what nobody waits for.
    Replies are matched by the message they answer: the SuperLink's own errors come from node 1,
    and a late reply to an earlier message is never pulled. `on_reply` is told of each with the
    seconds it took; `enough`, asked with the seconds gone by, may end the waiting sooner.
    """
    start = time.monotonic()
    questions = Questions(grid, message_type)
    questions.push(contents, seconds=seconds)
    replies: dict[int, Message] = {}
    while questions.waiting:
        for node, reply in questions.pull():
            replies[node] = reply
            if on_reply:
                on_reply(node, reply, time.monotonic() - start)
        gone_by = time.monotonic() - start
        if not questions.waiting or gone_by >= seconds or (enough and enough(gone_by)):
            break
        time.sleep(min(POLL_SECONDS, seconds - gone_by))
    return replies


class Questions:
    """Messages of one type that were sent and not answered yet."""

    def __init__(self, grid: Grid, message_type: str) -> None:
        self.grid, self.message_type = grid, message_type
        self.waiting: dict[str, int] = {}  # message -> node

    def push(self, contents: Mapping[int, RecordDict], *, seconds: float) -> list[int]:
        """Send each node its content, for so many seconds; the nodes to which it went."""
        messages = [
            Message(record, dst_node_id=node, message_type=self.message_type, ttl=seconds)
            for node, record in contents.items()
        ]
        ids = self.grid.push_messages(messages) if messages else []
        sent = {message: node for message, node in zip(ids, contents, strict=True) if message}
        self.waiting |= sent
        return list(sent.values())

    def pull(self) -> list[tuple[int, Message]]:
        """The replies that came since, by node."""
        replies = self.grid.pull_messages(list(self.waiting)) if self.waiting else []
        found = [(self.waiting.pop(r.metadata.reply_to_message_id, None), r) for r in replies]
        return [(node, reply) for node, reply in found if node is not None]


def farewell(federation: str, node_id: int, run_id: int) -> bytes:
    """What a site signs that withdrew everything."""
    return encode({"federation": federation, "node_id": node_id, "run_id": run_id})


def failure(reply: Message | None) -> str | None:
    """Why a reply does not count, in a word; None if it does."""
    if reply is None:
        return "no answer"
    if reply.has_error():
        code, reason = reply.error.code, reply.error.reason or ""
        names = {3: "too late", 5: UNAVAILABLE, 8: "client crashed"}
        is_class = reason.isidentifier() and len(reason) < 64
        return reason if is_class else names.get(code, f"error {code}")
    return None
