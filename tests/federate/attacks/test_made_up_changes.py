"""A server that makes up what a commit says of others, to read examples from two answers."""

import itertools
import signal
from dataclasses import replace

import numpy as np
import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.farewells import farewell
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.refusals import ChangeRefused, CommitRefused
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.server.withdrawals import withdraw
from fedcommons.federate.site.batch_order import chunk_order
from fedcommons.federate.site.changes import MOST_CHANGES
from fedcommons.federate.site.holdings import holdings_of
from fedcommons.federate.site.policy import Policy
from fedcommons.federate.site.status import status_of
from tests.federate.attacks.server_asks import ZERO, Asking, clinic_data
from tests.federate.conftest import FEDERATION, epoch_of, exchange, withdrawn
from tests.federate.tiny import die_at, in_child


def under_a_commit(make_site, policy=None, names="abc", copies=1, n=40):
    policy = policy or Policy()
    sites = [make_site(name, clinic_data(ord(name), n), None, policy) for name in names]
    commit = exchange(sites, epoch_of(sites, copies=copies))
    for site in sites:
        site.apply_commit(commit.record)
    return sites, commit


# Withdrawals


def test_a_withdrawal_that_the_server_makes_up_is_refused_by_all(make_site):
    sites, commit = under_a_commit(make_site)
    number = int(commit.draw.assigned(1, 0)[0])
    made_up = replace(commit.anew(), withdrawn=((), (number,), ()))
    for site in sites:
        asking = Asking(site, commit)
        asking.answer(ZERO)
        asking.commit = made_up
        with pytest.raises(CommitRefused, match="b did not sign what it is said to have withdrawn"):
            asking.answer(ZERO)
        asking.commit = commit
        asking.answer(ZERO)  # and nothing was deleted


def test_a_statement_is_whole_and_for_one_exchange(make_site):
    """Neither a part of it, nor more, nor another's, nor one of another exchange will do."""
    sites, commit = under_a_commit(make_site)
    own, n = sites[1].store.identity, tuple(commit.draw.assigned(1, 0)[:3].tolist())
    said = Withdrawn(n, 2).signed(own, commit)
    for bad in (
        replace(said, numbers=n[:1]),
        replace(said, numbers=n[:2], n_private=3),
        replace(said, n_private=0),
        replace(said, signature=""),
        Withdrawn(n, 2).signed(Identity.create(), commit),
        Withdrawn(n, 2).signed(sites[2].store.identity, commit),
        Withdrawn(n, 2).signed(own, replace(commit, epoch="ab" * 32)),
        Withdrawn(n, 2).signed(own, replace(commit, federation="others")),
        replace(said, signature=farewell(own, FEDERATION).hex()),
    ):
        with pytest.raises(CommitRefused, match="did not sign"):
            sites[0].apply_commit(withdraw(commit, 1, bad).record)
    sites[0].apply_commit(withdraw(commit, 1, said).record)


def test_of_two_statements_the_later_contains_the_other(make_site):
    """The server may wait for the second. It cannot go back, nor take a part of the second."""
    sites, commit = under_a_commit(make_site)
    first, second = withdrawn(sites, commit, 1, [0, 2]), withdrawn(sites, commit, 1, [0, 1, 2, 4])
    part = replace(second, withdrawn=((), (0, 1, 2), ()))
    with pytest.raises(CommitRefused):
        sites[0].apply_commit(part.record)
    sites[0].apply_commit(second.record)
    back = replace(first, serial=2, follows=second.lineage)
    with pytest.raises(CommitRefused, match="brings back"):
        sites[0].apply_commit(back.record)


def test_who_was_away_is_shown_the_signatures_of_all(make_site):
    sites, commit = under_a_commit(make_site)
    later = withdrawn(sites, withdrawn(sites, commit, 1, [0]).anew(), 2, [1, 3], 5)
    sites[0].apply_commit(later.record)
    forged = replace(later, signed=later.signed[:2])
    with pytest.raises(CommitRefused, match="c did not sign"):
        sites[1].apply_commit(forged.record)


def test_an_owner_signs_what_was_withdrawn_before_owners_signed(make_site):
    """A commit of an earlier version lists it without a signature; who was there stays under it."""
    sites, commit = under_a_commit(make_site)
    b = sites[1]
    row = int(np.flatnonzero(b.data.shareable)[0])
    b.store.withdrawals.withdraw(np.array([row]))
    old = replace(commit.anew(), withdrawn=((), (0,), ()))
    for place, site in enumerate(sites[:2]):
        with site.store.database.writing("store.commit"):
            site.store.database.put("commits", 1, old.digest, old.record)
        site.store.apply(old, place)
    Asking(sites[0], old).answer(ZERO)
    fields = Asking(b, old).answer(ZERO).fields
    said = Withdrawn(tuple(fields["withdrawn"]), 0, fields["withdrawal-signature"])
    signed = withdraw(old, 1, said)
    assert signed.withdrawn == old.withdrawn
    for site in sites:
        site.apply_commit(signed.record)
    assert "withdrawn" not in Asking(b, signed).answer(ZERO).fields


def test_an_owner_sees_that_its_withdrawals_are_put_off(make_site):
    sites, commit = under_a_commit(make_site)
    b = sites[1]
    assert status_of(b.store)["withdrawn_not_in_commit"] == 0
    b.store.withdrawals.withdraw(np.array([0, 1, 2]))  # 0 is shared
    assert status_of(b.store)["withdrawn_not_in_commit"] == 3
    assert "withdrawn" in Asking(b, commit).answer(ZERO).fields
    b.apply_commit(withdrawn(sites, commit, 1, [0], 2).record)
    assert status_of(b.store)["withdrawn_not_in_commit"] == 0


# Sites that are said to have left, deliveries that end, quarantines, weights


def test_deliveries_do_not_end_by_themselves(make_site):
    sites, commit = under_a_commit(make_site)
    some = replace(commit.anew(), pairs=tuple(pair for pair in commit.pairs if pair != (1, 0)))
    with pytest.raises(CommitRefused):
        sites[0].apply_commit(some.record)


def test_a_site_that_is_said_to_have_left_shows_none_of_its_few_copies(make_site):
    sites, commit = under_a_commit(make_site)
    asking = Asking(sites[0], commit)
    asking.answer(ZERO)
    asking.commit = commit.without(1)
    with pytest.raises(ChangeRefused, match=r"set \d+ examples apart.*min-change is 32"):
        asking.answer(ZERO)
    forged = farewell(sites[2].store.identity, FEDERATION).hex()
    asking.commit = asking.commit.anew(signed=("", forged))
    with pytest.raises(ChangeRefused):
        asking.answer(ZERO)
    sites[0].store.changes.approve()
    asking.answer(ZERO)
    asking.commit = asking.commit.without(2)
    with pytest.raises(ChangeRefused):  # one approval is for one change
        asking.answer(ZERO)


def test_a_site_that_took_its_leave_is_followed_at_once(make_site):
    sites, commit = under_a_commit(make_site)
    asking = Asking(sites[0], commit)
    asking.answer(ZERO)
    asking.commit = commit.without(1, farewell(sites[1].store.identity, FEDERATION).hex())
    asking.answer(ZERO)


def test_many_examples_may_be_set_apart(make_site):
    """Of hundreds of copies of one site nobody reads one."""
    sites, commit = under_a_commit(make_site, n=400)
    asking = Asking(sites[0], commit)
    asking.answer(ZERO)
    for changed in (commit.with_quarantine([1]), commit.with_quarantine([1]).lifted(1)):
        asking.commit = changed
        asking.answer(ZERO)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.with_quarantine([1]),
        lambda c: c.with_quarantine([1], set_aside=True),
        lambda c: c.anew(code="reliability-split", straggler_prob=(0.2, 0.7, 0.2)),
        lambda c: c.anew(code="owner-corrected", owner_share=(0.5, 0.9, 0.5)),
    ],
    ids=["quarantine", "set aside", "p", "w"],
)
def test_other_changes_of_few_shares_are_not_answered(make_site, change):
    sites, commit = under_a_commit(make_site)
    asking = Asking(sites[0], commit)
    asking.answer(ZERO)
    asking.commit = change(commit)
    with pytest.raises(ChangeRefused):
        asking.answer(ZERO)
    asking.commit = change(commit).anew(
        quarantined=(), set_aside=(), code="equal-split", straggler_prob=None, owner_share=None
    )
    asking.answer(ZERO)  # back again it is as it was


def random_change(commit, rng):
    """Whatever a server might think of."""
    n, kind = len(commit.members), rng.integers(4)
    others = [place for place in range(1, n) if commit.present[place]]
    place = int(rng.choice(others))
    if kind == 0:
        return commit.lifted(place) if place in commit.quarantined else commit.with_quarantine(
            [place], set_aside=bool(rng.integers(2))
        )  # fmt: skip
    if kind == 1 and len(others) > 2:
        return commit.without(place)
    p = tuple(rng.choice([0.1, 0.5], n).tolist())
    return commit.anew(code="reliability-split", straggler_prob=p)


@pytest.mark.parametrize("seed", range(4))
def test_no_combination_of_answers_is_about_fewer_examples_than_the_policy_says(make_site, seed):
    """Against all sets of fewer: the shares that were answered under, as vectors over examples.

    A combination about two examples at most would vanish on all others. So the vectors, without
    any two of the examples, must be as independent as they were.
    """
    least, rng = 3, np.random.default_rng(seed)
    sites, commit = under_a_commit(make_site, names="abcdef", copies=3, n=24)
    changes, own = sites[0].store.changes, sites[0].holdings(commit).own
    policy, index, vectors, refused = Policy(min_change=least), {}, [], 0

    def vector(commit):
        held = holdings_of(commit, 0, own)
        keys = [(0, int(number), k * (number < 0)) for k, number in enumerate(held.own)]
        keys += [(place, int(one), 0) for place, numbers in held.senders for one in numbers]
        found = np.zeros(200)
        for key, share in zip(keys, held.shares, strict=True):
            found[index.setdefault(key, len(index))] = share
        return found

    for _ in range(30):
        try:
            changes.check(policy, commit, 0, own)
            vectors.append(vector(commit))
            answered = commit
        except ChangeRefused:
            refused += 1
            commit = answered
        commit = random_change(commit, rng)
    shares = np.array(vectors)[:, : len(index)]
    rank = np.linalg.matrix_rank(shares)
    assert refused > 3
    assert rank > 1
    for some in itertools.combinations(range(len(index)), least - 1):
        assert np.linalg.matrix_rank(np.delete(shares, some, axis=1)) == rank


def test_what_a_site_answered_under_is_kept_and_damage_is_noticed(make_site):
    sites, commit = under_a_commit(make_site)
    asking = Asking(sites[0], commit)
    asking.answer(ZERO)
    again = make_site("a", sites[0].data, None, Policy())
    asking = Asking(again, commit.with_quarantine([1]))
    asking.numbers = itertools.count(5)
    with pytest.raises(ChangeRefused):
        asking.answer(ZERO)
    again.store.database.run("UPDATE answered SET groups = x'00'")
    with pytest.raises(StoreError, match="damaged: a row of answered"):
        asking.answer(ZERO)


@pytest.mark.parametrize("side", ["before", "after"])
def test_whoever_dies_as_it_answers_knows_what_it_answered_under(make_site, side):
    """Before the write nothing has left the site; after it the answer may have."""
    sites, commit = under_a_commit(make_site)

    def main() -> None:
        durable.reached = die_at(f"store.changes:{side}")
        Asking(make_site("a", sites[0].data, None, Policy()), commit).answer(ZERO)

    assert in_child(main) == -signal.SIGKILL
    again = make_site("a", sites[0].data, None, Policy())
    asking = Asking(again, commit.with_quarantine([1]))
    asking.numbers = itertools.count(5)
    if side == "before":
        asking.answer(ZERO)
    else:
        with pytest.raises(ChangeRefused):
            asking.answer(ZERO)


def test_changes_without_a_signature_are_few(make_site):
    """Each brings another vector of shares, and enough of those would tell examples apart."""
    sites, commit = under_a_commit(make_site, n=400)
    changes, own = sites[0].store.changes, sites[0].holdings(commit).own
    for k in range(MOST_CHANGES + 1):
        p = (0.1, 0.2 + k / 100, 0.1)
        commit = commit.anew(code="reliability-split", straggler_prob=p)
        changes.check(Policy(), commit, 0, own)
    with pytest.raises(ChangeRefused, match="one more than 10 changes"):
        changes.check(Policy(), commit.with_quarantine([1]), 0, own)
    changes.check(Policy(), commit.anew(), 0, own)  # nothing of its answers changes
    changes.approve()
    changes.check(Policy(), commit.with_quarantine([1]), 0, own)


# Answers from chunks


def test_chunks_before_and_after_a_withdrawal_show_no_single_row(make_site):
    """Cut in the order of rows, what is withdrawn would move all rows behind it by one chunk.

    All sums of chunks before, less all sums of chunks after: on the rows that stay they vanish, or
    are about many.
    """
    site, n, C = make_site("a", clinic_data(1), None, Policy()), 256, 4
    gone = n - 2
    before = chunk_order(site, "before", n, n)
    after = np.delete(np.arange(n), gone)[chunk_order(site, "after", n - 1, n - 1)]
    assert np.array_equal(before, chunk_order(site, "before", n, n))

    def supports(before, after):
        of = [np.bincount(rows[k::C], minlength=n) for rows in (before, after) for k in range(C)]
        signs = np.array(list(itertools.product([0, 1], repeat=2 * C))) * np.repeat([1, -1], C)
        found = (np.delete(signs @ np.array(of), gone, axis=1) != 0).sum(axis=1)
        return found[found > 0].min()

    assert supports(before, after) >= n // C - 1
    assert supports(np.arange(n), np.delete(np.arange(n), gone)) == 1
    mixed = chunk_order(site, "x", 100, n)
    assert sorted(mixed[:100]) == list(range(100))  # as many own ones in each
