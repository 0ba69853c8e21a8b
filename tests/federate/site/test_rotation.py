"""Statements of new keys: signed by both keys, pinned by peers, refused if anything is wrong."""

import json

import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.records import encode
from fedcommons.federate.protocol.refusals import Refusal, RosterRefused
from fedcommons.federate.protocol.rotations import Rotations
from fedcommons.federate.site.peers_file import read_peers
from fedcommons.federate.site.rotation import (
    read_statement,
    rotate_identity,
    trust_in_file,
    trust_in_store,
)
from tests.federate.conftest import epoch_of, exchange

A, B, C = range(3)


@pytest.fixture
def keys():
    return [Identity.create() for _ in range(3)]


def test_a_statement_is_read_as_it_was_written(keys):
    rotations = Rotations.of(keys)
    assert Rotations.decode(rotations.encode()) == rotations
    assert rotations.newest == keys[2].name


def test_what_either_key_did_not_sign_is_refused(keys):
    good, other = Rotations.of(keys), Rotations.of([keys[0], Identity.create(), keys[2]])
    content = json.loads(good.encode())
    for step in range(2):
        for which in range(2):
            forged = json.loads(good.encode())
            forged["signatures"][step][which] = other.signatures[step][which]
            with pytest.raises(RosterRefused, match="not signed by itself and the one before"):
                Rotations.decode(encode(forged))
    for bad in (
        {"keys": content["keys"][:1], "signatures": []},
        {"keys": content["keys"], "signatures": content["signatures"][:1]},
        {"keys": content["keys"] * 2, "signatures": content["signatures"]},
        {"keys": content["keys"][::-1], "signatures": content["signatures"]},
        {"keys": content["keys"], "signatures": [["00", "00"]] * 2},
        {**content, "more": 1},
        {},
    ):
        with pytest.raises(Refusal):
            Rotations.decode(encode(bad))


PINNED = """# our peers
[peers]
hospital-a = "{a}"  # called on Monday
hospital-b = '{b}'
"""


def test_a_key_is_pinned_anew_and_the_rest_of_the_file_stays(tmp_path, keys):
    file, other = tmp_path / "peers.toml", Identity.create().name
    file.write_text(PINNED.format(a=keys[0].name, b=other))
    file.chmod(0o640)
    assert trust_in_file(file, Rotations.of(keys[:2])) == "hospital-a"
    assert file.read_text() == (
        PINNED.format(a=keys[1].name, b=other) + f'\n[replaced]\n{keys[0].name} = "hospital-a"\n'
    )
    assert file.stat().st_mode & 0o777 == 0o640
    assert trust_in_file(file, Rotations.of(keys[:2])) is None
    assert trust_in_file(file, Rotations.of(keys)) == "hospital-a"
    found = read_peers(file)
    assert found.keys == {"hospital-a": keys[2].name, "hospital-b": other}
    assert found.replaced == {key.name: "hospital-a" for key in keys[:2]}


def test_who_missed_a_rotation_catches_up(tmp_path, keys):
    file = tmp_path / "peers.toml"
    file.write_text(PINNED.format(a=Identity.create().name, b=keys[0].name))
    assert trust_in_file(file, Rotations.of(keys)) == "hospital-b"
    assert read_peers(file).keys["hospital-b"] == keys[2].name


def test_a_statement_of_somebody_else_changes_nothing(tmp_path, keys):
    file = tmp_path / "peers.toml"
    before = PINNED.format(a=Identity.create().name, b=Identity.create().name)
    file.write_text(before)
    with pytest.raises(FederationError, match=r"replaces none of the keys there"):
        trust_in_file(file, Rotations.of(keys))
    assert file.read_text() == before


def test_an_old_statement_does_not_bring_an_old_key_back(tmp_path, keys):
    file = tmp_path / "peers.toml"
    file.write_text(PINNED.format(a=keys[2].name, b=Identity.create().name))
    with pytest.raises(FederationError, match="replaces none"):
        trust_in_file(file, Rotations.of(keys[:2]))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[1]" * 1000])
def test_what_is_no_statement_is_said(tmp_path, content):
    file = tmp_path / "statement"
    file.write_bytes(content)
    with pytest.raises(FederationError, match="is no statement of a new key"):
        read_statement(file)


def test_a_key_that_is_not_used_yet_is_not_replaced(committed, tmp_path):
    sites, _, _ = committed
    store = sites[A].store
    rotate_identity(store, tmp_path / "once")
    rotate_identity(store, tmp_path / "again")
    assert (tmp_path / "once").read_bytes() == (tmp_path / "again").read_bytes()
    rotations = read_statement(tmp_path / "once")
    for site in sites[1:]:
        assert trust_in_store(site.store, rotations) == "a"
    epoch = epoch_of(sites, number=2)
    commit = exchange(sites, epoch)
    for site in sites:
        site.apply_commit(commit.record)
    rotate_identity(store, tmp_path / "next")
    assert len(read_statement(tmp_path / "next").keys) == 3


def test_an_exchange_under_the_new_key_gives_what_one_under_the_old_gave(committed, tmp_path):
    sites, first, _ = committed
    rotate_identity(sites[A].store, tmp_path / "statement")
    rotations = read_statement(tmp_path / "statement")
    epoch = epoch_of(sites, number=2)
    assert epoch.sites[A].identity == rotations.newest != first.sites[A].identity
    assert epoch.sites[A].manifest == first.sites[A].manifest  # rows are known as before
    with pytest.raises(RosterRefused, match="site a does not have the key that is pinned"):
        sites[B].exchange.send(epoch.record, range(3), 0)
    for site in sites[1:]:
        trust_in_store(site.store, rotations)
    commit = exchange(sites, epoch)
    for site in sites:
        site.apply_commit(commit.record)
    assert len(commit.pairs) == 6


def test_a_replaced_key_is_good_for_what_was_begun_under_it_alone(committed, tmp_path):
    sites, _, commit = committed
    later = epoch_of(sites, number=2)  # offered before a rotates
    rotate_identity(sites[A].store, tmp_path / "statement")
    for site in sites[1:]:
        trust_in_store(site.store, read_statement(tmp_path / "statement"))
    followed = commit.without(C)
    for site in sites[:C]:
        assert site.apply_commit(followed.record) == followed
    for site in sites:
        with pytest.raises(RosterRefused):
            site.exchange.send(later.record, range(3), 0)
