"""What sites compute for themselves is what anybody would who sees the whole federation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcommons import coding
from fedcommons.federate.protocol.commit_fields import Member
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.holders import copies_of, owned_by_each
from fedcommons.federate.site.holdings import holdings_of
from fedcommons.placement import Placement


@st.composite
def commits(draw):
    """Commits with deliveries missing, examples withdrawn and sites gone."""
    n = draw(st.integers(2, 5))
    copies = draw(st.integers(0, n - 1))
    shareable = [draw(st.integers(0, 8)) for _ in range(n)]
    private = [draw(st.integers(0, 4)) for _ in range(n)]
    present = [True, *(draw(st.booleans()) for _ in range(n - 1))]
    pairs = [
        (s, r)
        for s in range(n)
        for r in range(n)
        if s != r and present[s] and present[r] and draw(st.integers(0, 3))
    ]
    withdrawn = [
        tuple(sorted(draw(st.sets(st.integers(0, k - 1)))) if k and draw(st.booleans()) else ())
        for k in shareable
    ]
    code = draw(st.sampled_from(tuple(coding.CODES)))
    p = tuple(draw(st.sampled_from([0.0, 0.1, 0.5, 0.9])) for _ in range(n))
    w = tuple(draw(st.sampled_from([-1.0, 0.0, 0.3, 1.0])) for _ in range(n))
    return Commit(
        "hospitals", 1, 0, "ab" * 32, draw(st.integers(0, 2**60)), copies,
        tuple(
            Member(f"s{i}", f"{i:064x}", shareable[i] + private[i], shareable[i], "00" * 32)
            for i in range(n)
        ),
        tuple(present), tuple(pairs), tuple(withdrawn),
        tuple(draw(st.integers(0, k)) for k in private),
        code,
        p if code == "reliability-split" else None,
        w if code == "owner-corrected" else None,
    )  # fmt: skip


def own_of(commit: Commit, site: int) -> np.ndarray:
    """Share numbers of the live rows of a site, shareable first; -1 for a private one."""
    member = commit.members[site]
    shared = [k for k in range(member.n_shareable) if k not in commit.withdrawn[site]]
    return np.array(shared + [-1] * (member.n_private - commit.withdrawn_private[site]), np.int64)


def whole_federation(commit: Commit) -> tuple[Placement, list[tuple[int, int]]]:
    """The placement of all live examples, by a plain loop; and each one's (owner, share number)."""
    owner, copied, recipients, names = [], [], [], []
    for site in range(len(commit.members)):
        if not commit.present[site]:
            continue
        table = commit.draw.recipients(site, 0, commit.members[site].n_shareable).tolist()
        for number in own_of(commit, site).tolist():
            if number >= 0:
                for recipient in table[number]:
                    if (site, recipient) in commit.pairs:
                        copied.append(len(owner))
                        recipients.append(recipient)
            names.append((site, number))
            owner.append(site)
    placement = Placement.from_copies(
        np.array(owner, np.int64),
        np.array(copied, np.int64),
        np.array(recipients, np.int64),
        n_clients=len(commit.members),
    )
    return placement, names


@settings(max_examples=300)
@given(commits())
def test_every_site_has_its_row_of_the_whole_federation(commit):
    placement, names = whole_federation(commit)
    assert len(names) == commit.n_examples
    whole = coding.by_name(
        commit.code,
        placement,
        straggler_prob=commit.straggler_prob,
        owner_share=commit.owner_share,
    ).toarray()
    np.testing.assert_allclose(whole.sum(axis=0), 1, rtol=1e-12)
    coverage, column_sums = 0.0, np.zeros(len(names))
    for me in np.flatnonzero(commit.present).tolist():
        own = own_of(commit, me)
        held = holdings_of(commit, me, own)
        mine = [names.index((me, k)) if k >= 0 else None for k in own.tolist()]
        private = [j for j, (site, number) in enumerate(names) if site == me and number < 0]
        columns = [private.pop(0) if j is None else j for j in mine]
        columns += [names.index((s, k)) for s, numbers in held.senders for k in numbers.tolist()]
        assert sorted(columns) == placement.held_by(me).tolist()
        np.testing.assert_array_equal(held.shares, whole[me, columns])
        np.testing.assert_array_equal(held.placement.copies, placement.copies[columns])
        np.testing.assert_array_equal(held.own_shared, placement.copies[columns[: len(own)]] > 0)
        column_sums[columns] += held.shares
        coverage += held.coverage
    np.testing.assert_allclose(column_sums, 1, rtol=1e-12)
    assert coverage == pytest.approx(commit.n_examples, rel=1e-12, abs=1e-12)


def test_a_site_alone_holds_its_own_with_full_shares():
    commit = Commit(
        "hospitals", 1, 0, "ab" * 32, 0, 0,
        tuple(Member(f"s{i}", f"{i:064x}", 2, 1, "00" * 32) for i in range(2)),
        (True, True), (), ((), ()), (0, 0),
    )  # fmt: skip
    held = holdings_of(commit, 0, np.array([0, -1]))
    assert held.shares.tolist() == [1, 1]
    assert held.coverage == 2
    assert held.senders == ()


def test_a_site_without_examples_holds_nothing():
    members = tuple(Member(f"s{i}", f"{i:064x}", 0, 0, "00" * 32) for i in range(2))
    commit = Commit("hospitals", 1, 0, "ab" * 32, 0, 1, members, (True, True), (), ((), ()), (0, 0))
    held = holdings_of(commit, 1, np.empty(0, np.int64))
    assert held.shares.tolist() == []
    assert held.coverage == 0


def test_a_delivery_that_is_missing_leaves_the_share_with_the_owner():
    members = tuple(Member(f"s{i}", f"{i:064x}", 1, 1, "00" * 32) for i in range(2))
    commit = Commit(
        "hospitals", 1, 0, "ab" * 32, 0, 1, members, (True, True), ((0, 1),), ((), ()), (0, 0)
    )
    own = np.array([0])
    assert holdings_of(commit, 0, own).shares.tolist() == [0.5]
    assert holdings_of(commit, 1, own).shares.tolist() == [1, 0.5]
    without = replace(commit, pairs=())
    assert holdings_of(without, 0, own).shares.tolist() == [1]


@settings(max_examples=60, deadline=None)
@given(commits(), st.booleans())
def test_each_example_is_somebodys_own_and_all_agree_who_has_copies(commit, is_one_out):
    """As where holders correct absent owners: who is quarantined owns nothing, a holder does."""
    if is_one_out and sum(commit.present) > 1:
        commit = commit.with_quarantine([int(np.flatnonzero(commit.present)[1])])
    owned = owned_by_each(commit.record)
    assert owned.sum() == commit.n_examples
    for site in np.flatnonzero(commit.active).tolist():
        held = holdings_of(commit, site, own_of(commit, site))
        assert (held.placement.owner == site).sum() == owned[site]
        for sender, numbers in held.senders:
            if not commit.active[sender]:
                continue
            copies = copies_of(commit.record, sender)
            assert copies.held[site] == len(numbers)
            assert copies.n == len(own_of(commit, sender))
            assert copies.held.max() <= copies.n_shared <= copies.held.sum()
