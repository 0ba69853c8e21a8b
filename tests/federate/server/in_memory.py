"""A second transport, in one file: calls instead of messages, and no Flower anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np

from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server import coordinator
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.link import Kind, Node, Question, Reply, Ticket
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.server.training import Training
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.policy import SIMULATED
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.store import Store
from fedcommons.federate.transport.site_requests import SiteReply, SiteRequests
from fedcommons.federate.transport.weighted_examples import WeightedExamples
from fedcommons.tasks import softmax

RUN_ID = 7
TrainAt = Callable[[NamedArrays, WeightedExamples], Mapping[str, NamedArrays]]


class InMemoryLink:
    """Implements `fedcommons.federate.server.link.Link`: a question is answered when it is sent."""

    def __init__(self, sites: Mapping[Node, SiteRequests], train: TrainAt) -> None:
        self.sites, self.train = sites, train
        self._replies: dict[Ticket, Reply] = {}
        self._tickets = itertools.count(1)

    def nodes(self) -> Collection[Node]:
        return list(self.sites)

    def push(
        self, kind: Kind, questions: Mapping[Node, Question], *, seconds: float
    ) -> Mapping[Ticket, Node]:
        del seconds  # nothing takes time
        tickets = {}
        for node, question in questions.items():
            ticket = str(next(self._tickets))
            tickets[ticket] = node
            self._replies[ticket] = self._handled(kind, node, question)
        return tickets

    def pull(self, tickets: Collection[Ticket]) -> list[tuple[Ticket, Reply]]:
        return [(t, self._replies.pop(t)) for t in tickets if t in self._replies]

    def _handled(self, kind: Kind, node: Node, question: Question) -> Reply:
        try:
            reply = self._reply(kind, node, question)
        except Exception as error:
            return Reply(node, failure=type(error).__name__)
        return Reply(node, None, reply.fields, reply.envelopes, reply.answer)

    def _reply(self, kind: Kind, node: Node, question: Question) -> SiteReply:
        site, fields, model = self.sites[node], question.fields, question.model
        if kind == "offer":
            return site.offer(fields, node_id=node, run_id=RUN_ID)
        if kind == "draw":
            return site.draw(fields)
        if kind == "send":
            return site.send(fields)
        if kind == "receive":
            return site.receive(fields, question.envelopes)
        return site.answer(fields, model or {}, lambda held: self.train(model or {}, held))


def gradient(model: NamedArrays, held: WeightedExamples) -> Mapping[str, NamedArrays]:
    x = softmax.with_bias(held.x)
    return {"gradient": {"beta": softmax.weighted_gradient(model["beta"], x, held.y, held.weight)}}


def run(
    folder: Path, data: Mapping[str, SiteData], *, copies: int, seed: int, settings: Settings
) -> np.ndarray:
    """An exchange between sites with these data, its commit, and two rounds; the parameters."""
    sites = {
        node: SiteRequests(
            Site(Store(folder / name, create=True), data[name], name, None, SIMULATED)
        )
        for node, name in enumerate(data, start=2)
    }
    link = InMemoryLink(sites, gradient)
    federation = coordinator.share(
        link,
        federation="hospitals",
        state_dir=folder / "server",
        run_id=RUN_ID,
        copies=copies,
        n_sites=len(sites),
        wait=0,
        seed=seed,
    )
    example = next(iter(data.values())).x
    initial = {"beta": np.zeros((example.shape[1] + 1, 3))}
    try:
        state = Training(federation, settings, Deadline(10.0), {}).run(link, initial, 2)
    finally:
        federation.close()
        for requests in sites.values():
            requests.site.store.close()
    return state.model["beta"]
