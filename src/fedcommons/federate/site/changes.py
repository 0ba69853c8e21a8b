"""What commits change of a site's answers, as far as no owner signed for it.

Full answers under two commits differ by the examples whose shares changed in between. Whoever
writes commits could choose these: a quarantine, weights, or that somebody left. So a site keeps its
examples in groups, those whose shares have always changed alike in the commits that it answered
under. No combination of its answers, at whatever model, tells examples of a group apart. A change
that would divide a group so that a part has fewer examples than `min-change` is not answered unless
the site's operator approves it, nor is one after `MOST_CHANGES`. What owners sign, withdrawals and
farewells, divides groups too, and is followed at once.

Each exchange begins anew; those after the first need the operator's word anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import ChangeRefused
from fedcommons.federate.protocol.withdrawals import is_owners_word
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.decoded import decoded_commit
from fedcommons.federate.site.holdings import holdings_of
from fedcommons.federate.site.ledger import Ledger
from fedcommons.federate.site.policy import Policy

UNDER, APPROVED, COUNT = "answered under", "approved change", "changes"  # names in the store
MOST_CHANGES = 10  # in an exchange: more vectors of shares would tell more, however large the parts
OWNERS = 2**32  # above all share numbers
LARGEST = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """A site's examples by how their shares have changed; those that it does not share are one.

    Attributes:
        key: which example, ascending: the owner's place times `OWNERS`, plus one more than its
            share number; 0 more for all that its owner does not share.
        n: how many examples that is.
        base: the first share that the site had of it; 0 if it had none yet.
        group: which group it is in.
    """

    key: IntArray
    n: IntArray
    base: FloatArray
    group: IntArray

    def pack(self) -> bytes:
        columns = np.stack([self.key, self.n, self.base.view(np.int64), self.group])
        return columns.astype("<i8").tobytes()

    @classmethod
    def unpack(cls, packed: bytes) -> Groups:
        key, n, base, group = np.frombuffer(packed, "<i8").astype(np.int64).reshape(4, -1)
        return cls(key, n, base.view(np.float64), group)

    @classmethod
    def of(cls, commit: Commit, me: int, own: IntArray) -> tuple[Groups, FloatArray]:
        """One group of all that has a share under a commit, and the shares."""
        held = holdings_of(commit, me, own)
        parts = [(me, held.own), *held.senders]
        keys = np.concatenate([place * OWNERS + 1 + numbers for place, numbers in parts])
        key, first, n = np.unique(keys, return_index=True, return_counts=True)
        share = held.shares[first]
        return cls(key, n.astype(np.int64), share, (share == 0).astype(np.int64)), share

    def without(self, gone: BoolArray) -> Groups:
        stays = ~gone
        return Groups(self.key[stays], self.n[stays], self.base[stays], self.group[stays])

    def changed_by(self, now: Groups, share: FloatArray) -> Groups:
        """The groups after the site's shares are those of `now`; what is not in it has none.

        Two examples stay together if their shares are the same multiples of their first ones.
        """
        key = np.union1d(self.key, now.key)
        n, base, shares = (np.zeros(len(key), kind) for kind in (np.int64, float, float))
        group = np.full(len(key), -1, np.int64)  # of what was never in an answer
        for these in (self, now):
            n[np.searchsorted(key, these.key)] = these.n
        before = np.searchsorted(key, self.key)
        base[before], group[before] = self.base, self.group
        shares[np.searchsorted(key, now.key)] = share
        group[base == 0] = -1
        is_new = (base == 0) & (shares != 0)
        multiple = np.divide(shares, base, out=np.zeros(len(key)), where=base != 0)
        multiple[is_new] = 1.0
        pairs = np.stack([group.astype(float), multiple])
        _, divided = np.unique(pairs, axis=1, return_inverse=True)
        return Groups(key, n, np.where(is_new, shares, base), divided.ravel().astype(np.int64))

    def smallest_part(self, after: Groups) -> int:
        """The size of the smallest part into which a group is divided; a large number if none."""
        before = np.full(len(after.key), -1, np.int64)  # `after` has all keys of this
        before[np.searchsorted(after.key, self.key)] = self.group
        pairs = np.stack([before, after.group])
        (of_group, _), part = np.unique(pairs, axis=1, return_inverse=True)
        sizes = np.bincount(part.ravel(), weights=after.n, minlength=len(of_group))
        _, again, n_parts = np.unique(of_group, return_inverse=True, return_counts=True)
        return int(sizes[n_parts[again] > 1].min(initial=LARGEST))


class Changes:
    """The groups of the examples that a site has answered about in this exchange, in its store."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database, self._ledger = database, ledger

    def check(self, policy: Policy, commit: Commit, me: int, own: IntArray) -> None:
        """Refuse to answer under a commit that would set too few examples apart.

        `own` are the share numbers of the site's own examples, -1 for those that it does not share.
        """
        if policy.min_change <= 1 or self._database.get(UNDER) == commit.digest:
            return
        with self._database.writing("store.changes"):
            now, share = Groups.of(commit, me, own)
            count = 0
            if (known := self._last(commit)) is not None:
                last, before = known
                signed, share_before = Groups.of(_as_owners_signed(last, commit), me, own)
                before = before.without(_taken_back(commit, before.key))
                before = before.changed_by(signed, share_before)
                is_same = np.array_equal(signed.key, now.key) and np.array_equal(
                    share_before, share
                )
                count = int(self._database.get(COUNT) or b"0") + (not is_same)
                now = before.changed_by(now, share)
                smallest = before.smallest_part(now)
                if smallest < policy.min_change or (count > MOST_CHANGES and not is_same):
                    self._need_approval(policy, commit, smallest)
            self._database.put("answered", 1, commit.record, now.pack())
            self._database.set(UNDER, commit.digest)
            self._database.set(COUNT, str(count).encode())

    def _last(self, commit: Commit) -> tuple[Commit, Groups] | None:
        """The last commit of this exchange that the site answered under, and the groups then."""
        for _, record, packed in self._database.rows("answered"):
            if (last := decoded_commit(record)).epoch == commit.epoch:
                return last, Groups.unpack(packed)
        return None

    def _need_approval(self, policy: Policy, commit: Commit, smallest: int) -> None:
        if not self.approved:
            what = (
                f"would set {smallest} examples apart, for which no owner signed; min-change is "
                f"{policy.min_change}"
                if smallest < policy.min_change
                else f"is one more than {MOST_CHANGES} changes for which no owner signed"
            )
            raise ChangeRefused(
                f"commit {commit.order} {what}: to answer under it needs `fedcommons federate "
                "approve --change`"
            )
        self._database.set(APPROVED, b"")

    @property
    def approved(self) -> bool:
        """Whether the operator lets the next change be."""
        return self._database.get(APPROVED) == b"1"

    def approve(self) -> None:
        """The operator lets the next change be, however few examples it is about."""
        with self._database.writing("store.approved"):
            self._database.set(APPROVED, b"1")
            self._ledger.note("approved change", 0, "", 0, 0, 0, self._database.get(UNDER) or b"")


def _taken_back(commit: Commit, key: IntArray) -> BoolArray:
    """Which examples are gone by their owner's own word."""
    owner, number = np.divmod(key, OWNERS)
    gone = np.zeros(len(key), np.bool_)
    for place in np.unique(owner).tolist():
        if commit.present[place]:
            gone |= (owner == place) & np.isin(number - 1, commit.withdrawn[place])
        elif is_owners_word(commit, place):
            gone |= owner == place
    return gone


def _as_owners_signed(last: Commit, commit: Commit) -> Commit:
    """The last commit with what owners have signed since, and nothing else that is new."""
    n = len(last.members)
    here = tuple(
        now or (place < n and last.present[place] and not is_owners_word(commit, place))
        for place, now in enumerate(commit.present)
    )
    p, w = commit.straggler_prob, commit.owner_share
    return replace(
        commit,
        present=here,
        pairs=tuple(pair for pair in last.pairs if all(here[place] for place in pair)),
        quarantined=tuple(place for place in last.quarantined if here[place]),
        set_aside=tuple(place for place in last.set_aside if here[place]),
        code=last.code,
        straggler_prob=last.straggler_prob and (*last.straggler_prob, *(p or ())[n:]),
        owner_share=last.owner_share and (*last.owner_share, *(w or ())[n:]),
    )
