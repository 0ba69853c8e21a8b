"""What the server needs of a transport: who is connected, questions out, replies in.

Whatever carries the messages implements `Link` (Flower: `transport/flower_link.py`). Everything
else in this room speaks to it and knows no other message types than these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fedcommons.federate.protocol import versions
from fedcommons.federate.protocol.model_schema import NamedArrays

Kind = Literal["offer", "draw", "send", "receive", "train", "evaluate"]
"""Who are you; reveal your part of the draw; send envelopes; receive envelopes; train, which is
also how a commit arrives; and measure a model on data of your own."""

Node = int  # an address of the transport, good for one run
Ticket = str  # names a question that was sent

LONGEST_NAME = 64  # of an error's class

NO_ANSWER = "no answer"
TOO_LATE = "too late"
UNAVAILABLE = "node unavailable"
CRASHED = "client crashed"


@dataclass(frozen=True, slots=True)
class Question:
    """What a site is asked. Every question names the version of the messages.

    Attributes:
        fields: by name; numbers, texts, byte strings, or lists of one of these.
        envelopes: large byte strings.
        model: at which the site is to train, or which it is to measure.
        config: for the app's own function, passed on as it is.
        is_again: it follows another one to this node, with other fields; nothing else differs.
    """

    fields: Mapping[str, Any]
    envelopes: Sequence[bytes] = ()
    model: NamedArrays | None = None
    config: Mapping[str, Any] | None = None
    is_again: bool = False

    def __post_init__(self) -> None:
        fields = {versions.FIELD: versions.CURRENT, **self.fields}
        object.__setattr__(self, "fields", fields)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. All of it is from elsewhere: nothing is checked but that it could be read.

    Attributes:
        sender: the node that it came from.
        failure: in a word or two why there is no content; None if there is.
        fields: by name; empty if there are none.
        envelopes: large byte strings; none if they cannot be read.
        answer: a site's answer; None if there is none that can be read.
        correction: what it corrects of absent owners; None if nothing, or nothing can be read.
        metrics: what the app measured, by name; empty if it is nothing.
        source: what the transport got it from, for the transport alone.
    """

    sender: Node
    failure: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    envelopes: Sequence[bytes] = ()
    answer: NamedArrays | None = None
    correction: NamedArrays | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    source: Any = None


def class_of(error: object, otherwise: str) -> str:
    """The class of an error, as a site names it; nothing but a name is taken over."""
    fits = isinstance(error, str) and error.isascii() and error.isidentifier()
    return str(error) if fits and len(str(error)) < LONGEST_NAME else otherwise


class Link(Protocol):
    """A transport, as the server uses it. No call waits for a site."""

    def nodes(self) -> Collection[Node]:
        """The nodes that are connected now."""
        ...

    def push(
        self, kind: Kind, questions: Mapping[Node, Question], *, seconds: float
    ) -> Mapping[Ticket, Node]:
        """Send each node its question; the tickets of those that could be sent.

        Nobody needs a reply after so many seconds: a site need not begin with it then.
        """
        ...

    def pull(self, tickets: Collection[Ticket]) -> Iterable[tuple[Ticket, Reply]]:
        """The replies to these questions that came since; each is handed out once.

        Replies may be large: a transport that can hands them out one by one.
        """
        ...
