"""The server's side of the exchange: who is there, which epoch, what was delivered, the commit."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO, WARNING
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedcommons.errors import FederationError
from fedcommons.federate import wire
from fedcommons.federate.records import Commit, Epoch, Offer, SignedOffer, digest
from fedcommons.federate.refusals import Refusal
from fedcommons.federate.server_state import Exchange, ServerState
from fedcommons.federate.site import CHUNK_BYTES, Receipt, n_chunks, rows_per_chunk

WINDOW_BYTES = 3 * CHUNK_BYTES  # in flight at once: a SuperLink needs about five times as much
ATTEMPTS = 3


class Federation:
    """A federation as its server knows it: the commit, and which node is which site in this run."""

    def __init__(self, name: str, state_dir: Path, run_id: int) -> None:
        self.name, self.run_id = name, run_id
        self.state = ServerState(state_dir)
        self.node_of: dict[str, int] = {}  # identity -> node
        self.offers: dict[str, SignedOffer] = {}
        self.refused: dict[str, str] = {}  # by node, why it is not with us
        self._asked: set[int] = set()
        self._questions: dict[str, int] = {}  # message -> the node that was asked who it is
        self._commit = self.state.commit()
        if self._commit is not None and self._commit.federation != name:
            raise FederationError(
                f"state-dir {state_dir} belongs to the federation {self._commit.federation!r}, "
                f"this is {name!r}"
            )

    @property
    def commit(self) -> Commit:
        if self._commit is None:
            raise FederationError("the federation has no commit yet: share first")
        return self._commit

    def receipts(self, sender: str) -> list[Receipt]:
        """The receipts for what a site sent in the committed epoch."""
        exchange = self.state.exchange()
        if exchange is None or exchange.epoch.digest.hex() != self.commit.epoch:
            return []
        return [receipt for receipt in exchange.receipts if receipt.sender == sender]

    def close(self) -> None:
        """Let another run have the state-dir."""
        self.state.close()

    # Who is there

    def meet(self, grid: Grid, *, with_key: bool, seconds: float) -> None:
        """Ask the nodes that were not asked yet who they are."""
        nodes = set(grid.get_node_ids())
        self._asked &= nodes
        for identity, node in list(self.node_of.items()):
            if node not in nodes:
                del self.node_of[identity]
        fresh = sorted(nodes - self._asked)
        request = {"federation": self.name, "with-key": with_key}
        replies = wire.ask(
            grid, {node: wire.content(request) for node in fresh}, wire.OFFER, seconds=seconds
        )
        for node, reply in replies.items():
            self.hear(node, reply)

    def meet_quickly(self, grid: Grid) -> None:
        """Ask newcomers who they are without waiting: they are heard when they have answered."""
        nodes = set(grid.get_node_ids())
        for identity, node in list(self.node_of.items()):
            if node not in nodes:
                del self.node_of[identity]
                self._asked.discard(node)
        for reply in grid.pull_messages(list(self._questions)):
            if reply.metadata.reply_to_message_id in self._questions:
                self.hear(self._questions.pop(reply.metadata.reply_to_message_id), reply)
        fresh = sorted(nodes - self._asked - set(self._questions.values()))
        request = {"federation": self.name, "with-key": False}
        messages = [
            Message(wire.content(request), dst_node_id=node, message_type=wire.OFFER, ttl=60)
            for node in fresh
        ]
        if messages:
            sent = grid.push_messages(messages)
            self._questions |= {one: node for one, node in zip(sent, fresh, strict=True) if one}

    def hear(self, node: int, reply: Message) -> None:
        """Take note of who a node says it is, if it can prove it."""
        why = wire.failure(reply)
        if why is None:
            try:
                self._take_offer(node, wire.fields(reply))
                self._asked.add(node)
                self.refused.pop(str(node), None)
                return
            except (Refusal, KeyError, TypeError, AttributeError, UnicodeError) as error:
                why = type(error).__name__
        if why in ("SiteWithdrew", "WrongFederation"):
            self._asked.add(node)
        if self.refused.get(str(node)) != why:
            log(WARNING, "node %s is not taken in: %s", node, why)
        self.refused[str(node)] = why

    def _take_offer(self, node: int, reply: Mapping[str, bytes]) -> None:
        signed = SignedOffer(reply["offer"], reply["signature"])
        offer = signed.checked()
        if (offer.federation, offer.node_id, offer.run_id) != (self.name, node, self.run_id):
            raise Refusal("the offer is of another federation, node or run")
        self.node_of[offer.identity] = node
        self.offers[offer.identity] = signed
        record = reply["commit"]
        if record and digest(record).hex() == offer.commit:
            reported = Commit.decode(record)
            if reported.federation == self.name and (
                self._commit is None or reported.order > self._commit.order
            ):
                log(INFO, "adopting commit %s of %s", reported.order, offer.site)
                self.record(reported)

    def record(self, commit: Commit) -> None:
        """Make a commit the one that all train by."""
        self.state.save_commit(commit)
        self._commit = commit

    # The exchange

    def begin(self, copies: int, seed: int | None) -> Exchange:
        """A new epoch with the sites that are there, on the disk before anybody hears of it."""
        here = [
            (signed.checked(), signed)
            for identity, signed in self.offers.items()
            if identity in self.node_of
        ]
        sites = sorted(
            ((offer, signed) for offer, signed in here if offer.key), key=lambda o: o[0].site
        )
        names = [offer.site for offer, _ in sites]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise FederationError(f"each site must have a name of its own, got {twice} twice")
        if len(sites) < 2 or not 0 <= copies < len(sites):
            raise FederationError(
                f"copies must be in 0 to {len(sites) - 1} with {len(sites)} sites, of which two "
                f"are needed, got {copies}"
            )
        known = [offer.highest_epoch for offer, _ in sites]
        last = max([self._commit.number if self._commit else 0, *known])
        pending = self.state.exchange()
        if pending is not None:
            last = max(last, pending.epoch.number)
        epoch = Epoch(
            self.name,
            last + 1,
            secrets.randbits(62) if seed is None else seed,
            copies,
            tuple(signed for _, signed in sites),
        )
        exchange = Exchange(epoch, ())
        self.state.save_exchange(exchange, "server.epoch")
        return exchange

    def deliver(self, grid: Grid, exchange: Exchange, *, seconds: float) -> Exchange:
        """Route envelopes until every delivery has its receipt or will not get one."""
        epoch = exchange.epoch
        done = {(r.sender, r.recipient) for r in exchange.receipts}
        wanted = {
            sender: [
                recipient
                for recipient in range(len(epoch.sites))
                if recipient != sender
                and (epoch.sites[sender].identity, epoch.sites[recipient].identity) not in done
            ]
            for sender, offer in enumerate(epoch.sites)
            if offer.n_shareable and epoch.copies
        }
        total = max((n_chunks(epoch.sites[s], epoch.copies) for s in wanted), default=0)
        for chunk in range(total):
            senders = [
                s
                for s, recipients in wanted.items()
                if recipients and chunk < n_chunks(epoch.sites[s], epoch.copies)
            ]
            for group in _within_window(senders, lambda s: _chunk_bytes(epoch, s)):
                asked = {sender: wanted[sender] for sender in group}
                envelopes, silent = self._collect(grid, epoch, asked, chunk, seconds)
                wanted.update({sender: [] for sender in silent})  # never complete any more
                receipts = self._hand_out(grid, epoch, envelopes, seconds)
                if receipts:
                    exchange = Exchange(epoch, (*exchange.receipts, *receipts))
                    self.state.save_exchange(exchange, "server.receipts")
            log(INFO, "exchange: chunk %d of %d routed", chunk + 1, total)
        return exchange

    def _node(self, offer: Offer) -> int | None:
        return self.node_of.get(offer.identity)

    def _persistently(
        self,
        grid: Grid,
        epoch: Epoch,
        contents: Mapping[int, RecordDict],
        message_type: str,
        seconds: float,
    ) -> dict[int, Message]:
        """Ask sites, by place in the roster, again if need be: what they do is idempotent."""
        replies: dict[int, Message] = {}
        left = dict(contents)
        for attempt in range(ATTEMPTS):
            if not left:
                break
            if attempt:
                self.meet(grid, with_key=False, seconds=seconds)
            place_of = {
                node: place
                for place in left
                if (node := self._node(epoch.sites[place])) is not None
            }
            answers = wire.ask(
                grid,
                {node: left[place] for node, place in place_of.items()},
                message_type,
                seconds=seconds,
            )
            for node, reply in answers.items():
                place = place_of[node]
                why = wire.failure(reply)
                if why is None:
                    replies[place] = reply
                    del left[place]
                else:
                    site = epoch.sites[place].site
                    log(WARNING, "exchange: %s, %s: %s", site, message_type, why)
        return replies

    def _collect(
        self,
        grid: Grid,
        epoch: Epoch,
        wanted: Mapping[int, list[int]],
        chunk: int,
        seconds: float,
    ) -> tuple[list[tuple[int, int, bytes]], set[int]]:
        """Envelopes of one chunk, (sender, recipient, envelope), and who did not answer."""
        requests = {
            sender: wire.content({"epoch": epoch.record, "recipients": recipients, "chunk": chunk})
            for sender, recipients in wanted.items()
        }
        replies = self._persistently(grid, epoch, requests, wire.SEND, seconds)
        found = []
        for sender, reply in replies.items():
            recipients = wire.fields(reply).get("recipients", [])
            for recipient, sealed in zip(recipients, wire.bytes_of(reply), strict=False):
                if recipient in wanted[sender]:
                    found.append((sender, int(recipient), sealed))
        return found, set(wanted) - set(replies)

    def _hand_out(
        self, grid: Grid, epoch: Epoch, envelopes: Sequence[tuple[int, int, bytes]], seconds: float
    ) -> list[Receipt]:
        """Deliver envelopes, a bounded message to each recipient at a time; the receipts."""
        queues: dict[int, list[bytes]] = {}
        for _, recipient, sealed in envelopes:
            queues.setdefault(recipient, []).append(sealed)
        receipts: list[Receipt] = []
        while any(queues.values()):
            batch = {place: _up_to_a_chunk(queue) for place, queue in queues.items() if queue}
            sizes = {place: sum(map(len, parts)) for place, parts in batch.items()}
            for group in _within_window(list(batch), sizes.__getitem__):
                requests = {
                    place: wire.content(
                        {"epoch": epoch.record},
                        **{wire.ENVELOPES: wire.bytes_record(batch[place])},
                    )
                    for place in group
                }
                replies = self._persistently(grid, epoch, requests, wire.RECEIVE, seconds)
                for place, reply in replies.items():
                    receipts += self._receipts_of(epoch, place, wire.fields(reply))
        return receipts

    def _receipts_of(
        self, epoch: Epoch, place: int, reply: Mapping[str, list[object]]
    ) -> list[Receipt]:
        recipient = epoch.sites[place]
        for kind, count in zip(
            reply.get("refused", []), reply.get("refused-counts", []), strict=False
        ):
            log(WARNING, "exchange: %s refused %s envelopes: %s", recipient.site, count, kind)
        columns = (reply.get(name, []) for name in ("senders", "examples", "signatures"))
        found = [
            Receipt(str(sender), recipient.identity, int(str(n)), bytes(signature))
            for sender, n, signature in zip(*columns, strict=False)
        ]
        senders = {site.identity for site in epoch.sites}
        return [r for r in found if r.sender in senders and r.is_signed(epoch)]


def _chunk_bytes(epoch: Epoch, sender: int) -> int:
    offer = epoch.sites[sender]
    rows = min(offer.n_shareable, rows_per_chunk(offer.row_bytes, epoch.copies))
    return rows * offer.row_bytes * epoch.copies


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


def _up_to_a_chunk(queue: list[bytes]) -> list[bytes]:
    """Take envelopes from the front of the queue that fit into one message, at least one."""
    taken = [queue.pop(0)]
    size = len(taken[0])
    while queue and size + len(queue[0]) <= CHUNK_BYTES:
        size += len(queue[0])
        taken.append(queue.pop(0))
    return taken


def share(
    grid: Grid,
    *,
    federation: str,
    state_dir: Path,
    run_id: int,
    copies: int,
    n_sites: int = 2,
    wait: float = 60,
    seconds: float = 120,
    reshare: bool = False,
    leave: Sequence[str] = (),
    seed: int | None = None,
) -> Federation:
    """Exchange once, or take up the exchange that was made: the federation, under its commit."""
    us = Federation(federation, state_dir, run_id)
    pending = us.state.exchange()
    resumes = pending is not None and (
        us._commit is None or pending.epoch.number > us._commit.number
    )
    with_key = reshare or (us._commit is None and not resumes)
    end = time.monotonic() + wait
    while True:
        us.meet(grid, with_key=with_key, seconds=min(seconds, max(wait, 1)))
        if len(us.node_of) >= n_sites or time.monotonic() >= end:
            break
        time.sleep(min(1.0, wait))
    if len(us.node_of) < 2:
        raise FederationError(
            f"two sites are needed, {len(us.node_of)} answered within {wait:g} s; "
            f"nodes that were not taken in: {us.refused or 'none'}"
        )
    log(INFO, "%d sites are there", len(us.node_of))
    if resumes and pending is not None and not reshare and pending.epoch.copies == copies:
        log(INFO, "going on with the exchange of epoch %d", pending.epoch.number)
    elif us._commit is not None and not reshare:
        if us._commit.copies != copies:
            raise FederationError(
                f"copies is {copies}, but the exchange was made with {us._commit.copies}: set "
                "reshare = true to make a new one"
            )
        log(INFO, "using the exchange of epoch %d", us._commit.number)
        _let_go(us, leave)
        return us
    else:
        if not with_key:  # the commit that was looked for did not show up, or copies changed
            us._asked.clear()
            us.meet(grid, with_key=True, seconds=seconds)
        pending = us.begin(copies, seed)
    assert pending is not None
    start = time.monotonic()
    finished = us.deliver(grid, pending, seconds=seconds)
    place = {site.identity: i for i, site in enumerate(finished.epoch.sites)}
    pairs = tuple(sorted({(place[r.sender], place[r.recipient]) for r in finished.receipts}))
    us.record(Commit.of(finished.epoch, pairs))
    log(
        INFO,
        "epoch %d committed: %d deliveries, %d examples, %.1f s",
        finished.epoch.number,
        len(pairs),
        us.commit.n_examples,
        time.monotonic() - start,
    )
    _let_go(us, leave)
    return us


def _let_go(us: Federation, leave: Sequence[str]) -> None:
    """Commit anew without the sites that left for good."""
    names = [member.site for member in us.commit.members]
    for site in leave:
        if site not in names:
            raise FederationError(f"leave must name sites of the federation, got {site!r}")
        place = names.index(site)
        if us.commit.present[place]:
            us.record(us.commit.without(place))
            log(INFO, "%s left the federation: commit %s", site, us.commit.order)
