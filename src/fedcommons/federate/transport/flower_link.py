"""The server's link over Flower: questions as messages of a grid, replies as plain records."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server.link import (
    CRASHED,
    TOO_LATE,
    UNAVAILABLE,
    Kind,
    Node,
    Question,
    Reply,
    Ticket,
    class_of,
)
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.flower_arrays import arrays_of, model_of, record_of
from fedcommons.federate.transport.flower_internals import FLOWER_LOGGER

TYPES: Mapping[Kind, str] = {
    "offer": messages.OFFER,
    "draw": messages.DRAW,
    "send": messages.SEND,
    "receive": messages.RECEIVE,
    "train": messages.TRAIN,
    "evaluate": messages.EVALUATE,
}
FAILURES = {3: TOO_LATE, 5: UNAVAILABLE, 8: CRASHED}  # by Flower's error code
STILL_CONNECTED = 1.0  # seconds in which replies are looked for after nodes were
PULLED_BYTES = 64 << 20  # of answers in memory at once


Configure = Callable[[Kind, Mapping[Node, Question], float], list[Message]]
"""Makes the messages of questions that carry a model; it may leave some out."""


class FlowerLink:
    """Implements `server.link.Link` on a grid.

    What carries a model is made by `configure`, if there is one: there a strategy comes in.
    """

    def __init__(self, grid: Grid, configure: Configure | None = None) -> None:
        self.grid, self._configure = grid, configure
        self._beside: dict[Node, dict[str, Any]] = {}  # what a strategy sent beside the model
        self._model_bytes: dict[Ticket, int] = {}  # of the questions that carry a model
        _log_to_flower()

    def nodes(self) -> Collection[Node]:
        """Those that are connected, and for a moment longer: who asks for the reply of a node that
        is not connected any more loses it.
        """
        until = time.time() + STILL_CONNECTED
        return [
            node.node_id
            for node in self.grid.get_nodes()
            if not node.HasField("online_until") or node.online_until > until
        ]

    def push(
        self, kind: Kind, questions: Mapping[Node, Question], *, seconds: float
    ) -> Mapping[Ticket, Node]:
        """The message's ttl is the limit: a node does not begin with what nobody waits for."""
        sent = self._messages(kind, questions, seconds)
        tickets = list(self.grid.push_messages(sent)) if sent else []
        found = {}
        for ticket, message in zip(tickets, sent, strict=True):
            if ticket:
                node = message.metadata.dst_node_id
                found[ticket] = node
                model = questions[node].model
                if model is not None:
                    self._model_bytes[ticket] = sum(a.nbytes for a in model.values())
        return found

    def _messages(
        self, kind: Kind, questions: Mapping[Node, Question], seconds: float
    ) -> list[Message]:
        model = next((q.model for q in questions.values()), None)
        if self._configure is None or model is None:
            return made(kind, questions, seconds)
        if all(question.is_again for question in questions.values()):
            sent = made(kind, questions, seconds)
            for message in sent:
                message.content.update(self._beside[message.metadata.dst_node_id])
            return sent
        sent = self._configure(kind, questions, seconds)
        ours = {messages.FIELDS, "arrays"}
        self._beside = {
            message.metadata.dst_node_id: {
                name: record for name, record in message.content.items() if name not in ours
            }
            for message in sent
        }
        return sent

    def pull(self, tickets: Collection[Ticket]) -> Iterator[tuple[Ticket, Reply]]:
        """Replies go by the message they answer: the SuperLink's own errors come from node 1.

        Flower has all that it pulls at once in memory: those that may be as large as a model are
        pulled a few at a time.
        """
        for some in self._a_few(tickets):
            messages = iter(self.grid.pull_messages(some))
            while (message := next(messages, None)) is not None:
                self._model_bytes.pop(ticket := message.metadata.reply_to_message_id, None)
                reply = reply_of(message)
                del message
                yield ticket, reply

    def _a_few(self, tickets: Collection[Ticket]) -> Iterator[list[Ticket]]:
        some: list[Ticket] = []
        room = PULLED_BYTES
        for ticket in tickets:
            room -= self._model_bytes.get(ticket, 0)
            if some and room < 0:
                yield some
                some, room = [], PULLED_BYTES - self._model_bytes.get(ticket, 0)
            some.append(ticket)
        if some:
            yield some


class ModelRecords:
    """The record of a model, made once for all that need the same one."""

    def __init__(self) -> None:
        self._last: tuple[NamedArrays, ArrayRecord] | None = None

    def of(self, model: NamedArrays) -> ArrayRecord:
        if self._last is None or self._last[0] is not model:
            self._last = (model, record_of(model))
        return self._last[1]

    def model(self, record: ArrayRecord) -> NamedArrays:
        """The model of a record: the very same, if it was made here."""
        if self._last is not None and self._last[1] is record:
            return self._last[0]
        return model_of(record)


def made(
    kind: Kind,
    questions: Mapping[Node, Question],
    seconds: float,
    **records: Any,
) -> list[Message]:
    """The messages of questions; `records` replace those of the questions' own."""
    models, sent = ModelRecords(), []
    for node, question in questions.items():
        content: dict[str, Any] = dict(_fields(question))
        if question.envelopes:
            content[messages.ENVELOPES] = messages.bytes_record(question.envelopes)
        if question.model is not None:
            content["arrays"] = records.get("arrays") or models.of(question.model)
        if question.config is not None:
            content["config"] = records.get("config", ConfigRecord(dict(question.config)))
        sent.append(_message(kind, node, content, seconds))
    return sent


def _message(kind: Kind, node: Node, content: Mapping[str, Any], seconds: float) -> Message:
    record = RecordDict(dict(content))
    return Message(record, dst_node_id=node, message_type=TYPES[kind], ttl=seconds)


def _fields(question: Question) -> RecordDict:
    return messages.content(question.fields)


def reply_of(message: Message) -> Reply:
    """What a message holds, as far as it can be read: damaged arrays are none."""
    node = message.metadata.src_node_id
    if message.has_error():
        why = _failure(message.error.code, message.error.reason or "")
        return Reply(node, failure=why, source=message)
    envelopes, answer, correction, metrics = [], None, None, {}
    with contextlib.suppress(Exception):
        envelopes = messages.bytes_of(message)
    with contextlib.suppress(Exception):
        answer = arrays_of(messages.arrays(message.content)["answer"])
    with contextlib.suppress(Exception):
        correction = arrays_of(messages.arrays(message.content)["correction"])
    with contextlib.suppress(Exception):
        metrics = messages.metrics(message.content)
    fields = messages.fields(message)
    return Reply(node, None, fields, envelopes, answer, correction, metrics, source=message)


def _failure(code: int, reason: str) -> str:
    """The class that a site names, or what the code means."""
    return class_of(reason, FAILURES.get(code, f"error {code}"))


# What the server logs

SERVER_LOGGER = logging.getLogger("fedcommons.federate.server")


class _ToFlower(logging.Handler):
    """Hands records to Flower's logger, and so to the log of the ServerApp."""

    def emit(self, record: logging.LogRecord) -> None:
        if FLOWER_LOGGER.isEnabledFor(record.levelno):
            FLOWER_LOGGER.handle(record)


def _log_to_flower() -> None:
    """From now on what the server logs appears where Flower's own lines do."""
    if not any(isinstance(handler, _ToFlower) for handler in SERVER_LOGGER.handlers):
        SERVER_LOGGER.addHandler(_ToFlower())
        SERVER_LOGGER.setLevel(logging.INFO)
        SERVER_LOGGER.propagate = False  # Flower's logger does
