"""A Flower client that takes part: the exchange's handlers, and the mod that codes its answers."""

from __future__ import annotations

import logging
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context, Error, Message
from flwr.clientapp import ClientApp

from fedcommons import checks, coding
from fedcommons.batches import batches
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError, FedcommonsError, FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.receipts import Receipt
from fedcommons.federate.protocol.records import NAME
from fedcommons.federate.protocol.refusals import LocalStepsIgnored
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.store import Store
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.model_arrays import Layout, numpy_of
from fedcommons.federate.transport.node_config import (
    data_from_node_config,
    peers_from_node_config,
    store_folder,
)
from fedcommons.streams import stream

logger = logging.getLogger(__name__)

Handler = Callable[[Message, Context], Message]
Batch = tuple[npt.NDArray[Any], IntArray, FloatArray]
FAILED = 2  # Flower's code for a client that raised an exception
OURS = Path(__file__).parents[2]  # the package's folder
EXACT_SPREAD_UP_TO = 1000  # shared examples whose gradients are taken one by one


@dataclass(frozen=True, slots=True)
class View:
    """The examples that a training function sees, and the weight of each."""

    x: npt.NDArray[Any]
    y: IntArray
    weight: FloatArray
    local_steps: int = 1
    batch_size: int = 0
    rng: np.random.Generator | None = None

    def batches(self) -> Iterator[Batch]:
        """One batch for every local step: all examples, or `batch_size` at random."""
        n = len(self.y)
        for rows in batches(n, self.batch_size, self.local_steps, rng=self.rng):
            if len(rows) == n:  # without a copy
                yield self.x, self.y, self.weight
            else:
                yield self.x[rows], self.y[rows], self.weight[rows]


class SiteClient:
    """What `attach` returns: the site behind a client app, found by each message's context."""

    def __init__(self, data: Callable[[Context], SiteData] | None, n_classes: int | None) -> None:
        self._load, self._n_classes = data or data_from_node_config, n_classes
        self._open: dict[tuple[int, str], Site] = {}
        self._arrays: dict[str, tuple[bytes, npt.NDArray[Any], IntArray]] = {}
        self._views: dict[int, View] = {}

    def site(self, context: Context) -> Site:
        """The site of this node, opened once in a process."""
        folder = store_folder(context)
        known = (os.getpid(), str(folder))  # a forked child opens its own
        if known not in self._open:
            store = Store(folder, create=True)
            name = str(context.node_config.get("site", f"site-{store.identity.name[:8]}"))
            if not NAME.fullmatch(name):
                raise ArgumentError(
                    f"node config: site must be letters, digits, . _ -, got {name!r}"
                )
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

    def batches(self, context: Context) -> Iterator[Batch]:
        """(inputs, labels, weights) of every local step.

        Multiply each example's loss by its weight, average over the batch, take one step.
        """
        return self._view(context).batches()

    def examples(self, context: Context) -> Batch:
        """All (inputs, labels, weights): the answer is the sum of weight times gradient."""
        view = self._view(context)
        return view.x, view.y, view.weight

    def _view(self, context: Context) -> View:
        if context.node_id not in self._views:
            raise FederationError(
                "examples are there while a training message is handled: use mods=[coded(site)]"
            )
        return self._views[context.node_id]

    # The exchange

    def offer(self, message: Message, context: Context) -> Message:
        request, site = messages.fields(message), self.site(context)
        federation = str(request["federation"])
        if site.store.withdrawals.everything and site.store.federation == federation:
            return self._farewell(message, context, site)
        committed = bool(site.store.commit_record()[0])
        signed = site.exchange.offer(
            federation,
            node_id=context.node_id,
            run_id=context.run_id,
            with_key=bool(request["with-key"])
            and not (committed and bool(request.get("unless-committed"))),
            committed=request["committed"],
        )
        reply = {
            "offer": signed.content,
            "signature": signed.signature,
            "commit": site.store.commit_record()[1],
        }
        return Message(messages.content(reply), reply_to=message)

    @staticmethod
    def _farewell(message: Message, context: Context, site: Site) -> Message:
        """The signed word of a site that withdrew everything, so that the others learn of it."""
        content = messages.farewell(str(site.store.federation), context.node_id, context.run_id)
        signature = site.store.identity.sign("withdrew", content)
        reply = {"withdrew": site.identity_name, "signature": signature}
        return Message(messages.content(reply), reply_to=message)

    def send(self, message: Message, context: Context) -> Message:
        request, site = messages.fields(message), self.site(context)
        envelopes, _ = site.exchange.send(
            request["epoch"], list(request["recipients"]), int(request["chunk"])
        )
        record = messages.bytes_record([sealed for _, sealed in envelopes])
        reply = {"recipients": [recipient for recipient, _ in envelopes]}
        return Message(messages.content(reply, **{messages.ENVELOPES: record}), reply_to=message)

    def receive(self, message: Message, context: Context) -> Message:
        request, site = messages.fields(message), self.site(context)
        receipts, refused = site.exchange.receive(request["epoch"], messages.bytes_of(message))
        reply = {
            "senders": [receipt.sender for receipt in receipts],
            "examples": [receipt.examples for receipt in receipts],
            "signatures": [receipt.signature for receipt in receipts],
            "refused": list(refused),
            "refused-counts": list(refused.values()),
        }
        return Message(messages.content(reply), reply_to=message)

    # Training

    def answer(self, message: Message, context: Context, train: Handler) -> Message:
        """Come under the message's commit, let the app train on what it gives, code the answer."""
        request, site = messages.fields(message), self.site(context)
        commit = site.apply_commit(request["commit"], given_up=int(request["given-up"]))
        if request.get("receipt-recipients"):
            site.note_receipts(commit, _receipts(site, request))
        me = site.place(commit)
        withdrawn = site.withdrawn_since(commit)
        reply: dict[str, Any] = {"digest": commit.digest, "round": int(request["round"])}
        if (withdrawn.numbers, withdrawn.n_private) != (
            commit.withdrawn[me],
            commit.withdrawn_private[me],
        ):
            reply["withdrawn"] = list(withdrawn.numbers)
            reply["withdrawn-private"] = withdrawn.n_private
            return Message(messages.content(reply), reply_to=message)
        held = site.holdings(commit)
        reply["coverage"] = held.coverage
        run = _Training(self, message, context, train)
        x, y = self._examples(site, commit)
        if request["task"] == "owner-share":
            n_own = len(held.own)
            reply["owner-share"] = run.owner_share(
                x[:n_own], y[:n_own], held.own_shared, held.placement.copies[:n_own]
            )
            return Message(messages.content(reply), reply_to=message)
        view = View(
            x,
            y,
            held.shares,
            int(request["local-steps"]),
            int(request["batch-size"]),
            stream(commit.seed, "batches", site.name, int(request["round"])),
        )
        return Message(messages.content(reply, answer=run.answer(view)), reply_to=message)

    def _examples(self, site: Site, commit: Commit) -> tuple[npt.NDArray[Any], IntArray]:
        """Everything that the site holds, its own examples first; read once for each commit."""
        known = self._arrays.get(site.identity_name)
        if known is None or known[0] != commit.digest:
            own_x, own_y = site.rows.examples(site.manifest_of(commit))
            received = [
                site.received_examples(commit, sender)
                for sender, _ in site.holdings(commit).senders
            ]
            x = np.concatenate([own_x, *(part for part, _ in received)])
            y = np.concatenate([own_y, *(part for _, part in received)])
            self._arrays[site.identity_name] = known = (commit.digest, x, y)
        return known[1], known[2]


class _Training:
    """One training message at one site."""

    def __init__(
        self, client: SiteClient, message: Message, context: Context, train: Handler
    ) -> None:
        self.client, self.message, self.context, self.train = client, message, context, train

    def answer(self, view: View) -> ArrayRecord:
        """What the app's training function makes of the view, as an answer.

        It may return the trained model ("arrays"), as any Flower app does: the answer is then n
        times how far it went down, for n examples and a loss that is a mean over them. Or it may
        return the "gradient", the weighted sum over all examples, where one full step is asked
        for. Nothing else leaves the site.
        """
        start = self.message.content.array_records["arrays"]
        n = len(view.y)
        if not n:  # no loss has a mean over nothing
            return ArrayRecord({name: Array(np.zeros_like(a.numpy())) for name, a in start.items()})
        self.client._views[self.context.node_id] = view
        try:
            reply = self.train(self.message, self.context)
        finally:
            del self.client._views[self.context.node_id]
        if not reply.has_content():
            raise FederationError("the training function must return content")
        records = reply.content.array_records
        if "gradient" in records:
            if view.local_steps > 1 or view.batch_size:
                raise LocalStepsIgnored("a gradient is one step on all examples")
            return records["gradient"]
        if "arrays" not in records:
            raise FederationError(
                f"the training function must return 'arrays' or 'gradient', got {sorted(records)}"
            )
        given, found = Layout.of(start), Layout.of(records["arrays"])
        if found != given:
            raise FederationError(
                "the training function must return the arrays that it was given, got "
                f"{found.beside(given)}"
            )
        return ArrayRecord(
            {
                name: Array(_descent(numpy_of(array), numpy_of(records["arrays"][name]), n))
                for name, array in start.items()
            }
        )

    def vector(self, x: npt.NDArray[Any], y: IntArray) -> FloatArray:
        """The sum of the gradients of these examples, up to a factor common to all."""
        arrays = self.answer(View(x, y, np.ones(len(y))))
        return Layout.of(arrays).vector(arrays)

    def owner_share(
        self,
        x: npt.NDArray[Any],
        y: IntArray,
        shared: npt.NDArray[np.bool_],
        copies: IntArray,
    ) -> float:
        """The best w of this owner at the message's model (`coding.best_owner_share`)."""
        if not shared.any():
            return 1.0
        S = self.vector(x[shared], y[shared])
        P = self.vector(x[~shared], y[~shared]) if not shared.all() else np.zeros_like(S)
        rows = np.flatnonzero(shared)
        some = rows[:: -(-len(rows) // EXACT_SPREAD_UP_TO)]
        norms = [float((self.vector(x[[row]], y[[row]]) ** 2).sum()) / copies[row] for row in some]
        spread = sum(norms) * len(rows) / len(some)
        return float(coding.best_owner_share([P @ S], [S @ S], [spread])[0])


def _descent(start: npt.NDArray[Any], end: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    if start.dtype.kind != "f":
        return start  # counters and the like are not trained
    return np.asarray(n * (start.astype(np.float64) - end), start.dtype)


def _receipts(site: Site, request: Any) -> list[Receipt]:
    columns = (request[f"receipt-{name}"] for name in ("recipients", "examples", "signatures"))
    return [
        Receipt(site.identity_name, recipient, examples, signature)
        for recipient, examples, signature in zip(*columns, strict=True)
    ]


# What an app calls


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
        app.query(message_type.removeprefix("query."), mods=[_scrubbed])(handler)
    return client


def coded(site: SiteClient) -> Callable[[Message, Context, Handler], Message]:
    """The mod of a training function: commit check, coded answer, scrubbed errors."""

    def answer(message: Message, context: Context, train: Handler) -> Message:
        return _scrubbed(message, context, lambda m, c: site.answer(m, c, train))

    return answer


def _scrubbed(message: Message, context: Context, handle: Handler) -> Message:
    """Errors cross the wire by the name of their class alone: their texts may quote data."""
    try:
        return handle(message, context)
    except Exception as error:
        name = type(error).__name__
        logger.error("%s", _described(error))
        return Message(Error(FAILED, name), reply_to=message)


def _described(error: Exception) -> str:
    """An error for the site's own log, which stays there.

    Our own say what is wrong. Texts of others may quote data: only where they come from is said,
    and which line of the app that was.
    """
    name, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
    if isinstance(error, FedcommonsError) and type(error).__module__.startswith("fedcommons."):
        return f"{name}: {error}"
    installed = sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), str(OURS)
    of_app = [frame for frame in frames if not frame.filename.startswith(installed)]
    places = dict.fromkeys(
        f"{Path(frame.filename).name}:{frame.lineno}" for frame in [*of_app[-1:], frames[-1]]
    )
    return f"{name} at {', in '.join(places)}"
