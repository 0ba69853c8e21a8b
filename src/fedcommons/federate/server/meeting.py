"""Who is there: which node is which site in this run, as far as the sites proved it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import versions
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.farewells import is_farewell
from fedcommons.federate.protocol.keys import is_signed
from fedcommons.federate.protocol.records import (
    HIGHEST_QUESTION,
    OnRoster,
    SignedOffer,
    digest,
    integer_of,
)
from fedcommons.federate.protocol.refusals import Refusal
from fedcommons.federate.protocol.rotations import Rotations
from fedcommons.federate.server import asking
from fedcommons.federate.server.advice import ADVICE
from fedcommons.federate.server.asking import ask
from fedcommons.federate.server.link import Link, Node, Question, Reply, Ticket

logger = shown.logger(__name__)

LINGER_SECONDS = 5.0  # for the slow, when enough sites are there
MEET_AGAIN_SECONDS = 1.0
QUESTION_SECONDS = 60.0
SAID = ("withdrawn", "withdrawn-private", "withdrawal-signature")  # of what a site withdrew
MOST_BYTES = 1 << 40  # that a site may offer: what it takes to route them is bounded


class Meeting:
    """Which node is which site. A node keeps its identity in a run, also while it is away."""

    def __init__(self, federation: str, run_id: int) -> None:
        self.federation, self.run_id = federation, run_id
        self.committed: Commit | None = None  # the server's: members see what they withdrew
        self.seed: int | None = None  # of a simulation's draw
        self.offers: dict[str, SignedOffer] = {}  # by identity, as all that follow
        self.commits: dict[str, Commit] = {}  # the commits that sites say they have applied
        self.withdrawn: dict[str, Mapping[str, Any]] = {}  # what each says of its withdrawals
        self.answered: dict[str, int] = {}  # the number of the last question that each answered
        self.farewells: dict[str, str] = {}  # of all keys of sites that took everything back
        self._left: set[str] = set()  # each of them once
        self.refused: dict[Node, str] = {}  # why a node is not taken in
        self._node_of: dict[str, Node] = {}
        self._proved: dict[Node, str] = {}  # who a node has proved to be in this run
        self._connected: set[Node] = set()
        self._heard: set[Node] = set()
        self._rotations: dict[str, Rotations] = {}  # the keys of sites that replaced theirs
        self._asked: dict[Ticket, tuple[Node, float]] = {}  # and when the question is dropped

    @property
    def withdrew(self) -> set[str]:
        """The sites that withdrew everything, by all their identities."""
        return set(self.farewells)

    def node(self, identity: str) -> Node | None:
        """The node of a site; None if it is not connected."""
        node = self._node_of.get(identity)
        return node if node in self._connected else None

    def identity_of(self, node: Node) -> str:
        """Who a node has proved to be in this run."""
        return self._proved[node]

    @property
    def here(self) -> list[str]:
        """The identities of the sites that are connected."""
        return [identity for identity in self._node_of if self.node(identity) is not None]

    @property
    def n_heard(self) -> int:
        """How many sites are connected or withdrew everything: nobody waits for those."""
        return len(self.here) + len(self._left)

    # Asking

    def gather(
        self,
        link: Link,
        *,
        n_sites: int,
        wait: float,
        with_key: bool,
        unless_committed: bool,
        nobody_comes: bool = False,
    ) -> None:
        """Wait for `n_sites` sites, for at most `wait` seconds; two are needed.

        Where `nobody_comes` later, a node that was not taken in is not waited for.
        """
        end = time.monotonic() + wait
        while True:
            self._ask_all(
                link,
                with_key=with_key,
                unless_committed=unless_committed,
                seconds=max(end - time.monotonic(), 1.0),
                n_sites=n_sites,
            )
            left = end - time.monotonic()
            all_answered = self._connected <= self._heard | set(self.refused)
            if self.n_heard >= n_sites or left <= 0 or (nobody_comes and all_answered):
                break
            time.sleep(min(MEET_AGAIN_SECONDS, left))
        if len(self.here) < 2:
            raise FederationError(
                f"two sites are needed, {len(self.here)} answered within {wait:g} s; "
                f"nodes that were not taken in: {self.refused or 'none'}"
            )
        logger.info("%d sites are there", len(self.here))

    def _ask_all(
        self, link: Link, *, with_key: bool, unless_committed: bool, seconds: float, n_sites: int
    ) -> None:
        """Ask the nodes that were not heard yet who they are, and wait for them.

        When `n_sites` are there, the others get as long again and a little more: a node that hangs
        does not hold up everybody.
        """
        self._connected = set(link.nodes())
        fresh = sorted(self._connected - self._heard)
        ask(
            link,
            "offer",
            {node: self._question(with_key, unless_committed, node) for node in fresh},
            seconds=seconds,
            on_reply=lambda node, reply, _seconds: self.hear(node, reply),
            enough=self._patience(n_sites),
        )

    def _patience(self, n_sites: int) -> Callable[[float], bool]:
        enough_at: list[float] = []

        def enough(passed: float) -> bool:
            if not enough_at and self.n_heard >= n_sites:
                enough_at.append(passed)
            return bool(enough_at) and passed >= 2 * enough_at[0] + LINGER_SECONDS

        return enough

    def ask_newcomers(self, link: Link) -> None:
        """Ask newcomers who they are without waiting: they are heard when they have answered."""
        self._connected = set(link.nodes())
        for ticket, reply in link.pull(list(self._asked)) if self._asked else ():
            node, _ = self._asked.pop(ticket, (None, 0))
            if node is not None:
                self.hear(node, reply)
        now = time.monotonic()
        self._asked = {t: (node, end) for t, (node, end) in self._asked.items() if now < end}
        fresh = sorted(self._connected - self._heard - {node for node, _ in self._asked.values()})
        if fresh:
            questions = {node: self._question(with_key=False) for node in fresh}
            sent = link.push("offer", questions, seconds=QUESTION_SECONDS)
            self._asked |= {ticket: (node, now + QUESTION_SECONDS) for ticket, node in sent.items()}

    def await_one_of(self, identities: Sequence[str], link: Link, seconds: float) -> None:
        """Look who is connected, for so long if it is none of these."""
        end = time.monotonic() + seconds
        self.ask_newcomers(link)
        while identities and all(self.node(identity) is None for identity in identities):
            if (left := end - time.monotonic()) <= 0:
                break
            time.sleep(min(asking.POLL_SECONDS, left))
            self.ask_newcomers(link)

    def ask_anew(self) -> None:
        """Begin again: nobody is there until it has answered again."""
        self._heard.clear()
        self._node_of.clear()
        self._rotations.clear()

    def _question(
        self, with_key: bool, unless_committed: bool = False, node: Node | None = None
    ) -> Question:
        """Who are you? With the commit, for a node that is known to be one of its members."""
        commit, who = self.committed, self._proved.get(node or 0, "")
        tells = with_key and commit is not None and commit.index(who) is not None
        seed = {} if self.seed is None else {"seed": self.seed}
        return Question(
            {
                **seed,
                "federation": self.federation,
                "with-key": with_key,
                "unless-committed": unless_committed,
                "committed": commit.record if commit and tells else b"",
                "known": commit.digest if commit else b"",
            }
        )

    # Hearing

    def hear(self, node: Node, reply: Reply) -> None:
        """Take note of who a node says it is, if it can prove it."""
        why = reply.failure
        if why is None:
            try:
                self._take(node, reply.fields)
                self._heard.add(node)
                self.refused.pop(node, None)
                return
            except Exception as error:  # whatever a node sends, the others go on
                why = type(error).__name__
        if why == "WrongFederation":
            self._heard.add(node)
        if why in ADVICE:
            why = f"{why} ({ADVICE[why]})"
        if self.refused.get(node) != why:
            logger.warning("node %s is not taken in: %s", node, why)
        self.refused[node] = why

    def _take(self, node: Node, reply: Mapping[str, Any]) -> None:
        versions.check_offer(reply)
        if "withdrew" in reply:
            self.take_leave(reply)
            return
        signed = SignedOffer(reply["offer"], reply["signature"])
        offer = signed.checked()
        if (offer.federation, offer.node_id, offer.run_id) != (self.federation, node, self.run_id):
            raise Refusal("the offer is of another federation, node or run")
        if offer.n_shareable * offer.row_bytes > MOST_BYTES:
            raise Refusal("the offer claims more than a site can have")
        answered = integer_of(reply["answered"], "answered", high=HIGHEST_QUESTION)
        rotations = self._rotations_of(signed, reply) if "rotations" in reply else None
        commit = self._commit_of(reply["commit"], offer.commit)
        if commit is not None and commit.index(offer.identity) is not None:
            self.commits[offer.identity] = commit
        self._node_of[offer.identity], self._proved[node] = node, offer.identity
        self.offers[offer.identity] = signed
        self.answered[offer.identity] = answered
        if "withdrawn" in reply:
            self.withdrawn[offer.identity] = {name: reply[name] for name in SAID}
        if rotations is not None:
            self._rotations[offer.identity] = rotations
            if self.committed is not None:
                self.know_as(self.committed.members)

    @staticmethod
    def _rotations_of(offer: SignedOffer, reply: Mapping[str, Any]) -> Rotations:
        """The other keys of a site; the newest one must have signed the offer too."""
        rotations = Rotations.decode(reply["rotations"])
        newest, signature = bytes.fromhex(rotations.newest), reply["successor-signature"]
        if offer.checked().identity not in rotations.keys or not is_signed(
            newest, "successor", offer.content, signature
        ):
            raise Refusal("the offer is not signed by the newest key of its site")
        return rotations

    def take_leave(self, reply: Mapping[str, Any]) -> None:
        """A site took everything back: note its key, and those that it had before."""
        signed = {reply["withdrew"]: reply["signature"]}
        signed |= zip(reply.get("withdrew-also", ()), reply.get("also-signed", ()), strict=True)
        farewells = {identity: signature.hex() for identity, signature in signed.items()}
        for identity, signature in farewells.items():
            if not is_farewell(identity, self.federation, signature):
                raise Refusal("the farewell is not signed by the keys that it names")
        self.farewells |= farewells
        self._left.add(reply["withdrew"])

    def know_as(self, roster: Iterable[OnRoster]) -> None:
        """Know sites that replaced their keys by those that a roster lists.

        A site says who it is by the key of what it is under. The server may be further, or has to
        go back; both keys have signed that they are the same site's.
        """
        listed = {site.identity for site in roster}
        for known in set(self._rotations) - listed:
            rotations = self._rotations[known]
            new = next((key for key in reversed(rotations.keys) if key in listed), None)
            if new is None or known not in self._node_of:
                continue
            node = self._node_of[new] = self._node_of.pop(known)
            self._proved[node] = new
            self.offers[new] = self.offers.pop(known)
            self.answered[new] = self.answered.pop(known)
            if known in self.withdrawn:
                self.withdrawn[new] = self.withdrawn.pop(known)
            self._rotations[new] = self._rotations.pop(known)
            self.commits.pop(known, None)

    def _commit_of(self, record: bytes, signed_digest: str) -> Commit | None:
        """The commit that a site has applied, if it is the one that its offer names."""
        ours = self.committed
        if ours is not None and not record and signed_digest == ours.digest.hex():
            return ours
        if not record:
            return None
        if digest(record).hex() != signed_digest:
            raise Refusal("the commit is not the one that the offer names")
        commit = Commit.decode(record)
        if commit.federation != self.federation:
            raise Refusal("the commit is of another federation")
        return commit
