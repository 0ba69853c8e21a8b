"""What a Flower message holds: fields, large byte strings, arrays. Both sides read it here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

FIELDS = "fedcommons"
ENVELOPES = "envelopes"
METRICS = "metrics"
OFFER, DRAW, SEND, RECEIVE = "query.fc_offer", "query.fc_draw", "query.fc_send", "query.fc_receive"
TRAIN, EVALUATE = "train", "evaluate"


def content(fields: Mapping[str, Any], **records: Any) -> RecordDict:
    """A message's content: fields, and other records by name."""
    return RecordDict({FIELDS: ConfigRecord(dict(fields)), **records})


def fields(message: Message) -> Mapping[str, Any]:
    """The fields of a message; empty if it has none."""
    if not message.has_content():
        return {}
    record = message.content.get(FIELDS)
    return record if isinstance(record, ConfigRecord) else {}


def arrays(content: RecordDict) -> dict[str, ArrayRecord]:
    """The records of arrays, by name.

    What Flower's `array_records` returns refers to itself, and so keeps arrays as large as a model
    in memory until Python looks for such circles.
    """
    return {name: record for name, record in content.items() if isinstance(record, ArrayRecord)}


def size(message: Message) -> int:
    """The bytes of a message's arrays: of models, answers and envelopes."""
    if not message.has_content():
        return 0
    records = arrays(message.content).values()
    return sum(len(array.data) for record in records for array in record.values())


def config(content: RecordDict) -> Mapping[str, Any]:
    """What the server tells the app's own function."""
    record = content.get("config")
    return record if isinstance(record, ConfigRecord) else {}


def metrics(content: RecordDict) -> dict[str, Any]:
    """What all the records of metrics hold, by name."""
    found: dict[str, Any] = {}
    for record in content.values():
        if isinstance(record, MetricRecord):
            found |= record
    return found


def bytes_record(parts: Sequence[bytes]) -> ArrayRecord:
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
