"""A Flower client app that takes part: `attach` and `coded`, which are all that it calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcommons import checks
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.store import Store
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.flower_arrays import arrays_of, model_of, record_of
from fedcommons.federate.transport.node_config import (
    data_from_node_config,
    peers_from_node_config,
    site_name,
    store_folder,
)
from fedcommons.federate.transport.scrubbed_errors import Handler, scrubbed
from fedcommons.federate.transport.site_requests import SiteReply, SiteRequests
from fedcommons.federate.transport.weighted_examples import Batch, WeightedExamples


def attach(
    app: ClientApp,
    data: Callable[[Context], SiteData] | None = None,
    *,
    n_classes: int | None = None,
) -> SiteClient:
    """Let a client app take part in exchanges; `data` loads the site's examples.

    Without `data` they are read from the file that the node config names. With `n_classes` labels
    that are not below it are refused, the site's own and those that others send: else one site's
    mistake stops the training of all that hold its examples.
    """
    if n_classes is not None:
        n_classes = checks.integer("n_classes", n_classes, low=1)
    client = SiteClient(data, n_classes)
    for message_type, handler in (
        (messages.OFFER, client.offer),
        (messages.SEND, client.send),
        (messages.RECEIVE, client.receive),
    ):
        app.query(message_type.removeprefix("query."), mods=[scrubbed])(handler)
    return client


def coded(site: SiteClient) -> Callable[[Message, Context, Handler], Message]:
    """The mod of a training function: commit check, coded answer, scrubbed errors."""

    def answer(message: Message, context: Context, train: Handler) -> Message:
        return scrubbed(message, context, lambda m, c: site.answer(m, c, train))

    return answer


class SiteClient:
    """What `attach` returns: the site behind a client app, found by each message's context.

    Flower's simulation sends a copy of the app with each message, beside the one that the app's own
    functions know: what a node trains on is found by both.
    """

    _examples: ClassVar[dict[int, WeightedExamples]] = {}  # while a node trains

    def __init__(self, data: Callable[[Context], SiteData] | None, n_classes: int | None) -> None:
        self._load, self._n_classes = data or data_from_node_config, n_classes
        self._open: dict[tuple[int, str], Site] = {}
        self._requests: dict[str, SiteRequests] = {}

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process opens its own stores."""
        return {**self.__dict__, "_open": {}, "_requests": {}}

    def site(self, context: Context) -> Site:
        """The site of this node, opened once in a process."""
        folder = store_folder(context)
        known = (os.getpid(), str(folder))  # a forked child opens its own
        if known not in self._open:
            store = Store(folder, create=True)
            name = site_name(context, store.identity.name)
            peers = peers_from_node_config(context)
            # Who withdrew everything may have removed it too, and still takes its leave.
            data = SiteData.none() if store.withdrawals.everything else self._load(context)
            data = replace(data, n_classes=self._n_classes)
            self._open[known] = Site(store, data, name, peers)
        return self._open[known]

    def close(self) -> None:
        """Close the stores that this process opened."""
        for process, folder in list(self._open):
            if process == os.getpid():
                self._open.pop((process, folder)).store.close()

    # What a training function calls

    def batches(self, context: Context) -> Iterator[Batch]:
        """(inputs, labels, weights) of every local step.

        Multiply each example's loss by its weight, average over the batch, take one step.
        """
        return self._weighted_examples(context).batches()

    def examples(self, context: Context) -> Batch:
        """All (inputs, labels, weights): the answer is the sum of weight times gradient."""
        found = self._weighted_examples(context)
        return found.x, found.y, found.weight

    def _weighted_examples(self, context: Context) -> WeightedExamples:
        if context.node_id not in self._examples:
            raise FederationError(
                "examples are there while a training message is handled: use mods=[coded(site)]"
            )
        return self._examples[context.node_id]

    # The handlers of messages

    def offer(self, message: Message, context: Context) -> Message:
        reply = self._requests_of(context).offer(
            messages.fields(message), node_id=context.node_id, run_id=context.run_id
        )
        return _message(reply, message)

    def send(self, message: Message, context: Context) -> Message:
        reply = self._requests_of(context).send(messages.fields(message))
        record = messages.bytes_record(reply.envelopes)
        return _message(reply, message, **{messages.ENVELOPES: record})

    def receive(self, message: Message, context: Context) -> Message:
        envelopes = messages.bytes_of(message)
        reply = self._requests_of(context).receive(messages.fields(message), envelopes)
        return _message(reply, message)

    def answer(self, message: Message, context: Context, app_train: Handler) -> Message:
        """The coded answer to a training message; `app_train` is the app's own function."""

        def train(examples: WeightedExamples) -> Mapping[str, NamedArrays]:
            self._examples[context.node_id] = examples
            try:
                reply = app_train(message, context)
            finally:
                del self._examples[context.node_id]
            if not reply.has_content():
                raise FederationError("the training function must return content")
            return _returned(reply.content)

        record = messages.arrays(message.content).get("arrays")
        model = {} if record is None else arrays_of(record)  # none: a site is told that it is out
        reply = self._requests_of(context).answer(messages.fields(message), model, train)
        if reply.answer is None:
            return _message(reply, message)
        return _message(reply, message, answer=record_of(reply.answer))

    def _requests_of(self, context: Context) -> SiteRequests:
        site = self.site(context)
        known = self._requests.get(site.identity_name)
        if known is None or known.site is not site:
            known = self._requests[site.identity_name] = SiteRequests(site)
        return known


def _message(reply: SiteReply, to: Message, **records: Any) -> Message:
    return Message(messages.content(reply.fields, **records), reply_to=to)


def _returned(content: RecordDict) -> dict[str, NamedArrays]:
    """The arrays that a training function returned, by the name of their record."""
    return {
        name: model_of(record) if name == "arrays" else arrays_of(record)
        for name, record in messages.arrays(content).items()
    }
