"""Who is there: which node is which site in this run, as far as the sites proved it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from logging import WARNING
from typing import Any

from flwr.app import Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.keys import is_signed
from fedcommons.federate.protocol.records import SignedOffer, digest
from fedcommons.federate.protocol.refusals import Refusal
from fedcommons.federate.transport import messages

LINGER_SECONDS = 5.0  # for the slow, when enough sites are there
QUESTION_SECONDS = 60.0
MOST_BYTES = 1 << 40  # that a site may offer: what it takes to route them is bounded


class Meeting:
    """Which node is which site. A node keeps its identity in a run, also while it is away."""

    def __init__(self, federation: str, run_id: int) -> None:
        self.federation, self.run_id = federation, run_id
        self.committed: Commit | None = None  # the server's: members see what they withdrew
        self.offers: dict[str, SignedOffer] = {}  # by identity, as all that follow
        self.commits: dict[str, Commit] = {}  # what sites say they are under
        self.withdrew: set[str] = set()  # sites that took everything back
        self.refused: dict[int, str] = {}  # by node, why it is not with us
        self._node_of: dict[str, int] = {}
        self._proved: dict[int, str] = {}  # by node, who it has proved to be in this run
        self._connected: set[int] = set()
        self._heard: set[int] = set()
        self._questions: dict[str, tuple[int, float]] = {}  # message -> node, when it is dropped

    def node(self, identity: str) -> int | None:
        """The node of a site; None if it is not connected."""
        node = self._node_of.get(identity)
        return node if node in self._connected else None

    @property
    def here(self) -> list[str]:
        """The identities of the sites that are connected."""
        return [identity for identity in self._node_of if self.node(identity) is not None]

    @property
    def n_heard(self) -> int:
        """How many sites are there or took their leave: nobody needs to wait for those."""
        return len(self.here) + len(self.withdrew)

    def ask_all(
        self,
        grid: Grid,
        *,
        with_key: bool,
        unless_committed: bool = False,
        seconds: float,
        n_sites: int,
    ) -> None:
        """Ask the nodes that were not heard yet who they are, and wait for them.

        When `n_sites` are there, the others get as long again and a little more: a node that hangs
        does not hold up everybody.
        """
        self._look(grid)
        fresh = sorted(self._connected - self._heard)
        messages.ask(
            grid,
            {node: self._question(with_key, unless_committed, node) for node in fresh},
            messages.OFFER,
            seconds=seconds,
            on_reply=lambda node, reply, _seconds: self.hear(node, reply),
            enough=self._patience(n_sites),
        )

    def _patience(self, n_sites: int) -> Callable[[float], bool]:
        enough_at: list[float] = []

        def enough(gone_by: float) -> bool:
            if not enough_at and self.n_heard >= n_sites:
                enough_at.append(gone_by)
            return bool(enough_at) and gone_by >= 2 * enough_at[0] + LINGER_SECONDS

        return enough

    def ask_newcomers(self, grid: Grid) -> None:
        """Ask newcomers who they are without waiting: they are heard when they have answered."""
        self._look(grid)
        for reply in grid.pull_messages(list(self._questions)) if self._questions else ():
            node, _ = self._questions.pop(reply.metadata.reply_to_message_id, (None, 0))
            if node is not None:
                self.hear(node, reply)
        now = time.monotonic()
        self._questions = {m: (n, end) for m, (n, end) in self._questions.items() if now < end}
        fresh = sorted(self._connected - self._heard - {n for n, _ in self._questions.values()})
        questions = [
            Message(
                self._question(with_key=False),
                dst_node_id=node,
                message_type=messages.OFFER,
                ttl=QUESTION_SECONDS,
            )
            for node in fresh
        ]
        if questions:
            sent = zip(grid.push_messages(questions), fresh, strict=True)
            end = now + QUESTION_SECONDS
            self._questions |= {message: (node, end) for message, node in sent if message}

    def ask_anew(self) -> None:
        """Begin again: nobody is there until it has answered again."""
        self._heard.clear()
        self._node_of.clear()

    def _look(self, grid: Grid) -> None:
        self._connected = set(grid.get_node_ids())

    def _question(
        self, with_key: bool, unless_committed: bool = False, node: int | None = None
    ) -> RecordDict:
        """Who are you? With the commit, for a node that is known to be one of its members."""
        commit, who = self.committed, self._proved.get(node or 0, "")
        tells = with_key and commit is not None and commit.index(who) is not None
        return messages.content(
            {
                "federation": self.federation,
                "with-key": with_key,
                "unless-committed": unless_committed,
                "committed": commit.record if commit and tells else b"",
            }
        )

    def hear(self, node: int, reply: Message) -> None:
        """Take note of who a node says it is, if it can prove it."""
        why = messages.failure(reply)
        if why is None:
            try:
                self._take(node, messages.fields(reply))
                self._heard.add(node)
                self.refused.pop(node, None)
                return
            except Exception as error:  # whatever a node sends, the others go on
                why = type(error).__name__
        if why == "WrongFederation":
            self._heard.add(node)
        if self.refused.get(node) != why:
            log(WARNING, "node %s is not taken in: %s", node, why)
        self.refused[node] = why

    def _take(self, node: int, reply: Mapping[str, Any]) -> None:
        if "withdrew" in reply:
            identity = reply["withdrew"]
            content = messages.farewell(self.federation, node, self.run_id)
            if not is_signed(bytes.fromhex(identity), "withdrew", content, reply["signature"]):
                raise Refusal("the farewell is not signed by the key that it names")
            self.withdrew.add(identity)
            return
        signed = SignedOffer(reply["offer"], reply["signature"])
        offer = signed.checked()
        if (offer.federation, offer.node_id, offer.run_id) != (self.federation, node, self.run_id):
            raise Refusal("the offer is of another federation, node or run")
        if offer.n_shareable * offer.row_bytes > MOST_BYTES:
            raise Refusal("the offer claims more than a site can have")
        commit = self._commit_of(reply["commit"], offer.commit)
        if commit is not None and commit.index(offer.identity) is not None:
            self.commits[offer.identity] = commit
        self._node_of[offer.identity], self._proved[node] = node, offer.identity
        self.offers[offer.identity] = signed

    def _commit_of(self, record: bytes, signed_digest: str) -> Commit | None:
        """The commit that a site is under, if it is the one that its offer names."""
        if not record:
            return None
        if digest(record).hex() != signed_digest:
            raise Refusal("the commit is not the one that the offer names")
        commit = Commit.decode(record)
        if commit.federation != self.federation:
            raise Refusal("the commit is of another federation")
        return commit
