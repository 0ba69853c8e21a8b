"""Owners take examples back: everybody agrees, and training goes on."""

from dataclasses import replace

import numpy as np
import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.refusals import AnswerRefused, CommitRefused
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.withdrawals import holders_of_what_left, reported, withdraw
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.transport import messages
from tests.federate.server.agreement import check_agreement
from tests.federate.tiny import (
    BETA,
    Counting,
    Tampered,
    Tiny,
    outcomes,
    remembered,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.mark.parametrize(
    "rows", [[0], [1], [0, 2, 4], [1, 3, 5], [0, 1, 2, 3, 4, 5]], ids=lambda rows: str(rows)
)
def test_withdrawn_examples_are_gone_everywhere(tiny, rows):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 2)
        first = federation.commit
        tiny.withdraw("b", *rows)
        _, notes = train(federation, grid, 4)
        assert [note["commit"] for note in notes] == [[1, 1], [1, 1]]
        assert [outcomes(note)["b"] for note in notes] == ["answered", "answered"]
        assert federation.commit.order == (1, 1)
        assert federation.commit.n_examples == first.n_examples - len(rows)
        check_agreement(tiny, federation, grid, {"b": set(rows)})
    # b's rows 0, 2, 4 have the share numbers 0, 1, 2; every recipient notes what it deleted.
    numbers = [row // 2 for row in rows if row % 2 == 0]
    recipients = first.draw.recipients_of(1, np.array(numbers, np.int64))
    for place, member in enumerate(first.members):
        held = int((recipients == place).sum()) if (1, place) in first.pairs else 0
        deleted = tiny.events(member.site, "deleted")
        assert sum(entry.examples for entry in deleted) == held
        with tiny.store(member.site) as store:
            of_b = dict(store.received.counts()).get(first.members[1].identity, 0)
        assert of_b == (
            first.draw.assigned(1, place).size - held if (1, place) in first.pairs else 0
        )
    assert sum(entry.examples for entry in tiny.events("b", "withdrawn")) == len(rows)
    assert len(tiny.events("a", "commit")) == 2


def test_no_answer_counts_that_holds_what_its_owner_took_back(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 1, straggler_prob=0.0, seed=1)
        tiny.withdraw("b", 0, 2)
        model, _ = train(federation, grid, 1, straggler_prob=0.0, seed=2)
        M = federation.commit.n_examples
    left = tiny.full_gradient({"b": {0, 2}}, np.zeros_like(BETA))
    np.testing.assert_allclose(model, -0.5 / M * left, rtol=1e-12)


def test_several_sites_withdraw_at_once(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        tiny.withdraw("a", 0)
        tiny.withdraw("d", 1, 2)
        train(federation, grid, 3)
        check_agreement(tiny, federation, grid, {"a": {0}, "d": {1, 2}})
        tiny.withdraw("d", 4)
        train(federation, grid, 5)
        check_agreement(tiny, federation, grid, {"a": {0}, "d": {1, 2, 4}})


def test_what_was_withdrawn_once_never_comes_back(tiny):
    """A statement that lacks what its site said before, or is not its own, is no statement."""
    with tiny.shared() as federation:
        first = federation.commit
    with tiny.store("b") as store:
        own = store.identity
    later = first.with_withdrawn(1, (2,), 1, "")

    def said(numbers, n_private, by=own, of=later):
        found = Withdrawn(numbers, n_private).signed(by, of)
        return {
            "withdrawn": list(numbers),
            "withdrawn-private": n_private,
            "withdrawal-signature": found.signature,
        }

    good = reported(said((0, 2), 1), later, 1)
    assert withdraw(later, 1, good).withdrawn[1] == (0, 2)
    assert withdraw(withdraw(later, 1, good), 1, good).serial == later.serial + 1
    other_epoch = replace(later, epoch="ab" * 32)
    for bad in (
        said((0,), 1), said((0, 2), 0), said((0, 2), 1, Identity.create()),
        said((0, 2), 1, of=other_epoch), {**said((0, 2), 1), "withdrawn-private": 2},
        {**said((0, 1, 2), 1), "withdrawn": [0, 2]}, {**said((0, 2), 1), "withdrawn": [2, 0]},
    ):  # fmt: skip
        with pytest.raises(AnswerRefused):
            reported(bad, later, 1)
    assert reported({}, later, 1) is None


def test_a_site_that_missed_the_commit_catches_up(tiny):
    with tiny.shared() as federation:
        first = federation.commit
    for name in tiny.names:
        with tiny.store(name) as store:
            assert store.commit_record() == (b"", b"")  # a commit rides on training messages
    grid = tiny.grid(without="d")
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        tiny.withdraw("a", 2)
        _, notes = train(federation, grid, 3)
        assert outcomes(notes[-1])["d"] == "not connected"
    grid = tiny.grid()
    with tiny.shared(grid) as federation:  # d sees the second commit first
        assert federation.commit.order == (1, 1)
        check_agreement(tiny, federation, grid, {"a": {2}})
    assert [entry.chunk for entry in tiny.events("d", "commit")] == [1]
    place = first.draw.recipients_of(0, np.array([1]))[0]
    held = 3 in place.tolist() and (0, 3) in first.pairs
    assert sum(entry.examples for entry in tiny.events("d", "deleted")) == held


def test_an_absent_holder_does_not_count_until_it_has_applied_the_withdrawal(tiny):
    """Under the old commit its answer would bring back what was withdrawn."""
    tiny.run(1)
    away = tiny.grid(without="d")
    with tiny.shared(away) as federation:
        old = federation.commit
        tiny.withdraw("a", 0)
        train(federation, away, 3)
    with tiny.store("d") as store:
        assert store.commit_record()[0] == old.digest
    back = tiny.grid()
    site = tiny.clients[-1]
    with tiny.shared(back) as federation:
        _, notes = train(federation, back, 4)
    assert outcomes(notes[-1])["d"] == "answered"
    d = site.site(back.contexts[5])
    assert d.store.commit_record()[0] == federation.commit.digest
    with pytest.raises(CommitRefused):  # and never goes back
        d.apply_commit(old.record)


def test_memory_is_reset_for_the_holders_of_what_left_alone(tiny):
    grid = tiny.grid(Tampered)
    with tiny.shared(grid) as federation:
        settings = {"estimator": "memory", "warm": True, "straggler_prob": 0.2, "deadline": 0.1}
        train(federation, grid, 2, **settings)
        before = remembered(federation)
        assert before.any(axis=1).all()
        tiny.withdraw("b", 0)
        first = federation.commit
        grid.tamper = lambda _site, _message, reply: (  # nobody answers under the next commit
            reply if messages.fields(reply).get("digest") == first.digest else None
        )
        with pytest.raises(FederationError, match="nobody answered"):
            train(federation, grid, 3, **settings)
        after = remembered(federation)
        affected = holders_of_what_left(first, federation.commit)
    recipients = first.draw.recipients_of(1, np.array([0]))[0].tolist()
    assert affected == {1} | {r for r in recipients if (1, r) in first.pairs}
    assert 0 < len(affected) < 4
    for place in range(4):
        assert after[place].any() == (place not in affected)


def test_memory_of_a_commit_that_changed_between_runs_is_reset_alike(tiny):
    settings = {"estimator": "memory", "straggler_prob": 0.2}
    tiny.run(2, **settings)
    grid = tiny.grid(without="c")
    with tiny.shared(grid, leave=["c"]) as federation:
        first = federation.state.commit_of((1, 0))
        affected = holders_of_what_left(first, federation.commit)
        assert affected == {2} | {r for s, r in first.pairs if s == 2}
        memory = remembered(federation)
        train(federation, grid, 2, **settings)  # no round is left: nobody's memory is renewed
        after = remembered(federation)
    for place in range(4):
        expected = np.zeros_like(memory[place]) if place in affected else memory[place]
        assert np.array_equal(after[place], expected)


def test_another_code_between_does_not_reset_memory(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        first = federation.commit
        train(federation, grid, 1, code="owner-corrected")
        train(federation, grid, 1)
        assert federation.commit.order > first.order
        assert holders_of_what_left(first, federation.commit) == set()


def test_what_was_withdrawn_is_not_shared_again(tiny):
    tiny.run(1)
    tiny.withdraw("b", 0, 1)
    tiny.run(3)
    grid = tiny.grid(Counting)
    with tiny.shared(grid, reshare=True) as federation:
        assert federation.commit.order == (2, 0)
        assert federation.commit.members[1].n_examples == 4
        assert federation.commit.members[1].n_shareable == 2
        assert federation.commit.withdrawn == ((), (), (), ())
        check_agreement(tiny, federation, grid, {"b": {0, 1}})
    assert messages.SEND in {kind for _, kind in grid.sent}
    for name in "acd":
        with tiny.store(name) as store:
            shared = [
                x
                for sender, _ in store.received.counts()
                for part in store.received.chunks(bytes.fromhex(federation.commit.epoch), sender)
                for x in part.x
            ]
            withdrawn = tiny.data["b"].x.take(np.array([0]))[0]
            assert shared
            assert not any(np.array_equal(x, withdrawn) for x in shared)


def test_a_new_exchange_that_never_began_leaves_the_old_commit_in_force(tiny, monkeypatch):
    tiny.run(1)
    tiny.withdraw("b", 0, 1)
    tiny.run(3)

    def dies(*_arguments: object, **_options: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr("fedcommons.federate.server.exchange.begin", dies)
        with pytest.raises(RuntimeError), tiny.shared(tiny.grid(), reshare=True):
            pass  # the sites numbered their rows anew, without what was withdrawn
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        assert federation.commit.number == 1
        check_agreement(tiny, federation, grid, {"b": {0, 1}})


def test_nothing_left_to_train_on_is_said(tmp_path):
    tiny = Tiny(tmp_path, sizes=(2, 2), copies=1)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        tiny.withdraw("a", 0, 1)
        tiny.withdraw("b", 0, 1)
        with pytest.raises(FederationError, match="nothing is left to train on"):
            train(federation, grid, 4)
    tiny.close()


def test_a_holder_deletes_what_was_withdrawn_although_its_own_data_changed(tiny):
    tiny.run(1)
    tiny.close()
    data = tiny.data["d"]
    changed = data.x.array.copy()
    changed[1] += 1
    tiny.data["d"] = SiteData.from_arrays(changed, data.y, data.shareable)
    tiny.withdraw("a", 0, 2)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 4)
        owner = federation.commit.members[0].identity
    assert outcomes(notes[-1])["d"] == "DataChanged"
    with tiny.store("d") as store:
        assert dict(store.received.counts())[owner] == 0
    assert [entry.peer for entry in tiny.events("d", "deleted")] == [owner]


def test_what_an_exchange_brought_that_was_given_up_is_deleted_with_a_withdrawal(tiny, monkeypatch):
    tiny.run(1)
    with monkeypatch.context() as patch:
        patch.setattr(ServerFederation, "record", _dies)
        grid = tiny.grid()
        with pytest.raises(RuntimeError):
            tiny.share(grid, reshare=True, copies=3)
    tiny.close()
    tiny.withdraw("a", 0)
    tiny.run(4)  # goes on with the exchange before it
    tiny.close()
    row = tiny.data["a"].x.take(np.array([0]))[0].tobytes()
    for site in "bcd":
        assert row not in (tiny.folder / site / "store.sqlite3").read_bytes()
    assert not (tiny.state_dir / "exchange.json").exists()
    tiny.run(1, sharing={"reshare": True, "copies": 3})


def _dies(*_arguments):
    raise RuntimeError


def test_what_a_site_gave_to_an_exchange_that_was_given_up_goes_with_it(tiny, monkeypatch):
    del_d = tiny.grid(without="d")
    tiny.run(1, grid=del_d)
    with monkeypatch.context() as patch:
        patch.setattr(ServerFederation, "record", _dies)
        with pytest.raises(RuntimeError):
            tiny.share(tiny.grid(), reshare=True, copies=3)
    tiny.close()
    with tiny.store("d") as store:
        owner = store.identity.name
        store.withdrawals.withdraw_everything()
    with tiny.store("a") as store:
        assert dict(store.received.counts())[owner] > 0
    tiny.run(2)
    for site in "abc":
        with tiny.store(site) as store:
            assert owner not in dict(store.received.counts())
        (deleted,) = [e for e in tiny.events(site, "deleted") if e.peer == owner]
        assert (deleted.epoch, deleted.examples > 0) == (2, True)


def test_a_site_under_another_name_is_pointed_out(tiny, caplog):
    tiny.run(1)
    grid = tiny.grid()
    tiny.data["e"] = tiny.data["b"]
    (context,) = [c for c in grid.contexts.values() if c.node_config["site"] == "b"]
    context.node_config["site"] = "e"
    with tiny.shared(grid):
        pass
    assert "e is b in the exchange: give it that name again" in caplog.text
