"""The commit: the record of who holds which examples from now on, and by which code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedcommons.checks import BoolArray
from fedcommons.federate.protocol import commit_rules
from fedcommons.federate.protocol.commit_fields import (
    Member,
    floats_of,
    member_of,
    numbers_of,
    of_length,
    pair_of,
    signatures_of,
    without_last_empty,
)
from fedcommons.federate.protocol.draw import BLOCK
from fedcommons.federate.protocol.records import (
    MOST_SITES,
    Agreed,
    Epoch,
    Reader,
    encode,
    hexadecimal_of,
    integer_of,
)

MOST_FOLLOWED = 1000  # commits that a site may miss


@dataclass(frozen=True)
class Commit(Agreed):
    """Who holds which examples, and by which code they share them; all sites train by this record.

    Attributes:
        number, serial: the epoch, and how often it was committed anew.
        epoch: the digest of the epoch's record, in hexadecimal.
        members, present: the sites of the exchange in the order of names, then those that joined
            later; and which of them have not left.
        pairs: (sender, recipient), places in the roster: deliveries for which there is a receipt.
        withdrawn: the share numbers that each site withdrew, sorted.
        withdrawn_private: how many unshared examples each site withdrew.
        code, straggler_prob, owner_share: the code, and the p_i or w_i that it uses, if any.
        joined: how many members joined after the exchange. They have no part in its draw: all their
            examples are private until the next one.
        receipts: the root of the tree of receipts that its deliveries rest on (`receipt_tree`).
        follows: the digests of the commits before this one, the last `MOST_FOLLOWED` of them, in
            their order. So a site that was away sees that this one follows from its own.
        quarantined: places of members whose answers do not count until this is lifted, sorted.
            What others hold of their shared examples still does, the rest is not trained on.
        set_aside: those among them of whose examples no copy counts either, sorted.
        signed: by place, in hexadecimal, what each member signed of what it withdrew, or of its
            farewell if it left; empty, or not there, for one that signed nothing (`withdrawals`).
    """

    federation: str
    number: int
    serial: int
    epoch: str
    seed: int
    copies: int
    members: tuple[Member, ...]
    present: tuple[bool, ...]
    pairs: tuple[tuple[int, int], ...]
    withdrawn: tuple[tuple[int, ...], ...]
    withdrawn_private: tuple[int, ...]
    code: str = "equal-split"
    straggler_prob: tuple[float, ...] | None = None
    owner_share: tuple[float, ...] | None = None
    joined: int = 0
    receipts: str = ""
    follows: tuple[str, ...] = ()
    quarantined: tuple[int, ...] = ()
    set_aside: tuple[int, ...] = ()
    signed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        epoch: Epoch,
        pairs: tuple[tuple[int, int], ...],
        *,
        receipts: str = "",
        after: Commit | None = None,
    ) -> Commit:
        """The first commit of an epoch, after the last one of the epoch before."""
        n = len(epoch.sites)
        return cls(
            epoch.federation,
            epoch.number,
            0,
            epoch.digest.hex(),
            epoch.draw_seed,
            epoch.copies,
            tuple(
                Member(s.site, s.identity, s.n_examples, s.n_shareable, s.manifest)
                for s in epoch.sites
            ),
            (True,) * n,
            tuple(sorted(pairs)),
            ((),) * n,
            (0,) * n,
            receipts=receipts,
            follows=after.lineage if after else (),
        )

    def anew(self, **changes: Any) -> Commit:
        """The next commit of this epoch, with these changes."""
        return replace(self, serial=self.serial + 1, follows=self.lineage, **changes)

    @property
    def lineage(self) -> tuple[str, ...]:
        """What the next commit follows."""
        return (*self.follows, self.digest.hex())[-MOST_FOLLOWED:]

    def steps_from(self, earlier: Commit) -> int | None:
        """How many commits after another one this is; None if it does not follow it."""
        name = earlier.digest.hex()
        return len(self.follows) - self.follows.index(name) if name in self.follows else None

    def signature(self, place: int) -> str:
        """What the member at this place signed of what it took back, in hexadecimal."""
        return self.signed[place] if place < len(self.signed) else ""

    def _signed_by(self, place: int, signature: str) -> tuple[str, ...]:
        """What all signed, with another signature of the member at this place."""
        signed = [self.signature(i) for i in range(len(self.members))]
        signed[place] = signature
        return without_last_empty(signed)

    def with_withdrawn(
        self, place: int, numbers: tuple[int, ...], n_private: int, signature: str
    ) -> Commit:
        """The next commit, in which this is all that the member at this place withdrew."""
        withdrawn, private = list(self.withdrawn), list(self.withdrawn_private)
        withdrawn[place], private[place] = numbers, n_private
        return self.anew(
            withdrawn=tuple(withdrawn),
            withdrawn_private=tuple(private),
            signed=self._signed_by(place, signature),
        )

    def without(self, leaving: int, farewell: str = "") -> Commit:
        """The next commit after a site left for good: its examples and its copies are gone.

        `farewell` is what it signed; without it, the server's operator says that it left.
        """
        return self.anew(
            signed=self._signed_by(leaving, farewell),
            present=tuple(here and i != leaving for i, here in enumerate(self.present)),
            pairs=tuple(pair for pair in self.pairs if leaving not in pair),
            quarantined=tuple(place for place in self.quarantined if place != leaving),
            set_aside=tuple(place for place in self.set_aside if place != leaving),
        )

    def with_quarantine(self, places: Iterable[int], *, set_aside: bool = False) -> Commit:
        """The next commit, in which answers of these members do not count for now."""
        found = {*self.quarantined, *places}
        aside = {*self.set_aside, *places} if set_aside else self.set_aside
        return self.anew(quarantined=tuple(sorted(found)), set_aside=tuple(sorted(aside)))

    def lifted(self, place: int) -> Commit:
        """The next commit, in which a member that was quarantined counts as before."""
        return self.anew(
            quarantined=tuple(one for one in self.quarantined if one != place),
            set_aside=tuple(one for one in self.set_aside if one != place),
        )

    def with_newcomers(self, newcomers: Sequence[Member]) -> Commit:
        """The next commit after these joined: each with its own examples, none of them shared.

        Nobody else holds any of those, so no code needs to know more of a newcomer: all of each is
        its own, whatever its p is.
        """
        n, p, w = len(newcomers), self.straggler_prob, self.owner_share
        return self.anew(
            members=(*self.members, *(replace(member, n_shareable=0) for member in newcomers)),
            present=self.present + (True,) * n,
            withdrawn=self.withdrawn + ((),) * n,
            withdrawn_private=self.withdrawn_private + (0,) * n,
            straggler_prob=None if p is None else p + (0.0,) * n,
            owner_share=None if w is None else w + (1.0,) * n,
            joined=self.joined + n,
        )

    @property
    def order(self) -> tuple[int, int]:
        return self.number, self.serial

    @property
    def facts(self) -> tuple[object, ...]:
        """What is the same in all commits of an epoch."""
        fixed = (self.federation, self.number, self.epoch, self.seed, self.copies)
        return (*fixed, self.roster, self.receipts)

    def may_follow(self, earlier: Commit) -> bool:
        """Whether this can be a later commit of the same epoch: nothing that left is back.

        Sites may have joined; a quarantine may begin and end. Deliveries end with a site that
        leaves, all that it sent and got, and in no other way.
        """
        n = len(earlier.members)
        return (
            self.facts == earlier.facts
            and self.serial > earlier.serial
            and self.members[:n] == earlier.members
            and self.pairs
            == tuple(pair for pair in earlier.pairs if all(self.present[place] for place in pair))
            and all(b or not a for a, b in zip(self.present[:n], earlier.present, strict=True))
            and all(
                set(a) >= set(b) for a, b in zip(self.withdrawn[:n], earlier.withdrawn, strict=True)
            )
            and all(
                a >= b
                for a, b in zip(self.withdrawn_private[:n], earlier.withdrawn_private, strict=True)
            )
        )

    @property
    def draw_seed(self) -> int:
        return self.seed

    @property
    def roster(self) -> tuple[Member, ...]:
        """The members that the draw is among: those of the exchange."""
        return self.members[: len(self.members) - self.joined]

    def places_in(self, identities: Sequence[str]) -> list[int | None]:
        """The place of each member in another list of identities; None if it is not in there."""
        place = {identity: i for i, identity in enumerate(identities)}
        return [place.get(member.identity) for member in self.members]

    def has_joined(self, place: int) -> bool:
        """Whether the member at this place joined after the exchange."""
        return place >= len(self.roster)

    @property
    def members_present(self) -> list[Member]:
        """The members that have not left."""
        return [member for member, here in zip(self.members, self.present, strict=True) if here]

    @cached_property
    def active(self) -> tuple[bool, ...]:
        """Which members are asked for answers: those that have not left and are not quarantined."""
        return tuple(
            here and place not in self.quarantined for place, here in enumerate(self.present)
        )

    @property
    def members_active(self) -> list[Member]:
        return [member for member, asked in zip(self.members, self.active, strict=True) if asked]

    @cached_property
    def n_examples(self) -> int:
        """M, the number of examples that are trained on."""
        own = sum(
            member.n_examples - len(self.withdrawn[i]) - self.withdrawn_private[i]
            for i, member in enumerate(self.members)
            if self.active[i]
        )
        return own + sum(self._n_elsewhere(place) for place in self.quarantined)

    def _n_elsewhere(self, owner: int) -> int:
        """How many of a quarantined member's examples somebody holds who is asked for answers."""
        holders = [r for s, r in self.pairs if s == owner and self.active[r]]
        if owner in self.set_aside or not holders:
            return 0
        gone = np.array(self.withdrawn[owner], np.int64)
        n = self.members[owner].n_shareable
        found = 0
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            places = self.draw.recipients(owner, start, stop)
            held: BoolArray = np.asarray(np.isin(places, holders).any(axis=1))
            held[gone[(gone >= start) & (gone < stop)] - start] = False
            found += int(held.sum())
        return found

    def index(self, identity: str) -> int | None:
        """The site's place in the roster; None if it is not listed or has left."""
        for place, member in enumerate(self.members):
            if member.identity == identity:
                return place if self.present[place] else None
        return None

    def encode(self) -> bytes:
        content = {
            "federation": self.federation,
            "number": self.number,
            "serial": self.serial,
            "epoch": self.epoch,
            "seed": self.seed,
            "copies": self.copies,
            "members": [
                [m.site, m.identity, m.n_examples, m.n_shareable, m.manifest] for m in self.members
            ],
            "present": [int(here) for here in self.present],
            "pairs": [list(pair) for pair in self.pairs],
            "withdrawn": [list(numbers) for numbers in self.withdrawn],
            "withdrawn_private": list(self.withdrawn_private),
            "code": self.code,
            "straggler_prob": list(self.straggler_prob or ()),
            "owner_share": list(self.owner_share or ()),
        }
        # Without these a record is as it was before there were any.
        if self.joined:
            content["joined"] = self.joined
        if self.receipts:
            content["receipts"] = self.receipts
        if self.follows:
            content["follows"] = list(self.follows)
        if self.quarantined:  # likewise
            content["quarantined"] = list(self.quarantined)
            content["set_aside"] = list(self.set_aside)
        if self.signed:
            content["signed"] = list(self.signed)
        return encode(content)

    @classmethod
    def decode(cls, record: bytes) -> Commit:
        read = Reader(record, "commit")
        members = tuple(member_of(entry) for entry in read.list("members", most=MOST_SITES))
        n = len(members)
        commit = cls(
            read.text("federation"),
            read.integer("number", low=1, high=2**40),
            read.integer("serial", high=2**40),
            read.hexadecimal("epoch", 32),
            read.integer("seed"),
            read.integer("copies", high=MOST_SITES),
            members,
            tuple(
                bool(integer_of(e, "commit: present", high=1))
                for e in of_length(read.list("present"), n, "present")
            ),
            tuple(pair_of(entry, n) for entry in read.list("pairs")),
            tuple(
                numbers_of(entry, members[i].n_shareable)
                for i, entry in enumerate(of_length(read.list("withdrawn"), n, "withdrawn"))
            ),
            tuple(
                integer_of(e, "commit: withdrawn_private", high=members[i].n_private)
                for i, e in enumerate(
                    of_length(read.list("withdrawn_private"), n, "withdrawn_private")
                )
            ),
            read.text("code"),
            floats_of(read.list("straggler_prob"), n, "straggler_prob"),
            floats_of(read.list("owner_share"), n, "owner_share"),
            read.integer("joined", low=1, high=n) if "joined" in read.content else 0,
            read.hexadecimal("receipts", 32) if "receipts" in read.content else "",
            tuple(
                hexadecimal_of(entry, 32, "commit: follows")
                for entry in (
                    read.list("follows", most=MOST_FOLLOWED) if "follows" in read.content else ()
                )
            ),
            *(
                (
                    numbers_of(read.list("quarantined"), n, "quarantined"),
                    numbers_of(read.list("set_aside"), n, "set_aside"),
                )
                if "quarantined" in read.content
                else ((), ())
            ),
            signed=signatures_of(read.list("signed", most=n)) if "signed" in read.content else (),
        )
        read.end()
        commit_rules.check(commit)
        return commit
