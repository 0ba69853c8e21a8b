"""A server that lost its state believes what those who are there bear out, and nothing else."""

import shutil

import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.server_state import ServerState
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
            found[name] = store.holdings()
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
        from fedcommons.federate import durable

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
            assert {epoch.hex() for epoch, *_ in store._chunks()} <= {commit.epoch}
            assert store._all("epoch_keys") == []
