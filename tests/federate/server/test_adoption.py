"""A server that lost its state believes what those who are there bear out, and nothing else."""

import shutil
from contextlib import closing
from dataclasses import replace

import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.records import MOST_AHEAD
from fedcommons.federate.server.state import ServerState
from fedcommons.federate.site.exchange import Exchange
from fedcommons.federate.site.store import Store
from tests.federate.site.stores import enter
from tests.federate.tiny import Tiny, die_at, in_child, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")


def commit_of(tiny: Tiny):
    with tiny.shared() as federation:
        return federation.commit


def put_under(tiny: Tiny, name: str, commit) -> None:
    tiny.close()
    with tiny.store(name) as store:
        store.apply(commit, tiny.names.index(name))


def holdings(tiny: Tiny) -> dict:
    found = {}
    for name in tiny.names:
        with tiny.store(name) as store:
            found[name] = store.received.counts()
    return found


def test_one_store_does_not_throw_out_sites_that_are_there(tiny):
    tiny.run(1)
    commit = commit_of(tiny)
    put_under(tiny, "b", commit.without(0).without(2))
    shutil.rmtree(tiny.state_dir)
    before = holdings(tiny)
    with pytest.raises(FederationError, match=r"b report commit \(1, 2\), which is without a, c, "):
        tiny.share(tiny.grid())
    assert holdings(tiny) == before
    with tiny.shared(tiny.grid(), leave=["a", "c"]) as federation:  # the operator says so
        assert federation.commit.present == (False, True, False, True)


def test_a_new_exchange_is_possible_all_the_same(tiny):
    tiny.run(1)
    put_under(tiny, "b", commit_of(tiny).without(0))
    shutil.rmtree(tiny.state_dir)
    grid = tiny.grid()
    with tiny.shared(grid, reshare=True) as federation:
        assert federation.commit.order == (2, 0)
        _, notes = train(federation, grid, 1)
    assert set(outcomes(notes[0]).values()) == {"answered"}


def test_commits_that_contradict_each_other_are_named(tiny):
    tiny.run(1)
    commit = commit_of(tiny)
    put_under(tiny, "b", commit.anew(withdrawn=((), (0,), (), ())))
    put_under(tiny, "c", commit.anew().anew())  # it knows nothing of what b took back
    shutil.rmtree(tiny.state_dir)
    with pytest.raises(FederationError, match=r"c report commit \(1, 2\), which contradicts .* b "):
        tiny.share(tiny.grid())


def test_a_commit_of_which_few_are_there_is_not_begun_with(tiny):
    """All but one began anew, with new stores: the old one's exchange is not theirs."""
    tiny.run(1)
    tiny.close()
    shutil.rmtree(tiny.state_dir)
    for name in "bcd":
        shutil.rmtree(tiny.folder / name)
    with pytest.raises(FederationError, match=r"of whose 4 sites 1 are there: have more of them"):
        tiny.share(tiny.grid())
    tiny.run(1, sharing={"reshare": True})


def test_what_an_exchange_brought_that_went_with_the_state_is_deleted(tiny):
    """Copies and keys: nobody can go on with it."""
    tiny.run(1)
    commit = commit_of(tiny)
    tiny.close()

    def main():
        durable.reached = die_at("server.commit:before")
        tiny.share(tiny.grid(), reshare=True)

    assert in_child(main) < 0
    shutil.rmtree(tiny.state_dir)
    tiny.run(1)
    assert commit_of(tiny) == commit
    tiny.close()
    state = ServerState(tiny.state_dir)
    assert state.given_up == 2
    state.close()
    for name in tiny.names:
        with tiny.store(name) as store:
            assert {epoch.hex() for epoch, *_ in store.received.rows()} <= {commit.epoch}
            assert store.database.rows("epoch_keys") == []


@pytest.mark.parametrize("members", ["abcd", "bcd"])
def test_one_store_with_a_later_exchange_is_not_believed(tiny, members):
    tiny.run(1)
    commit = commit_of(tiny)
    n = len(members)
    later = replace(
        commit,
        number=9,
        epoch="ab" * 32,
        members=tuple(m for m in commit.members if m.site in members),
        pairs=(),
        present=(True,) * n,
        withdrawn=((),) * n,
        withdrawn_private=(0,) * n,
    )
    tiny.close()
    with tiny.store("b") as store:
        store.apply(later, members.index("b"))
    shutil.rmtree(tiny.state_dir)
    before = holdings(tiny)
    with pytest.raises(FederationError, match="of an exchange that a, c, d had no part in"):
        tiny.share(tiny.grid())
    assert holdings(tiny) == before


def test_an_exchange_that_most_took_part_in_is_believed(tiny):
    """d was away when it was made, and is under the one before."""
    tiny.run(1)
    tiny.run(1, grid=tiny.grid(without="d"), sharing={"reshare": True})
    shutil.rmtree(tiny.state_dir)
    with tiny.shared() as federation:
        assert federation.commit.order == (2, 0)


def test_half_of_the_members_are_not_most_of_them(tiny):
    tiny.run(1)
    tiny.close()
    shutil.rmtree(tiny.state_dir)
    with pytest.raises(FederationError, match="of whose 4 sites 2 are there"):
        tiny.share(tiny.grid(without="cd"))
    with tiny.shared(tiny.grid(without="d")) as federation:
        assert federation.commit.order == (1, 0)


def test_those_who_left_or_withdrew_are_not_missed(tiny):
    tiny.run(1)
    tiny.close()
    shutil.rmtree(tiny.state_dir)
    with tiny.shared(tiny.grid(without="cd"), leave=["c", "d"]) as federation:
        assert federation.commit.present == (True, True, False, False)
    shutil.rmtree(tiny.state_dir)
    tiny.close()
    for name in "cd":
        with tiny.store(name) as store:
            store.withdrawals.withdraw_everything()
    with tiny.shared() as federation:
        assert federation.commit.present == (True, True, False, False)


def test_an_exchange_under_way_is_gone_on_with_whatever_sites_report(tiny):
    """The operator made a new one as advised, and the server died in it."""
    tiny.run(1)
    put_under(tiny, "b", commit_of(tiny).without(0))
    shutil.rmtree(tiny.state_dir)

    def main():
        durable.reached = die_at("server.commit:before")
        tiny.share(tiny.grid(), reshare=True)

    assert in_child(main) < 0
    with tiny.shared() as federation:
        assert federation.commit.order == (2, 0)
        assert federation.receipts(federation.commit.members[0].identity)
    with tiny.shared() as federation:  # nothing was lost with it
        assert federation.receipts(federation.commit.members[0].identity)


@pytest.mark.parametrize("liar", ["d", "e"])
def test_one_sites_claim_gives_up_nothing(tiny, liar):
    """Far more exchanges than there were, or those of another federation."""
    tiny.run(1)
    tiny.close()
    if liar == "e":
        tiny.data["e"] = tiny.data["d"]
    with tiny.store("d") if liar == "d" else open_new(tiny, "e") as store:
        enter(store, 2 * MOST_AHEAD if liar == "d" else 5, b"made up", {})
    shutil.rmtree(tiny.state_dir)
    with tiny.shared() as federation:
        assert federation.state.given_up == 0


def open_new(tiny, name):
    return closing(Store(tiny.folder / name, create=True))


# What a site forgot, and the server


def members(federation):
    return [member.site for member in federation.commit.members]


def test_what_was_forgotten_stays_away_although_the_server_lost_its_state(tiny):
    """The others know: their commit is adopted first, and b sees it before it numbers its rows."""
    tiny.forget("b", 0, 1)
    shutil.rmtree(tiny.state_dir)
    with tiny.shared(reshare=True) as federation:
        assert members(federation) == ["a", "c", "d"]


def test_who_withdrew_again_takes_part_for_good(tiny):
    tiny.forget("b", 0, 1)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 3)
    assert outcomes(notes[0])["b"] == "StoreIsOlder"
    tiny.close()
    tiny.withdraw("b", 0, 1)
    for k in range(3):
        grid = tiny.grid()
        with tiny.shared(grid, reshare=True) as federation:
            assert members(federation) == ["a", "b", "c", "d"]
            _, notes = train(federation, grid, 4 + k)
        assert set(outcomes(notes[0]).values()) == {"answered"}
        tiny.close()


def test_an_older_server_does_not_stop_a_site_that_forgot_nothing(tiny, tmp_path):
    tiny.run(1)
    tiny.withdraw("b", 0, 1)
    tiny.run(2)
    shutil.copytree(tiny.state_dir, tmp_path / "state")
    tiny.run(1, sharing={"reshare": True})
    tiny.close()
    shutil.rmtree(tiny.state_dir)
    shutil.copytree(tmp_path / "state", tiny.state_dir)
    with tiny.shared(reshare=True) as federation:
        assert members(federation) == ["a", "b", "c", "d"]
        assert [m.n_examples for m in federation.commit.members] == [4, 6 - 2, 5, 7]


def test_the_commit_is_told_to_its_members_alone(tiny, monkeypatch):
    tiny.run(1)
    tiny.close()
    tiny.data["e"] = tiny.data["d"]
    grid = tiny.grid()
    told = {}
    offer = Exchange.offer

    def noting(exchange, *args, committed, **options):
        told.setdefault(exchange.site.name, set()).add(bool(committed))
        return offer(exchange, *args, committed=committed, **options)

    monkeypatch.setattr(Exchange, "offer", noting)
    with tiny.shared(grid, reshare=True):
        pass
    assert told == {**{name: {False, True} for name in "abcd"}, "e": {False}}
