"""Between a round of the server and the methods of a Flower strategy.

A round's questions become messages in `configure_train`, and its replies an estimate in
`aggregate_train`; so with evaluation. Both are the strategy's, or those of who overrides them: what
they return is what is sent, and what training goes on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedcommons.errors import FederationError
from fedcommons.federate.server.asking import Asking, Heard
from fedcommons.federate.server.hooks import Hooks, Trained
from fedcommons.federate.server.link import Kind, Node, Question
from fedcommons.federate.server.site_metrics import Numbers
from fedcommons.federate.transport import flower_link, messages
from fedcommons.federate.transport.flower_link import ModelRecords


class StrategyHooks(Hooks):
    """Calls a strategy's methods; `CodedSum`'s own come back here for what they are to do."""

    def __init__(self, strategy: Strategy, grid: Grid, models: ModelRecords) -> None:
        self.strategy, self.grid, self.models = strategy, grid, models
        self._making: tuple[Kind, Mapping[Node, Question], float] | None = None
        self._hearing: tuple[Kind, int, Callable[[Iterable[Message]], Any]] | None = None

    @staticmethod
    def out_of_order(method: str) -> FederationError:
        """What to say to who calls a method by itself."""
        return FederationError(
            f"{method} must be called by the start of CodedSum, in its turn: what is sent, and "
            "what counts, follows from the round. A wrapper of your own passes itself on: "
            "strategy.start(..., hooks=self). Flower's DifferentialPrivacy wrappers do not go with "
            "CodedSum: they clip and blur an average in which all sites weigh the same; for noise "
            "at the sites there is LocalDpMod, behind coded"
        )

    # What the strategy's base is asked to do

    def make(
        self, kind: Kind, server_round: int, arrays: ArrayRecord, config: ConfigRecord
    ) -> list[Message]:
        """The messages of the questions that are to be sent."""
        if self._making is None or self._making[0] != kind:
            raise self.out_of_order(f"configure_{kind}")
        _, questions, seconds = self._making
        config["server-round"] = server_round
        return flower_link.made(kind, questions, seconds, arrays=arrays, config=config)

    def aggregate(self, kind: Kind, server_round: int, replies: Iterable[Message]) -> Any:
        """What the server makes of replies."""
        if self._hearing is None or self._hearing[:2] != (kind, server_round):
            raise self.out_of_order(f"aggregate_{kind}")
        return self._hearing[2](replies)

    # What the server asks for

    def configure(
        self, kind: Kind, questions: Mapping[Node, Question], seconds: float
    ) -> list[Message]:
        """The strategy's messages for these questions; refused if they are none of them."""
        first = next(iter(questions.values()))
        method = self.strategy.configure_train
        if kind == "evaluate":
            method = self.strategy.configure_evaluate
        self._making = (kind, questions, seconds)
        try:
            config = ConfigRecord(dict(first.config or {}))
            arrays = self.models.of(first.model or {})
            found = list(method(first.fields["round"], arrays, config, self.grid))
        finally:
            self._making = None
        _check(kind, found, questions)
        return found

    def train(
        self,
        round_number: int,
        asking: Asking,
        aggregate: Callable[[Iterable[Heard]], Trained],
    ) -> Trained:
        heard = _Handed(asking)

        def finish(replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord]:
            model, pooled = aggregate(heard.taken_back(replies))
            return self.models.of(model or {}), MetricRecord(dict(pooled))

        self._hearing = ("train", round_number, finish)
        try:
            arrays, metrics = self.strategy.aggregate_train(round_number, heard.messages())
        finally:
            self._hearing = None
        return None if arrays is None else self.models.model(arrays), _numbers(metrics)

    def evaluate(
        self,
        round_number: int,
        asking: Asking,
        aggregate: Callable[[Iterable[Heard]], Numbers],
    ) -> Numbers:
        heard = _Handed(asking)

        def finish(replies: Iterable[Message]) -> MetricRecord | None:
            found = aggregate(heard.taken_back(replies))
            return MetricRecord(dict(found)) if found else None

        self._hearing = ("evaluate", round_number, finish)
        try:
            metrics = self.strategy.aggregate_evaluate(round_number, heard.messages())
        finally:
            self._hearing = None
        return _numbers(metrics)


class _Handed:
    """Replies on their way through a strategy: as messages there, and taken back afterwards."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self._of: dict[str, tuple[Node, float]] = {}  # by the message that is replied to

    def messages(self) -> Iterator[Message]:
        """The replies as they arrive, until the time is over."""
        for node, reply, took in self.asking.replies():
            self._of[reply.source.metadata.reply_to_message_id] = (node, took)
            message = reply.source
            del reply
            yield message

    def taken_back(self, replies: Iterable[Message]) -> Iterator[Heard]:
        for message in replies:
            handed = self._of.pop(message.metadata.reply_to_message_id, None)
            if handed is not None:
                node, took = handed
                yield node, flower_link.reply_of(message), took


def _check(kind: Kind, made: list[Message], questions: Mapping[Node, Question]) -> None:
    nodes = [message.metadata.dst_node_id for message in made]
    if len(set(nodes)) < len(nodes) or not set(nodes) <= set(questions):
        raise FederationError(
            f"configure_{kind} must return messages of the one that it overrides, one for a node"
        )
    if any(messages.FIELDS not in message.content for message in made):
        raise FederationError(
            f"configure_{kind} must keep the record {messages.FIELDS!r} of each message"
        )


def _numbers(metrics: MetricRecord | None) -> dict[str, float]:
    """The single numbers of a strategy's metrics."""
    return {
        name: float(value)
        for name, value in (metrics or {}).items()
        if isinstance(value, int | float)
    }
