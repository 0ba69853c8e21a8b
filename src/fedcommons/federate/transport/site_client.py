"""The site behind a Flower client app: its examples, and the handlers of messages to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcommons import checks
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import scale_fields
from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.protocol.refusals import (
    ExamplesIgnored,
    NothingMeasured,
    ReplyWithoutContent,
)
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.questions import check_measured
from fedcommons.federate.site.reviewed_apps import check_app
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.store import Store
from fedcommons.federate.transport import messages, mods, own_statistics
from fedcommons.federate.transport.app_data import Shareable, site_data
from fedcommons.federate.transport.counted import counted
from fedcommons.federate.transport.flower_arrays import arrays_of, model_of, record_of
from fedcommons.federate.transport.flower_internals import function_mods
from fedcommons.federate.transport.node_config import (
    data_from_node_config,
    peers_from_node_config,
    policy_of,
    site_name,
    store_folder,
    tells_means,
)
from fedcommons.federate.transport.scrubbed_errors import Handler
from fedcommons.federate.transport.site_requests import SiteReply, SiteRequests
from fedcommons.federate.transport.weighted_examples import Batch, Batches, WeightedExamples
from fedcommons.scaling import Scale


class Coded:
    """The mod that `coded` returns."""

    def __init__(self, site: SiteClient) -> None:
        self.site = site

    def __call__(self, message: Message, context: Context, train: Handler) -> Message:
        return counted(message, context, lambda m, c: self.site.answer(m, c, train))


class Evaluated:
    """The mod that `evaluated` returns."""

    def __init__(self, site: SiteClient) -> None:
        self.site = site

    def __call__(self, message: Message, context: Context, evaluate: Handler) -> Message:
        return counted(message, context, lambda m, c: self.site.evaluate(m, c, evaluate))


class SiteClient:
    """What `attach` returns: the site behind a client app, found by each message's context.

    Flower's simulation sends a copy of the app with each message, beside the one that the app's own
    functions know: what a node trains on is found by both.
    """

    _examples: ClassVar[dict[int, WeightedExamples]] = {}  # while a node trains
    _scales: ClassVar[dict[int, Scale | None]] = {}  # while a node trains or evaluates
    _asked_for: ClassVar[set[int]] = set()  # nodes, by their training functions

    def __init__(
        self,
        app: ClientApp,
        data: Callable[..., Any] | None,
        n_classes: int | None,
        shareable: Shareable | None = None,
        *,
        module: str,
    ) -> None:
        self._app: ClientApp | None = app
        self._known_mods: dict[str, list[Callable[..., Any]] | None] = {}
        self._load, self._n_classes = data or data_from_node_config, n_classes
        self._module = module  # the file of the client app
        self._shareable = shareable
        self._open: dict[tuple[int, str], Site] = {}
        self._requests: dict[Path, SiteRequests] = {}

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process opens its own stores, and goes by the mods that there are."""
        mods_of = {category: self._mods_of(category) for category in ("train", "evaluate")}
        own = {"_open": {}, "_requests": {}, "_app": None, "_known_mods": mods_of}
        return {**self.__dict__, **own}

    def _mods_of(self, category: str) -> list[Callable[..., Any]] | None:
        """The mods around the app's function; None if it has none."""
        if self._app is None:
            return self._known_mods[category]
        return function_mods(self._app, category)

    def site(self, context: Context) -> Site:
        """The site of this node, opened once in a process."""
        folder = store_folder(context)
        known = (os.getpid(), str(folder))  # a forked child opens its own
        if known not in self._open:
            policy = policy_of(context)
            check_app(policy, self._module)
            store = Store(folder, create=True)
            name = site_name(context, store.keyring.identities[0].name)
            pinned = peers_from_node_config(context)
            # Who withdrew everything may have removed it too, and still takes its leave.
            if store.withdrawals.everything:
                data = SiteData.none()
            else:
                data = site_data(self._load, context, self._shareable)
            if self._n_classes is not None:
                data = replace(data, n_classes=self._n_classes)
            keys, replaced = (pinned.keys, pinned.replaced) if pinned else (None, None)
            self._open[known] = Site(store, data, name, keys, policy, replaced)
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
        like: Any = None,
        *,
        batch_size: int = 1,
        shuffle: bool = True,
        weights: bool = True,
        **options: Any,
    ) -> Any:
        """A torch DataLoader of (x, y, weight) with a mean of weight times loss in mind.

        Given the app's own loader (`like`), it is that one with what the site holds in place of the
        app's own examples: batches of the same size and form, for a training loop that stays as it
        is. Nothing else is looked at then.

        Without `weights` it is one of (x, y) for a loss that knows no weights: every epoch draws
        examples in proportion to them, about as many as their shares sum to. What nobody else holds
        comes once. `options` are further ones of torch's DataLoader.
        """
        from fedcommons.federate.transport.torch_loader import data_loader, loader_like

        if like is not None:
            return loader_like(self._weighted_examples(context), like)
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

    def scale(self, context: Context) -> Scale | None:
        """What inputs were brought to one scale with; None if they are as they are in the data.

        `scale.apply(x)` does the same to inputs of one's own, held out for evaluation perhaps.
        """
        if context.node_id not in self._scales:
            raise FederationError(
                "a scale is there while a message is handled: use mods=[coded(site)] or "
                "mods=[evaluated(site)]"
            )
        return self._scales[context.node_id]

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
        self._mods_inside()
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

        def train(
            examples: WeightedExamples, at: NamedArrays | None = None
        ) -> Mapping[str, NamedArrays]:
            self._examples[context.node_id] = examples
            self._scales[context.node_id] = scale_fields.scale_of(fields)
            self._asked_for.discard(context.node_id)
            start = given if at is None else record_of(at)
            content["arrays"] = own_statistics.with_own(start, context.state)
            try:
                reply = app_train(message, context)
            finally:
                del self._examples[context.node_id], self._scales[context.node_id]
            returned = _content_of(reply)
            if context.node_id not in self._asked_for:
                raise ExamplesIgnored(
                    "the training function must take its examples from site.batches, "
                    "site.dataloader or site.examples"
                )
            arrays = messages.arrays(returned)
            mods.check_returned(inside, arrays)
            if fields["task"] == "answer" and at is None:
                measured.update(messages.metrics(returned))
                if "arrays" in arrays:
                    own_statistics.keep(arrays["arrays"], context.state)
            return _returned(arrays)

        content, fields, given = _taken_apart(message)
        inside, measured = self._mods_inside(), dict[str, Any]()
        mods.check_question(inside, str(fields.get("task", "")), messages.config(content))
        if fields.get("round") == 1:
            own_statistics.forget(context.state)
        config = content.get("config")
        reply = self._requests_of(context).answer(fields, arrays_of(given), train, config=config)
        if reply.answer is None:
            return _message(reply, message)
        records: dict[str, Any] = {"answer": record_of(reply.answer)}
        if reply.correction is not None:
            records["correction"] = record_of(reply.correction)
        if measured:
            records[messages.METRICS] = MetricRecord(measured)
        told = replace(reply, fields={**reply.fields, "evaluates": self._evaluates()})
        return _message(told, message, **records)

    def evaluate(self, message: Message, context: Context, app_evaluate: Handler) -> Message:
        """What the app's own function measures of the model, with this site's own statistics."""
        content, fields, given = _taken_apart(message)
        reply = self._requests_of(context).evaluate(fields, arrays_of(given))
        content["arrays"] = own_statistics.with_own(given, context.state)
        self._scales[context.node_id] = scale_fields.scale_of(fields)
        try:
            measured = messages.metrics(_content_of(app_evaluate(message, context)))
        finally:
            del self._scales[context.node_id]
        if not measured:
            raise NothingMeasured("the evaluate function must return a MetricRecord")
        check_measured(self.site(context).policy, measured.get("num-examples"))
        return _message(reply, message, **{messages.METRICS: MetricRecord(measured)})

    def _mods_inside(self) -> list[Callable[..., Any]]:
        """The mods behind `coded`; refused if one of these, or of those before it, cannot be."""
        found = self._mods_of("train") or []
        places = [k for k, mod in enumerate(found) if isinstance(mod, Coded)]
        if not places:
            return []
        mods.check_outside(found[: places[0]])
        mods.check_inside(inside := found[places[0] + 1 :])
        return inside

    def _evaluates(self) -> str:
        """Whether the app has an evaluate function, in a word for the server; empty if not."""
        found = self._mods_of("evaluate")
        if found is None:
            return ""
        return "yes" if any(isinstance(mod, Evaluated) for mod in found) else "unguarded"

    def _requests_of(self, context: Context) -> SiteRequests:
        site = self.site(context)
        known = self._requests.get(site.store.folder)
        if known is None or known.site is not site:
            known = self._requests[site.store.folder] = SiteRequests(site, tells_means(context))
        return known


def _message(reply: SiteReply, to: Message, **records: Any) -> Message:
    return Message(messages.content(reply.fields, **records), reply_to=to)


def _taken_apart(message: Message) -> tuple[RecordDict, Mapping[str, Any], ArrayRecord]:
    """A question's content, fields and model. The app sees what a Flower app is sent: no fields."""
    content, fields = message.content, messages.fields(message)
    content.pop(messages.FIELDS, None)
    # No model is sent to a site that is told that it is out.
    return content, fields, messages.arrays(content).get("arrays", ArrayRecord())


def _content_of(reply: Message) -> RecordDict:
    if not reply.has_content():
        code = f"error {reply.error.code}" if reply.has_error() else "no content"
        raise ReplyWithoutContent(f"the app's function, or a mod around it, replied with {code}")
    return reply.content


def _returned(arrays: Mapping[str, ArrayRecord]) -> dict[str, NamedArrays]:
    """The arrays that a training function returned, by the name of their record."""
    return {
        name: model_of(record) if name == "arrays" else arrays_of(record)
        for name, record in arrays.items()
    }
