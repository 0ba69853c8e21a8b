"""Sites that withdraw everything or leave for good."""

import pytest

from fedcommons.federate.protocol import versions
from fedcommons.federate.protocol.refusals import Refusal
from fedcommons.federate.site.store import Store
from tests.federate.server.agreement import check_agreement
from tests.federate.tiny import (
    Counting,
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


def test_a_site_that_withdraws_everything_leaves(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 2)
        with tiny.store("b") as store:
            store.withdrawals.withdraw_everything()
        _, notes = train(federation, grid, 4)
        assert set(outcomes(notes[0])) == set("acd")
        assert federation.commit.present == (True, False, True, True)
        check_agreement(tiny, federation, grid, {})
        identity = federation.commit.members[1].identity
    for name in "acd":
        with tiny.store(name) as store:
            assert identity not in dict(store.received.counts())
    with tiny.store("b") as store:
        assert store.received.counts() == []


def test_a_site_that_withdrew_everything_is_heard_in_a_later_run(tiny):
    tiny.run(1)
    with tiny.store("b") as store:
        store.withdrawals.withdraw_everything()
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        assert federation.commit.present == (True, False, True, True)
        check_agreement(tiny, federation, grid, {})


def test_a_farewell_must_be_signed(tiny):
    tiny.run(1)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        meeting, identity = federation.meeting, federation.commit.members[1].identity
        reply = {"protocol": versions.CURRENT, "withdrew": identity, "signature": b"0" * 64}
        with pytest.raises(Refusal, match="not signed"):
            meeting._take(3, reply)
        assert not meeting.withdrew


def test_a_site_leaves_for_good(tiny):
    tiny.run(2)
    grid = tiny.grid(without="c")
    with tiny.shared(grid, leave=["c"]) as federation:
        assert federation.commit.order == (1, 1)
        check_agreement(tiny, federation, grid, {})
        _, notes = train(federation, grid, 4)
    assert [note["round"] for note in notes] == [3, 4]
    assert set(outcomes(notes[0])) == set("abd")
    with tiny.shared(tiny.grid(without="c"), leave=["c"]) as federation:
        assert federation.commit.order == (1, 1)  # it left once


def test_a_site_that_was_let_go_and_is_there_deletes_what_others_gave_it(tiny):
    tiny.run(1)
    grid = tiny.grid()
    with tiny.store("c") as store:
        assert store.received.counts()
    with tiny.shared(grid, leave=["c"]) as federation:
        train(federation, grid, 2)
    with tiny.store("c") as store:
        assert store.received.counts() == []
    assert tiny.events("c", "deleted")


def test_a_site_without_which_a_new_exchange_was_made_is_told_once(tiny):
    tiny.run(1)
    tiny.run(1, grid=tiny.grid(without="d"), sharing={"reshare": True})
    grid = tiny.grid(Counting)
    tiny.run(2, grid=grid)
    assert grid.sent.count(("d", "train")) == 1


def test_who_withdrew_everything_takes_its_leave_without_the_data(tiny):
    tiny.run(1)
    tiny.close()
    with tiny.store("b") as store:
        store.withdrawals.withdraw_everything()
    grid = tiny.grid()
    del tiny.data["b"]  # its file was removed
    with tiny.shared(grid, n_sites=4) as federation:
        assert federation.commit.present == (True, False, True, True)


def test_who_was_left_out_of_a_new_exchange_deletes_what_it_holds(tiny):
    tiny.run(1)
    tiny.run(1, grid=tiny.grid(without="d"), sharing={"reshare": True})
    with tiny.store("d") as store:
        assert store.received.counts()
    tiny.run(2)  # it is there again
    with tiny.store("d") as store:
        assert store.received.counts() == []


def test_who_withdraws_everything_while_it_receives_keeps_nothing(tiny, monkeypatch):
    receive = Store.receive

    def withdraw_first(store, *arguments):
        if store.folder.name == "c":
            with tiny.store("c") as another:
                another.withdraw_all()
        receive(store, *arguments)

    monkeypatch.setattr(Store, "receive", withdraw_first)
    tiny.run(1)
    with tiny.store("c") as store:
        assert store.received.counts() == []


def test_what_left_is_deleted_although_no_round_is_left(tiny):
    tiny.run(2)
    tiny.withdraw("b", 0, 1)
    tiny.run(2, sharing={"leave": ["d"]})
    with tiny.shared() as federation:
        commit = federation.commit
    assert commit.present == (True, True, True, False)
    assert commit.withdrawn[1]
    owner = commit.members[3].identity
    for place, site in enumerate("abcd"):
        with tiny.store(site) as store:
            held = dict(store.received.counts())
        assert owner not in held
        if (1, place) in commit.pairs:
            left = set(commit.draw.assigned(1, place).tolist()) - set(commit.withdrawn[1])
            assert held[commit.members[1].identity] == len(left)
    with tiny.store("d") as store:
        assert store.received.counts() == []
