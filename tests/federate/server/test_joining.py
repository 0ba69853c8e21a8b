"""A site that comes late trains with the others at once, and shares with the next exchange."""

import shutil
import signal

import numpy as np
import pytest

from fedcommons.errors import ArgumentError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commit_fields import Member
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import MalformedRecord, RosterRefused
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.server.withdrawals import forgotten, withdraw
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.transport import messages
from tests.federate.server.agreement import check_agreement
from tests.federate.tiny import (
    BETA,
    Counting,
    Tiny,
    answers_at,
    die_at,
    in_child,
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


def three(tiny: Tiny, num_rounds: int, **settings) -> None:
    """Training among a, b and c, who made the exchange."""
    tiny.run(num_rounds, grid=tiny.grid(without="d"), **settings)


def test_a_newcomer_trains_from_the_next_round_on_and_the_others_go_on(tiny):
    """The coded sum of everybody's answers is the full gradient, on all four sites' examples."""
    three(tiny, 5)
    grid = tiny.grid(Counting)
    with tiny.shared(grid) as federation:
        before = federation.commit
        _, notes = train(federation, grid, 10)
        assert [note["round"] for note in notes] == [6, 7, 8, 9, 10]
        assert set(outcomes(notes[0])) == set("abc")  # who are asked whether they would
        assert all(
            set(outcomes(note).items()) == {(s, "answered") for s in "abcd"} for note in notes[1:]
        )
        assert federation.commit.order == (1, 1)
        assert federation.commit.members[:3] == before.members
        assert federation.commit.n_examples == before.n_examples + 7
        assert (federation.commit.joined, federation.commit.members[3].n_shareable) == (1, 0)
        check_agreement(tiny, federation, grid, {})
        answers, answered = answers_at(federation, grid, BETA)
        assert answered.all()
        full = tiny.full_gradient({}, BETA).ravel()
        np.testing.assert_allclose(answers.sum(axis=0), full, rtol=0, atol=1e-10)
    assert messages.SEND not in {kind for _, kind in grid.sent}
    for name in "abc":  # nobody got a copy of what it may share
        with tiny.store(name) as store:
            assert federation.commit.members[3].identity not in dict(store.received.counts())


def test_with_nobody_missing_the_next_step_is_along_the_gradient_of_all(tiny):
    three(tiny, 2, straggler_prob=0.0)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        beta, _ = train(federation, grid, 3, straggler_prob=0.0)
        model, _ = train(federation, grid, 4, straggler_prob=0.0)
        step = 0.5 / federation.commit.n_examples
    np.testing.assert_allclose(model, beta - step * tiny.full_gradient({}, beta), rtol=1e-12)


def test_it_shares_with_the_next_exchange_and_training_goes_on(tiny):
    three(tiny, 2)
    tiny.run(4)
    grid = tiny.grid()
    with tiny.shared(grid, reshare=True) as federation:
        assert [m.n_shareable for m in federation.commit.members] == [2, 3, 3, 4]
        assert (federation.commit.order, federation.commit.joined) == ((2, 0), 0)
        assert any(sender == 3 for sender, _ in federation.commit.pairs)
        _, notes = train(federation, grid, 6)
        assert [note["round"] for note in notes] == [5, 6]
        assert set(outcomes(notes[0]).values()) == {"answered"}
        check_agreement(tiny, federation, grid, {})
    assert len(list(tiny.state_dir.glob("training-*"))) == 1


def test_a_newcomer_during_a_run_is_taken_in(tiny):
    grid = tiny.grid(Counting)
    (late,) = [node for node, c in grid.contexts.items() if c.node_config["site"] == "d"]
    away = grid.contexts.pop(late)
    with tiny.shared(grid) as federation:
        train(federation, grid, 2)
        grid.contexts[late] = away
        _, notes = train(federation, grid, 5)
    assert [len(note["sites"]) for note in notes] == [3, 3, 4]  # asked who it is, then of it


@pytest.mark.parametrize("way", [{}, {"estimator": "memory", "warm": True}], ids=str)
def test_a_server_killed_before_a_site_joined_reaches_the_same_model(tmp_path, way):
    """The round is made again, and the members are asked again."""
    settings = {"straggler_prob": 0.3, **way}
    found = []
    for name in ("whole", "killed"):
        tiny = Tiny(tmp_path / name)
        three(tiny, 2, **settings)
        if name == "killed":
            run_and_die(tiny, "server.commit:before", 6, **settings)
        found.append(tiny.run(6, **settings))
        tiny.close()
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("point", ["server.commit:after", "server.checkpoint:before"])
@pytest.mark.parametrize("way", [{}, {"estimator": "memory", "warm": True}], ids=str)
def test_a_server_killed_after_a_site_joined_goes_on_with_it(tiny, point, way):
    """The round that it joined in is made again, with it."""
    three(tiny, 2, **way)
    run_and_die(tiny, point, 6, **way)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 6, **way)
        assert [note["round"] for note in notes] == [3, 4, 5, 6]
        assert {len(note["sites"]) for note in notes} == {4}
        assert federation.commit.order == (1, 1)
        check_agreement(tiny, federation, grid, {})


def run_and_die(tiny, point, num_rounds, **settings):
    tiny.close()

    def main():
        durable.reached = die_at(point)
        tiny.run(num_rounds, **settings)

    assert in_child(main) == -signal.SIGKILL


def test_a_site_killed_while_it_joins_is_there_in_the_next_run(tiny):
    three(tiny, 2)
    run_and_die(tiny, "store.commit:before", 4)  # all sites are in that process
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 5)
        check_agreement(tiny, federation, grid, {})
    assert set(outcomes(notes[-1]).items()) == {(site, "answered") for site in "abcd"}


def test_memory_and_reliability_stay_with_their_sites(tiny):
    settings = {"estimator": "memory", "straggler_prob": None}
    tiny.run(3, grid=tiny.grid(without="a"), **settings)
    with tiny.shared(tiny.grid(without="a")) as federation:
        before = federation.state.newest_checkpoint()
    tiny.run(4, **settings)
    with tiny.shared(tiny.grid()) as federation:
        after = federation.state.newest_checkpoint()
    assert [site["site"] for site in after.about["sites"]] == ["b", "c", "d", "a"]
    assert after.rounds.tolist() == [*(before.rounds + 1), 0]


def test_the_same_names_in_another_order_after_the_next_exchange(tiny):
    """a is the last to join and the first on the roster of the exchange that follows."""
    settings = {"estimator": "memory"}
    tiny.run(3, grid=tiny.grid(without="a"), **settings)
    tiny.run(5, **settings)
    with tiny.shared(tiny.grid(), reshare=True) as federation:
        pass
    tiny.run(6, **settings)
    with tiny.shared(tiny.grid()) as federation:
        saved = federation.state.newest_checkpoint()
    assert [site["site"] for site in saved.about["sites"]] == ["a", "b", "c", "d"]
    assert saved.rounds.tolist() == [2, 6, 6, 6]


# Whom the members accept


def test_a_newcomer_waits_until_all_have_pinned_its_key(tiny, caplog):
    three(tiny, 1)
    keys = {}
    for name in "abc":
        with tiny.store(name) as store:
            keys[name] = store.identity.name
    grid = tiny.grid()
    site_of = tiny.clients[-1].site

    def with_pins(context):
        site = site_of(context)
        site.peers = keys if site.name == "b" else site.peers
        return site

    tiny.clients[-1].site = with_pins
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 3)
        assert federation.commit.order == (1, 0)
        assert "d waits: its key is not among the peers of b" in caplog.text
        assert set(outcomes(notes[-1]).items()) == {(site, "answered") for site in "abc"}
        keys["d"] = (
            federation.meeting.offers[
                next(i for i, o in federation.meeting.offers.items() if o.checked().site == "d")
            ]
            .checked()
            .identity
        )
        _, notes = train(federation, grid, 5)
    assert set(outcomes(notes[-1]).items()) == {(site, "answered") for site in "abcd"}


def test_a_site_that_left_for_good_is_no_newcomer(tiny):
    three(tiny, 1)
    grid = tiny.grid()
    with tiny.shared(grid, leave=["d"]) as federation:
        train(federation, grid, 3)
        assert federation.commit.joined == 0


def test_one_with_other_examples_or_a_name_that_is_taken_is_no_newcomer(tiny):
    three(tiny, 1)
    tiny.close()
    tiny.data["d"] = SiteData.from_arrays(np.ones((3, 2)), np.zeros(3, int))
    shutil.rmtree(tiny.folder / "c")  # and comes with another key
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 3)
        assert federation.commit.joined == 0


# What a newcomer may do


def test_its_withdrawals_are_of_private_examples_until_it_shares(tiny):
    three(tiny, 1)
    tiny.run(3)
    tiny.withdraw("d", 0, 1, 2)  # of which 0 and 2 are shareable
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 4)
        assert (federation.commit.withdrawn[3], federation.commit.withdrawn_private[3]) == ((), 3)
        check_agreement(tiny, federation, grid, {"d": {0, 1, 2}})
    grid = tiny.grid()
    with tiny.shared(grid, reshare=True) as federation:
        assert federation.commit.members[3].n_shareable == 2
        check_agreement(tiny, federation, grid, {"d": {0, 1, 2}})


def test_it_leaves_and_forgets_as_any_other(tiny):
    three(tiny, 1, estimator="memory")
    tiny.run(3, estimator="memory")
    grid = tiny.grid(without="d")
    with tiny.shared(grid, leave=["d"]) as federation:
        _, notes = train(federation, grid, 4, estimator="memory")
        assert federation.commit.present == (True, True, True, False)
        check_agreement(tiny, federation, grid, {})
    assert set(outcomes(notes[0])) == set("abc")


def test_one_whose_data_changed_while_it_waited_comes_with_what_it_has_now(tiny):
    three(tiny, 1)
    tiny.run(1)  # d is heard and not taken in: no round is left
    tiny.close()
    data = tiny.data["d"]
    tiny.data["d"] = SiteData.from_arrays(data.x.take(np.arange(5)), data.y[:5], data.shareable[:5])
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 3)
        check_agreement(tiny, federation, grid, {})


@pytest.mark.parametrize("code", ["reliability-split", "owner-corrected"])
def test_every_code_goes_on_with_a_newcomer(tiny, code):
    three(tiny, 2, code=code)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 4, code=code)
        assert federation.commit.joined == 1
        check_agreement(tiny, federation, grid, {})
    tiny.run(6, code=code)


def test_p_of_each_site_of_the_exchange_leaves_newcomers_to_the_estimate(tiny):
    p = (0.1, 0.2, 0.3)
    three(tiny, 1, straggler_prob=p)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 3, straggler_prob=p)
        last = {site["site"]: site["straggler_prob"] for site in notes[-1]["sites"]}
        assert {name: last[name] for name in "abc"} == dict(zip("abc", p, strict=True))
        assert 0 < last["d"] < 1
        with pytest.raises(ArgumentError, match="straggler_prob"):
            train(federation, grid, 3, straggler_prob=(*p, 0.4))


# The record


def commit_of(tiny) -> Commit:
    with tiny.shared(tiny.grid(without="d")) as federation:
        return federation.commit


NEW = Member("e", "e" * 64, 5, 3, "f" * 64)


def test_a_commit_without_newcomers_is_written_as_it_always_was(tiny):
    record = commit_of(tiny).record
    assert b"joined" not in record
    assert Commit.decode(record).record == record


def test_a_commit_with_newcomers_follows_and_keeps_the_draw(tiny):
    first = commit_of(tiny)
    second = first.with_newcomers([NEW])
    assert Commit.decode(second.record) == second
    assert second.may_follow(first)
    assert not first.may_follow(second)
    assert second.draw == first.draw
    assert second.with_newcomers([Member("d", "d" * 64, 1, 0, "0" * 64)]).may_follow(first)
    assert withdraw(second, 3, Withdrawn((), 2)).may_follow(first)
    assert not second.anew(joined=0).may_follow(second)  # as if it had a part in the exchange
    assert not first.anew().may_follow(second)  # it leaves by `without` alone


def test_a_commit_cannot_say_of_a_newcomer_what_is_no_newcomers(tiny):
    first = commit_of(tiny)
    second = first.with_newcomers([NEW])
    for changes, refusal in (
        ({"members": (*first.members, NEW)}, MalformedRecord),  # with shareable examples
        ({"pairs": (*first.pairs, (3, 0))}, MalformedRecord),
        ({"joined": 3}, RosterRefused),
    ):
        with pytest.raises(refusal):
            Commit.decode(second.anew(**changes).record)
    for taken in (
        Member("a", "e" * 64, 5, 0, "f" * 64),
        Member("e", first.members[0].identity, 5, 0, "f" * 64),
    ):
        with pytest.raises(RosterRefused):
            Commit.decode(first.with_newcomers([taken]).record)


def test_after_another_exchange_only_who_holds_the_same_is_remembered(tiny):
    tiny.copies = 0
    three(tiny, 1)
    with tiny.shared(tiny.grid(without="d")) as federation:
        first = federation.commit
    with tiny.shared(reshare=True, copies=0) as federation:
        second = federation.commit
    with tiny.shared(reshare=True, copies=2) as federation:
        third = federation.commit
    everybody = {member.identity for member in second.members}
    assert forgotten(first, second) == set()
    assert forgotten(second, third) == everybody
    assert forgotten(third, second) == everybody
    assert forgotten(None, third) is None
