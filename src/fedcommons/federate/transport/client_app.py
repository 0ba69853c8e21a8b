"""A Flower client app that takes part: `attach` and `coded`, which are all that it calls."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcommons import checks
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.protocol.refusals import ExamplesIgnored
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.reviewed_apps import check_app
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.store import Store
from fedcommons.federate.transport import messages, own_statistics
from fedcommons.federate.transport.flower_arrays import arrays_of, model_of, record_of
from fedcommons.federate.transport.node_config import (
    data_from_node_config,
    peers_from_node_config,
    policy_of,
    site_name,
    store_folder,
)
from fedcommons.federate.transport.scrubbed_errors import Handler, scrubbed
from fedcommons.federate.transport.site_requests import SiteReply, SiteRequests
from fedcommons.federate.transport.weighted_examples import Batch, Batches, WeightedExamples


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
    client = SiteClient(data, n_classes, module=sys._getframe(1).f_code.co_filename)
    for message_type, handler in (
        (messages.OFFER, client.offer),
        (messages.DRAW, client.draw),
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
    _asked_for: ClassVar[set[int]] = set()  # nodes, by their training functions

    def __init__(
        self,
        data: Callable[[Context], SiteData] | None,
        n_classes: int | None,
        *,
        module: str,
    ) -> None:
        self._load, self._n_classes = data or data_from_node_config, n_classes
        self._module = module  # the file of the client app
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
            policy = policy_of(context)
            check_app(policy, self._module)
            store = Store(folder, create=True)
            name = site_name(context, store.identity.name)
            peers = peers_from_node_config(context)
            # Who withdrew everything may have removed it too, and still takes its leave.
            data = SiteData.none() if store.withdrawals.everything else self._load(context)
            data = replace(data, n_classes=self._n_classes)
            self._open[known] = Site(store, data, name, peers, policy)
        return self._open[known]

    def close(self) -> None:
        """Close the stores that this process opened."""
        for process, folder in list(self._open):
            if process == os.getpid():
                self._open.pop((process, folder)).store.close()

    # What a training function calls

    def batches(
        self, context: Context, *, batch_size: int | None = None, epochs: int | None = None
    ) -> Batches:
        """(inputs, labels, weights) of every local step: take the mean of weight times loss.

        They are the steps that the server asks for (`local_steps` of `batch_size`), or those of
        `epochs` over the site's examples in batches of `batch_size`, where either is given. Weights
        are 1 on average, a mean is not to be divided by the sum of a batch's own. Each time they
        are gone through, the examples are in another order.
        """
        if batch_size is not None:
            batch_size = checks.integer("batch_size", batch_size, low=1)
        if epochs is not None:
            epochs = checks.integer("epochs", epochs, low=1)
        return self._weighted_examples(context).batches(batch_size, epochs)

    def dataloader(
        self,
        context: Context,
        *,
        batch_size: int = 1,
        shuffle: bool = True,
        weights: bool = True,
        **options: Any,
    ) -> Any:
        """A torch DataLoader of (x, y, weight) with a mean of weight times loss in mind.

        Without `weights` it is one of (x, y) for a loss that knows no weights: every epoch draws
        examples in proportion to them, about as many as their shares sum to. What nobody else holds
        comes once. `options` are further ones of torch's DataLoader.
        """
        from fedcommons.federate.transport.torch_loader import data_loader

        size = checks.integer("batch_size", batch_size, low=1)
        held = self._weighted_examples(context)
        return data_loader(held, batch_size=size, shuffle=shuffle, weights=weights, **options)

    def examples(self, context: Context) -> Batch:
        """All (inputs, labels, weights), the weights as scikit-learn's `sample_weight`.

        The training function returns what it fitted, or as "gradient" the sum of weight times
        gradient.
        """
        found = self._weighted_examples(context)
        return found.x, found.y, found.weight

    def _weighted_examples(self, context: Context) -> WeightedExamples:
        held = self._examples.get(context.node_id)
        if held is None:
            raise FederationError(
                "examples are there while a training message is handled: use mods=[coded(site)]"
            )
        self._asked_for.add(context.node_id)
        return held

    # The handlers of messages

    def offer(self, message: Message, context: Context) -> Message:
        reply = self._requests_of(context).offer(
            messages.fields(message), node_id=context.node_id, run_id=context.run_id
        )
        return _message(reply, message)

    def draw(self, message: Message, context: Context) -> Message:
        return _message(self._requests_of(context).draw(messages.fields(message)), message)

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
            self._asked_for.discard(context.node_id)
            content["arrays"] = own_statistics.with_own(given, context.state)
            try:
                reply = app_train(message, context)
            finally:
                del self._examples[context.node_id]
            if context.node_id not in self._asked_for:
                raise ExamplesIgnored(
                    "the training function must take its examples from site.batches, "
                    "site.dataloader or site.examples"
                )
            if not reply.has_content():
                raise FederationError("the training function must return content")
            if fields["task"] == "answer" and "arrays" in reply.content.array_records:
                own_statistics.keep(reply.content.array_records["arrays"], context.state)
            return _returned(reply.content)

        content, fields = message.content, messages.fields(message)
        # None are sent to a site that is told that it is out.
        given = messages.arrays(content).get("arrays", ArrayRecord())
        if fields.get("round") == 1:
            own_statistics.forget(context.state)
        config = content.get("config")
        reply = self._requests_of(context).answer(fields, arrays_of(given), train, config=config)
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
