"""Sites that do not keep to the protocol, in a federation of a few that do."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message

from fedcommons.federate.protocol.model_schema import digest_of
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.flower_arrays import arrays_of
from tests.federate.tiny import Tampered, Tiny


def fields_of(reply: Message, **changes: Any) -> Message:
    reply.content[messages.FIELDS] = ConfigRecord({**reply.content[messages.FIELDS], **changes})
    return reply


def scaled(reply: Message, factor: float) -> Message:
    """The answer times a number."""
    beta = reply.content["answer"]["beta"].numpy()
    with np.errstate(over="ignore"):
        reply.content["answer"] = ArrayRecord({"beta": Array(beta * factor)})
    return reply


def hostile(tiny: Tiny, site: str, tamper: Any, **options: Any) -> Tampered:
    """A grid on which this site's answers pass `tamper(message, reply)`."""
    grid = tiny.grid(Tampered, **options)

    def on_its_answers(name: str, message: Message, reply: Message) -> Message:
        answers = name == site and reply.has_content() and "answer" in reply.content
        if not answers:
            return reply
        reply = tamper(message, reply)
        if "answer" in reply.content and messages.FIELDS in reply.content:  # it signs for it all
            digest = digest_of(arrays_of(reply.content["answer"]))
            reply.content[messages.FIELDS]["answer-digest"] = digest
        return reply

    grid.tamper = on_its_answers
    return grid


def quarantined(federation: Any) -> dict[str, str]:
    """Who is on the operator's list, and why."""
    return {entry.site: entry.why for entry in federation.quarantine.entries.values()}
