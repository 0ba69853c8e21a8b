"""The server's part in the exchange: it routes sealed envelopes and collects receipts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedcommons import shown
from fedcommons.federate.protocol.chunks import CHUNK_BYTES, n_chunks, rows_per_chunk
from fedcommons.federate.protocol.joint_draw import promise
from fedcommons.federate.protocol.receipts import Receipt
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.server import asking
from fedcommons.federate.server.asking import OpenQuestions
from fedcommons.federate.server.link import (
    NO_ANSWER,
    UNAVAILABLE,
    Kind,
    Link,
    Question,
    Reply,
    class_of,
)
from fedcommons.federate.server.meeting import Meeting
from fedcommons.federate.server.state import Exchange, ServerState

logger = shown.logger(__name__)

WINDOW_BYTES = 3 * CHUNK_BYTES  # in flight at once: a SuperLink needs about five times as much
ATTEMPTS = 3  # of a site that answers with errors; one that is away may come back in time
RETRY_SECONDS = 2.0

Sealed = tuple[int, bytes]  # the sender's place in the roster, the envelope


class Delivery:
    """Routes envelopes until every delivery has its receipt or will not get one.

    What sites do is idempotent, so they are asked again if need be. A site that cannot be reached
    within `seconds`, or keeps failing, is lost for this exchange: nobody waits for it twice.
    """

    def __init__(
        self,
        link: Link,
        meeting: Meeting,
        state: ServerState,
        exchange: Exchange,
        *,
        seconds: float,
    ) -> None:
        self.link, self.meeting, self.state, self.seconds = link, meeting, state, seconds
        self.exchange = exchange
        self.lost: dict[int, str] = {}  # place in the roster -> why

    @property
    def epoch(self) -> Epoch:
        return self.exchange.epoch

    def run(self) -> Exchange:
        """The exchange with all the receipts that came."""
        sites, copies = self.epoch.sites, self.epoch.copies
        chunks = {
            place: n_chunks(offer, copies) if copies else 0 for place, offer in enumerate(sites)
        }
        for chunk in range(max(chunks.values())):
            senders = {
                place: recipients
                for place in chunks
                if chunk < chunks[place] and (recipients := self._wanting(place))
            }
            if not senders:
                break
            for group in _within_window(senders, self._chunk_bytes):
                envelopes = self._collect({place: senders[place] for place in group}, chunk)
                receipts = self._hand_out(envelopes)
                if receipts:
                    self.exchange = Exchange(self.epoch, (*self.exchange.receipts, *receipts))
                    self.state.save_exchange(self.exchange, "server.receipts")
            logger.info("exchange: chunk %d of %d routed", chunk + 1, max(chunks.values()))
        return self.exchange

    def values(self) -> dict[int, bytes]:
        """What the sites reveal for the draw of a proposal; who does not, or lies, is lost."""
        places = range(len(self.epoch.sites))
        question = Question({"epoch": self.epoch.record})
        replies = self._persistently(dict.fromkeys(places, question), "draw")
        found: dict[int, bytes] = {}
        for place, reply in replies.items():
            site, value = self.epoch.sites[place], reply.fields.get("value")
            if isinstance(value, bytes) and promise(site.identity, value) == site.promise:
                found[place] = value
            else:
                self._lose(place, "not what it promised")
        return found

    def _wanting(self, sender: int) -> list[int]:
        """Who still waits for examples of this sender."""
        identities = [site.identity for site in self.epoch.sites]
        done = {r.recipient for r in self.exchange.receipts if r.sender == identities[sender]}
        return [
            place
            for place, identity in enumerate(identities)
            if identity not in done and not {place, sender} & set(self.lost) and place != sender
        ]

    def _chunk_bytes(self, sender: int) -> int:
        offer, copies = self.epoch.sites[sender], self.epoch.copies
        return min(offer.n_shareable, rows_per_chunk(offer, copies)) * (offer.row_bytes * copies)

    def _persistently(self, questions: Mapping[int, Question], kind: Kind) -> dict[int, Reply]:
        """Ask sites, by place in the roster, until they answered or are lost.

        Nobody waits for another: who failed is asked again while a third one still works.
        """
        end = time.monotonic() + self.seconds
        sent = OpenQuestions(self.link, kind)
        due = dict.fromkeys(questions, time.monotonic())  # who is to be asked, and from when on
        failures, last = Counter[int](), dict.fromkeys(questions, "not connected")
        replies: dict[int, Reply] = {}
        place_of: dict[int, int] = {}
        while (due or sent.waiting) and (left := end - time.monotonic()) > 0:
            now = self._nodes_of([place for place, when in due.items() if when <= end - left])
            place_of |= now
            for node in sent.push({n: questions[p] for n, p in now.items()}, seconds=left):
                last[place_of[node]] = NO_ANSWER
                del due[place_of[node]]
            for node, reply in sent.pull():
                place, why = place_of[node], reply.failure
                if why is None:
                    replies[place] = reply
                    continue
                last[place] = why
                logger.warning("exchange: %s: %s", self.epoch.sites[place].site, why)
                failures[place] += why != UNAVAILABLE
                if failures[place] < ATTEMPTS:
                    due[place] = time.monotonic() + RETRY_SECONDS
            if due or sent.waiting:
                time.sleep(min(asking.POLL_SECONDS, max(end - time.monotonic(), 0)))
        for place in set(questions) - set(replies):
            self._lose(place, last[place])
        return replies

    def _nodes_of(self, places: Sequence[int]) -> dict[int, int]:
        """The nodes of those of the sites that are connected now: node -> place."""
        if places:
            self.meeting.ask_newcomers(self.link)
        nodes = ((self.meeting.node(self.epoch.sites[place].identity), place) for place in places)
        return {node: place for node, place in nodes if node is not None}

    def _lose(self, place: int, why: str) -> None:
        self.lost[place] = why
        logger.warning("exchange: goes on without %s: %s", self.epoch.sites[place].site, why)

    def _collect(self, wanted: Mapping[int, list[int]], chunk: int) -> dict[int, list[Sealed]]:
        """The envelopes of one chunk, by recipient."""
        requests = {
            sender: Question({"epoch": self.epoch.record, "recipients": recipients, "chunk": chunk})
            for sender, recipients in wanted.items()
        }
        envelopes: dict[int, list[Sealed]] = {}
        for sender, reply in self._persistently(requests, "send").items():
            try:
                parts = list(zip(reply.fields["recipients"], reply.envelopes, strict=True))
            except Exception:  # whatever a site sends, the others go on
                self._lose(sender, "malformed envelopes")
                continue
            for recipient, sealed in parts:
                if recipient in wanted[sender]:
                    envelopes.setdefault(recipient, []).append((sender, sealed))
        return envelopes

    def _hand_out(self, envelopes: Mapping[int, list[Sealed]]) -> list[Receipt]:
        """Deliver envelopes, a bounded message to each recipient at a time; the receipts."""
        queues = {place: list(queue) for place, queue in envelopes.items()}
        receipts: list[Receipt] = []
        while any(queues.values()):
            batch = {place: _up_to_a_chunk(queue) for place, queue in queues.items() if queue}
            sizes = {p: sum(len(sealed) for _, sealed in parts) for p, parts in batch.items()}
            for group in _within_window(batch, sizes.__getitem__):
                requests = {
                    place: Question(
                        {"epoch": self.epoch.record}, envelopes=[s for _, s in batch[place]]
                    )
                    for place in group
                    if place not in self.lost
                }
                for place, reply in self._persistently(requests, "receive").items():
                    receipts += self._receipts(place, {s for s, _ in batch[place]}, reply)
            for place in set(self.lost) & set(queues):
                queues[place].clear()
        return receipts

    def _receipts(self, place: int, senders: set[int], reply: Reply) -> list[Receipt]:
        """The receipts of one recipient that are signed and for what it was handed."""
        recipient = self.epoch.sites[place]
        expected = {self.epoch.sites[sender].identity for sender in senders}
        try:
            for kind, count in zip(
                reply.fields["refused"], reply.fields["refused-counts"], strict=True
            ):
                why = class_of(kind, "it does not say why")
                logger.warning("exchange: %s refused %d: %s", recipient.site, count, why)
            columns = (reply.fields[name] for name in ("senders", "examples", "signatures"))
            found = [
                Receipt(sender, recipient.identity, n, signature)
                for sender, n, signature in zip(*columns, strict=True)
            ]
            return [r for r in found if r.sender in expected and r.is_signed(self.epoch)]
        except Exception:  # whatever a site sends, the others go on
            logger.warning("exchange: %s: malformed receipts", recipient.site)
            return []


def _within_window(places: Iterable[int], size_of: Callable[[int], int]) -> list[list[int]]:
    """Groups whose sizes together stay within the window."""
    groups: list[list[int]] = []
    room = 0
    for place in places:
        size = size_of(place)
        if not groups or size > room:
            groups.append([])
            room = WINDOW_BYTES
        groups[-1].append(place)
        room -= size
    return groups


def _up_to_a_chunk(queue: list[Sealed]) -> list[Sealed]:
    """Take envelopes from the front of the queue that fit into one message, at least one."""
    taken = [queue.pop(0)]
    size = len(taken[0][1])
    while queue and size + len(queue[0][1]) <= CHUNK_BYTES:
        size += len(queue[0][1])
        taken.append(queue.pop(0))
    return taken
