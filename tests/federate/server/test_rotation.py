"""A site replaces its key: what was begun goes on under the old one, the next exchange has the new.

Every test begins with an exchange, after which site a rotates and the others trust its statement.
"""

import signal

import numpy as np
import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable, versions
from fedcommons.federate.protocol.farewells import farewell
from fedcommons.federate.protocol.rotations import Rotations
from fedcommons.federate.server.meeting import Meeting
from fedcommons.federate.site.rotation import read_statement, rotate_identity, trust_in_store
from fedcommons.federate.transport.site_requests import SiteRequests
from tests.federate.conftest import FEDERATION, epoch_of, exchange
from tests.federate.tiny import die_at, in_child, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")


def rotate(tiny, name="a", *, trusted_by="bcd"):
    """The keys of a site before and after."""
    statement = tiny.folder / "statement"
    with tiny.store(name) as store:
        old = store.identity.name
        rotate_identity(store, statement)
        new = store.identity.name
    for other in trusted_by:
        with tiny.store(other) as store:
            assert trust_in_store(store, read_statement(statement)) == name
    return old, new


def keys_of(federation):
    return {member.site: member.identity for member in federation.commit.members}


def test_training_goes_on_under_the_old_key_and_the_next_exchange_has_the_new(tiny):
    tiny.run(1)
    tiny.close()
    tiny.withdraw("a", 0)
    old, new = rotate(tiny)

    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        assert keys_of(federation)["a"] == old
        _, notes = train(federation, grid, 3)
        assert keys_of(federation)["a"] == old
        # The withdrawal was committed meanwhile, and all answered.
        assert sum(map(len, federation.commit.withdrawn)) == 1
        assert set(outcomes(notes[-1]).values()) == {"answered"}
    tiny.close()

    grid = tiny.grid()
    with tiny.shared(grid, reshare=True) as federation:
        assert keys_of(federation)["a"] == new
        assert federation.commit.number == 2
        assert federation.commit.n_examples == sum(tiny.sizes) - 1  # row 0 stays withdrawn
        _, notes = train(federation, grid, 4)
        assert set(outcomes(notes[-1]).values()) == {"answered"}
    with tiny.store("a") as store:
        assert len(store.withdrawals.fingerprints()) == 1
        assert [identity.name for identity in store.keyring.identities] == [old, new]
    sent = {entry.epoch for entry in tiny.events("a", "sent")}
    assert sent == {1, 2}


def test_the_model_is_that_of_a_federation_that_kept_its_keys(tiny, tmp_path):
    known = {"straggler_prob": 0.1}
    tiny.run(2, **known)
    tiny.close()
    kept = type(tiny)(tmp_path / "kept")
    kept.run(2, **known)
    kept.close()
    rotate(tiny)
    np.testing.assert_array_equal(tiny.run(4, **known), kept.run(4, **known))
    tiny.close()
    kept.close()
    ours, theirs = (
        one.run(6, sharing={"reshare": True, "seed": 9}, **known) for one in (tiny, kept)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    kept.close()


def test_who_has_not_heard_of_the_new_key_refuses_the_exchange_and_keeps_the_old_commit(tiny):
    tiny.run(1)
    tiny.close()
    old, _ = rotate(tiny, trusted_by="bc")
    grid = tiny.grid()
    with tiny.shared(grid, reshare=True) as federation:
        # d refuses a roster with a key that it does not know, so it has no part in the exchange.
        assert {pair for pair in federation.commit.pairs if 3 in pair} == set()
    with tiny.store("d") as store:
        assert store.epochs.highest()[0] == 1
        assert store.keyring.trusted_peers()["a"] == old


def test_the_old_key_begins_nothing_any_more(tiny):
    """A thief of the old key cannot take the site's place in the next exchange."""
    tiny.run(1)
    tiny.close()
    rotate(tiny)
    with tiny.store("a") as store:  # the thief has what the site had before
        store.database.run("DELETE FROM about WHERE name = 'identity 2'")
    with pytest.raises(FederationError, match=r"could not be drawn.*'b': 'RosterRefused'"):
        tiny.share(tiny.grid(), reshare=True)


@pytest.mark.parametrize(
    "point", ["server.commit:after", "server.commit:before", "server.receipts:after"]
)
def test_a_server_that_dies_in_the_exchange_finds_the_site_again(tiny, point):
    """The site is under the old commit, while the server is in the next exchange or beyond."""
    tiny.run(1)
    tiny.close()
    _, new = rotate(tiny)

    def main():
        durable.reached = die_at(point)
        tiny.share(tiny.grid(), reshare=True)

    assert in_child(main) == -signal.SIGKILL
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        assert federation.commit.number == 2
        assert keys_of(federation)["a"] == new
        _, notes = train(federation, grid, 2)
        assert set(outcomes(notes[-1]).values()) == {"answered"}
        assert len(federation.meeting.here) == 4


def test_a_site_that_withdraws_everything_is_let_go_under_all_its_keys(tiny):
    tiny.run(1)
    tiny.close()
    rotate(tiny)

    def main():
        durable.reached = die_at("server.commit:after")
        tiny.share(tiny.grid(), reshare=True)

    assert in_child(main) == -signal.SIGKILL  # the commit lists a key that a has yet to train under
    with tiny.store("a") as store:
        store.withdrawals.withdraw_everything()
    with tiny.shared(tiny.grid()) as federation:
        assert federation.commit.present == (False, True, True, True)
        assert federation.meeting.n_heard == 4


def test_an_exchange_that_was_given_up_leaves_the_old_commit_in_force(tiny):
    tiny.run(1)
    tiny.close()
    old, _ = rotate(tiny)

    def main():
        durable.reached = die_at("server.receipts:after")
        tiny.share(tiny.grid(), reshare=True)

    assert in_child(main) == -signal.SIGKILL
    (tiny.state_dir / "exchange.json").unlink()  # as if the server had lost it
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        assert keys_of(federation)["a"] == old
        _, notes = train(federation, grid, 2)
        assert outcomes(notes[-1])["a"] == "answered"


# What a server believes of somebody who says that it had other keys


@pytest.fixture
def rotated(three):
    """Site a under its old commit, its reply to the server, and the meeting."""
    commit = exchange(three, epoch_of(three))
    for site in three:
        site.apply_commit(commit.record)
    three[0].store.keyring.rotate()
    question = {"federation": FEDERATION, "with-key": False, "unless-committed": True,
                "committed": b"", "known": b"", versions.FIELD: versions.CURRENT}  # fmt: skip
    reply = SiteRequests(three[0]).offer(question, node_id=5, run_id=1).fields
    meeting = Meeting(FEDERATION, 1)
    meeting._connected = {5}
    return three[0], reply, meeting


def listing(site, which):
    """A roster that lists one of a site's keys."""

    class Listed:
        identity = site.store.keyring.identities[which].name

    return [Listed]


def test_a_site_is_known_by_the_key_that_is_listed(rotated):
    site, reply, meeting = rotated
    meeting._take(5, reply)
    old, new = (identity.name for identity in site.store.keyring.identities)
    assert meeting.here == [old]
    meeting.know_as(listing(site, 1))
    assert meeting.here == [new]
    meeting.know_as(listing(site, 1))
    assert meeting.node(new) == 5
    meeting.know_as(listing(site, 0))
    assert meeting.here == [old]


def test_the_old_key_alone_does_not_make_a_node_the_site(rotated):
    site, reply, meeting = rotated
    thief = site.store.keyring.identities[0]
    forged = {**reply, "successor-signature": thief.sign("successor", reply["offer"])}
    for bad in (forged, {**reply, "rotations": b"{}"}, {**reply, "successor-signature": b""}):
        meeting.hear(5, type("R", (), {"failure": None, "fields": bad}))
        assert meeting.here == []


def test_every_key_of_a_farewell_must_have_signed_it(rotated, three):
    site, _, meeting = rotated
    victim = three[1].store.identity.name
    own = site.store.identity
    reply = {
        versions.FIELD: versions.CURRENT,
        "withdrew": own.name, "signature": farewell(own, FEDERATION),
        "withdrew-also": [victim], "also-signed": [farewell(own, FEDERATION)],
    }  # fmt: skip
    meeting.hear(5, type("R", (), {"failure": None, "fields": reply}))
    assert meeting.withdrew == set()
    assert "RosterRefused" not in meeting.refused


def test_rotations_name_all_keys(rotated):
    site, reply, _ = rotated
    assert Rotations.decode(reply["rotations"]).keys == tuple(
        identity.name for identity in site.store.keyring.identities
    )
