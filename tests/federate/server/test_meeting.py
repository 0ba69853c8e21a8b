"""Who is there: nobody holds up the others, and a bad offer is refused."""

import dataclasses

import pytest
from flwr.app import ConfigRecord, Message

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import versions
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.records import Offer
from fedcommons.federate.server import meeting
from fedcommons.federate.transport import messages
from tests.federate.server.trouble import (
    Troubled,
    changed,
    crash,
    empty,
    missing,
    silence,
    stop_the_clock,
)
from tests.federate.tiny import (
    Counting,
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


def test_a_node_that_hangs_holds_up_nobody(tiny, monkeypatch):
    clock = stop_the_clock(monkeypatch)
    grid = tiny.grid(Troubled)
    grid.trouble = silence
    with tiny.shared(grid, n_sites=3, wait=600) as federation:
        assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
    assert clock.now < 1


def test_slow_nodes_are_waited_for_although_enough_are_there(tiny, monkeypatch):
    monkeypatch.setattr(meeting, "LINGER_SECONDS", 5.0)

    class Late(Counting):
        pulls = 0

        def pull_messages(self, message_ids):
            self.pulls += 1
            ids = [sent for sent in message_ids if sent != "2" or self.pulls > 5]
            return super().pull_messages(ids)

    with tiny.shared(tiny.grid(Late), n_sites=2, wait=600) as federation:
        assert len(federation.commit.members) == 4


def test_waiting_for_sites_ends(tiny, monkeypatch):
    clock = stop_the_clock(monkeypatch)
    with tiny.shared(n_sites=9, wait=30) as federation:
        assert len(federation.commit.members) == 4
    assert clock.now == pytest.approx(30, abs=1)


def test_a_new_exchange_waits_once_for_sites_that_do_not_come(tiny, monkeypatch):
    """Who was there says who it is, then gives a key; the second time nobody else is awaited."""
    tiny.run(1)
    gather, awaited = meeting.Meeting.gather, []

    def noting(self, link, *, n_sites, **options):
        awaited.append(n_sites)
        gather(self, link, n_sites=n_sites, **options)

    monkeypatch.setattr(meeting.Meeting, "gather", noting)
    with tiny.shared(n_sites=9, wait=0.1, reshare=True) as federation:
        assert len(federation.commit.members) == 4
    assert awaited == [9, 4]


def test_a_site_that_comes_late_is_taken_in(tiny):
    grid = tiny.grid()
    contexts, asked = dict(grid.contexts), []
    grid.get_node_ids = lambda: (asked.append(1), list(contexts)[: 1 + len(asked)])[1]
    with tiny.shared(grid, n_sites=4, wait=60) as federation:
        assert len(federation.commit.members) == 4


def test_one_site_is_no_federation(tiny):
    with pytest.raises(FederationError, match="two sites are needed, 1 answered within 0 s"):
        tiny.run(1, grid=tiny.grid(without="bcd"))


def offering(**changes):
    """An offer that says something else, signed by whoever made it."""

    def trouble(_message: Message, reply: Message) -> Message:
        identity = Identity.create()
        offer = Offer.decode(reply.content[messages.FIELDS]["offer"])
        signed = dataclasses.replace(offer, identity=identity.name, **changes).signed(identity)
        fields = {"offer": signed.content, "signature": signed.signature, "commit": b""}
        reply.content[messages.FIELDS] = ConfigRecord(fields)
        return reply

    return trouble


BAD_OFFERS = {
    "nothing": empty,
    "an error": crash,
    "no offer": missing("offer"),
    "no signature": missing("signature"),
    "no commit": missing("commit"),
    "an offer in words": changed(offer="offer"),
    "an offer that is no offer": changed(offer=b"{}"),
    "a forged signature": changed(signature=b"0" * 64),
    "a signature in numbers": changed(signature=[1, 2]),
    "a commit that is none": changed(commit=b"{}"),
    "a commit in numbers": changed(commit=3),
    "another node": offering(node_id=99),
    "another run": offering(run_id=1),
    "another federation": offering(federation="others"),
    "examples of no size": offering(row_bytes=0),
    "more than a site can have": offering(n_examples=2**30, n_shareable=2**30, row_bytes=2**12),
    "a farewell in numbers": changed(withdrew=3),
    "a forged farewell": changed(withdrew="0" * 64, signature=b"0" * 64),
}


@pytest.mark.parametrize("kind", BAD_OFFERS)
def test_a_bad_offer_is_refused_and_the_others_go_on(tiny, kind):
    grid = tiny.grid(Troubled)
    grid.trouble = BAD_OFFERS[kind]
    with tiny.shared(grid) as federation:
        assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
        assert list(federation.meeting.refused) == [3]
        _, notes = train(federation, grid, 1)
    assert set(outcomes(notes[0]).values()) == {"answered"}


def test_a_site_that_returns_to_its_node_is_asked_at_once(tiny):
    """A node keeps its identity in a run: a site that was away loses no further round."""
    grid = tiny.grid(Counting)
    with tiny.shared(grid) as federation:
        away = grid.contexts.pop(3)
        _, first = train(federation, grid, 1)
        grid.contexts[3] = away
        _, second = train(federation, grid, 2)
    assert (outcomes(first[0])["b"], outcomes(second[0])["b"]) == ("not connected", "answered")
    assert [sent for sent in grid.sent if sent == ("b", messages.OFFER)] == [("b", messages.OFFER)]


def test_a_site_at_another_node_is_met_without_waiting(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        moved = grid.contexts.pop(3)
        moved.node_id = 33
        grid.contexts[33] = moved
        _, notes = train(federation, grid, 3)
    assert [outcomes(note)["b"] for note in notes] == ["not connected", "answered", "answered"]


def test_a_question_that_is_never_answered_is_asked_again(tiny, monkeypatch):
    tiny.run(1)
    clock = stop_the_clock(monkeypatch)
    grid = tiny.grid(Troubled)
    grid.trouble = silence
    with tiny.shared(grid, n_sites=3) as federation:
        train(federation, grid, 3)
        grid.trouble = Troubled.trouble
        clock.sleep(meeting.QUESTION_SECONDS)
        _, notes = train(federation, grid, 6)
    assert outcomes(notes[-1])["b"] == "answered"


def test_a_newcomer_does_not_change_the_commit(tiny):
    """Only an exchange adopts commits: the roster never changes in the middle of a training."""
    tiny.run(1)
    old = tiny.grid(without="d")
    with tiny.shared(old) as federation:
        commit = federation.commit
        newer = commit.anew(code="equal-split")
        federation.meeting.commits["someone"] = newer
        train(federation, old, 3)
        assert federation.commit is commit


def test_a_commit_is_reported_by_its_members_alone(tiny):
    """Else anybody could bring in a commit of a federation that it has no part in."""
    with tiny.shared() as federation:
        commit, present = federation.commit.anew(), federation.meeting
        stranger, run_id = Identity.create(), present.run_id
        offer = Offer.decode(present.offers[present.here[0]].content)
        mine = dataclasses.replace(
            offer, identity=stranger.name, node_id=9, run_id=run_id, commit=commit.digest.hex()
        ).signed(stranger)
        fields = {"offer": mine.content, "signature": mine.signature, "commit": commit.record}
        fields |= {"protocol": versions.CURRENT, "answered": 0}
        present._take(9, fields)
        assert stranger.name in present.offers
        assert present.commits == {}
