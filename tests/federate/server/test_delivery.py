"""An exchange ends, whatever happens, and a delivery counts with its receipt alone."""

import pytest
from flwr.app import ArrayRecord, Error, Message

from fedcommons.federate.protocol.receipts import receipt_content
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.server import delivery
from fedcommons.federate.transport import messages
from tests.federate.server.agreement import check_unbiased
from tests.federate.server.trouble import (
    Troubled,
    Weighing,
    changed,
    crash,
    empty,
    in_small_chunks,
    missing,
    silence,
    stop_the_clock,
)
from tests.federate.tiny import (
    Counting,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


def test_a_site_that_fails_is_asked_again_while_another_hangs(tiny):
    grid, failed = tiny.grid(Troubled), []

    def trouble(message, reply):
        site = grid.contexts[message.metadata.dst_node_id].node_config["site"]
        if site == "a":
            return None
        if site == "b" and not failed:
            failed.append(site)
            return crash(message, reply)
        return reply

    grid.kind, grid.trouble, grid.sites = messages.SEND, trouble, "ab"
    with tiny.shared(grid, seconds=1.5) as federation:
        senders = {sender for sender, _ in federation.commit.pairs}
    assert (failed, senders) == (["b"], {1, 2, 3})


def test_nothing_shared_is_a_commit_too(tiny):
    grid = tiny.grid(Counting)
    with tiny.shared(grid, copies=0) as federation:
        assert federation.commit.pairs == ()
        check_unbiased(tiny, federation, grid)
    assert messages.SEND not in {kind for _, kind in grid.sent}


@pytest.mark.parametrize("kind", [messages.SEND, messages.RECEIVE])
@pytest.mark.parametrize("trouble", [crash, silence])
def test_the_exchange_ends_without_a_site_that_fails(tiny, monkeypatch, kind, trouble):
    clock = stop_the_clock(monkeypatch)
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = kind, trouble
    with tiny.shared(grid, seconds=1.5) as federation:
        pairs = federation.commit.pairs
        grid.trouble = Troubled.trouble
        check_unbiased(tiny, federation, grid)
    assert clock.now < 5
    place = 1
    assert not [pair for pair in pairs if pair[0 if kind == messages.SEND else 1] == place]
    assert pairs  # the others' deliveries
    asked = grid.sent.count(("b", kind))
    assert asked == (delivery.ATTEMPTS if trouble is crash else 1)


@pytest.mark.parametrize("kind", [messages.SEND, messages.RECEIVE])
def test_a_site_that_fails_once_is_asked_again(tiny, kind):
    grid, failures = tiny.grid(Troubled), []

    def once(message, reply):
        failures.append(message)
        return crash(message, reply) if len(failures) == 1 else reply

    grid.kind, grid.trouble = kind, once
    with tiny.shared(grid) as federation:
        whole = {
            (s, r)
            for s in range(4)
            for r in range(4)
            if s != r and len(federation.commit.draw.assigned(s, r))
        }
        assert set(federation.commit.pairs) == whole
        check_unbiased(tiny, federation, grid)


def test_a_node_that_is_unavailable_for_a_moment_is_waited_for(tiny):
    """The SuperLink answers for it with error 5, more often than a failing site is asked."""
    grid, refused = tiny.grid(Troubled), []

    def unavailable(message, reply):
        refused.append(message)
        return Message(Error(5), reply_to=message) if len(refused) <= 6 else reply

    grid.kind, grid.trouble = messages.SEND, unavailable
    with tiny.shared(grid, seconds=60) as federation:
        assert {s for s, _ in federation.commit.pairs} == {0, 1, 2, 3}


def test_a_node_that_disconnects_for_a_moment_is_waited_for(tiny):
    grid, looks = tiny.grid(Troubled), []

    def nodes():
        looks.append(1)
        return [node for node in grid.contexts if node != 3 or not 2 <= len(looks) <= 6]

    grid.get_node_ids = nodes
    with tiny.shared(grid, seconds=60) as federation:
        assert {s for s, _ in federation.commit.pairs} == {0, 1, 2, 3}
    assert len(looks) > 6


def with_envelopes(record: ArrayRecord):
    def trouble(_message: Message, reply: Message) -> Message:
        reply.content[messages.ENVELOPES] = record
        return reply

    return trouble


BAD_ENVELOPES = {
    "nothing": empty,
    "no recipients": missing("recipients"),
    "one recipient": changed(recipients=2),
    "too many recipients": changed(recipients=[0, 2, 3, 0, 2, 3, 0]),
    "no envelopes": with_envelopes(ArrayRecord()),
}


@pytest.mark.parametrize("kind", BAD_ENVELOPES)
def test_malformed_envelopes_lose_their_sender_alone(tiny, kind):
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = messages.SEND, BAD_ENVELOPES[kind]
    with tiny.shared(grid) as federation:
        assert {s for s, _ in federation.commit.pairs} == {0, 2, 3}
        grid.trouble = Troubled.trouble
        check_unbiased(tiny, federation, grid)


BAD_RECEIPTS = {
    "nothing": empty,
    "no signatures": missing("signatures"),
    "signatures that are numbers": changed(signatures=[10**15, 10**15, 10**15]),
    "signatures in words": changed(signatures=["a", "b", "c"]),
    "forged signatures": changed(signatures=[b"0" * 64] * 3),
    "too few": changed(signatures=[b"0" * 64]),
    "examples in words": changed(examples=["a", "b", "c"]),
    "unknown senders": changed(senders=["0" * 64] * 3),
    "senders in numbers": changed(senders=[1, 2, 3]),
    "refused in numbers": changed(refused=[1.5], **{"refused-counts": ["many"]}),
}


@pytest.mark.parametrize("kind", BAD_RECEIPTS)
def test_malformed_receipts_lose_their_deliveries_alone(tiny, kind):
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = messages.RECEIVE, BAD_RECEIPTS[kind]
    with tiny.shared(grid) as federation:
        assert {r for _, r in federation.commit.pairs} == {0, 2, 3}
        grid.trouble = Troubled.trouble
        check_unbiased(tiny, federation, grid)


def test_a_receipt_counts_for_what_was_handed_out_alone(tiny):
    """b claims to have, properly signed, what a never sent."""

    class Claiming(Troubled):
        def _handle(self, message):
            if (site := message.metadata.dst_node_id) == 2:
                self.sites, self.kind, self.trouble = "a", messages.SEND, crash
            elif site == 3:
                self.sites, self.kind, self.trouble = "b", messages.RECEIVE, claim
            return super()._handle(message)

    grid = tiny.grid(Claiming)
    client = tiny.clients[-1]

    def claim(message, reply):
        b = client.site(grid.contexts[3])
        epoch = Epoch.decode(messages.fields(message)["epoch"])
        a, n = epoch.sites[0].identity, len(epoch.draw.assigned(0, 1))
        content = receipt_content(epoch.digest, a, b.identity_name, n)
        signature = b.store.identity.sign("receipt", content)
        return changed(senders=[a], examples=[n], signatures=[signature])(message, reply)

    with tiny.shared(grid) as federation:
        assert len(federation.commit.draw.assigned(0, 1))
        assert not [pair for pair in federation.commit.pairs if 1 in pair[1:] or 0 in pair[:1]]


@pytest.mark.parametrize("kind", [messages.SEND, messages.RECEIVE])
def test_a_site_that_hangs_is_waited_for_once(tiny, kind, monkeypatch):
    """Although there are many chunks."""
    in_small_chunks(monkeypatch)
    grid = tiny.grid(Troubled)
    grid.kind, grid.trouble = kind, silence
    with tiny.shared(grid, seconds=0.1) as federation:
        assert 1 not in {
            pair[0 if kind == messages.SEND else 1] for pair in federation.commit.pairs
        }
        grid.trouble = Troubled.trouble
        check_unbiased(tiny, federation, grid)
    assert grid.sent.count(("b", kind)) == 1


def test_senders_get_the_receipts_for_what_they_sent_once(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        train(federation, grid, 1, code="reliability-split")  # another commit: told again
        commit = federation.commit
    place = {member.identity: i for i, member in enumerate(commit.members)}
    for sender, member in enumerate(commit.members):
        noted = tiny.events(member.site, "receipt")
        assert {place[e.peer]: e.examples for e in noted} == {
            r: len(commit.draw.assigned(s, r)) for s, r in commit.pairs if s == sender
        }
        assert len(noted) == len({entry.peer for entry in noted})


def test_chunks_and_windows_are_bounded(tiny, monkeypatch):
    """The same exchange in many small chunks: as many messages, none of them large."""
    in_small_chunks(monkeypatch)
    grid = tiny.grid(Weighing)
    with tiny.shared(grid) as federation:
        check_unbiased(tiny, federation, grid)
        whole = sum(
            len(federation.commit.draw.assigned(s, r)) > 0
            for s in range(4)
            for r in range(4)
            if s != r
        )
        assert len(federation.commit.pairs) == whole
    assert grid.sent.count(("d", messages.SEND)) == 4  # one share number to a chunk
    assert 0 < grid.largest <= 360
