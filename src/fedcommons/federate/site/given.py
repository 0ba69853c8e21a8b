"""To whom a site's examples were ever given, exchange by exchange, and what its operator approved.

An exchange counts from the moment that the site takes part in it, whether or not it is committed:
what was sealed for a site may have been received there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.federate.protocol.chunks import rows_per_chunk
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.protocol.refusals import (
    DrawRefused,
    ExchangeNotApproved,
    RosterTooSmall,
    TooManyCopies,
)
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.fingerprints import FINGERPRINT
from fedcommons.federate.site.grounds import Grounds
from fedcommons.federate.site.ledger import Ledger
from fedcommons.federate.site.manifests import Manifest
from fedcommons.federate.site.policy import LARGEST, Policy

NEXT = 0  # stands for whichever exchange comes next
RESTORED = "restored"  # a name in the store: from a backup of when

Prints = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class GivenRows:
    """What a site gave in one exchange, by share number.

    Attributes:
        sites: the identities of the roster.
        places: (examples, d) who was to be sent each, as places in the roster.
        fingerprints: (examples, 16) bytes.
        rows: (examples,) of the data file, as it was offered.
        per_chunk: how many share numbers one chunk of the exchange has.
        grounds: on what ground each might be shared, as the site took part.
    """

    sites: list[str]
    places: npt.NDArray[np.int32]
    fingerprints: Prints
    rows: IntArray
    per_chunk: int
    grounds: Grounds

    def numbers(self, recipient: str, chunk: int) -> IntArray:
        """The share numbers of a chunk that a site was to be sent."""
        if recipient not in self.sites:
            return np.empty(0, np.int64)
        first = chunk * self.per_chunk
        places = self.places[first : first + self.per_chunk]
        return first + np.flatnonzero((places == self.sites.index(recipient)).any(axis=1))

    def number(self, fingerprint: bytes, row: int) -> int | None:
        """The share number of an example; None if it was not shared.

        Of equal examples, it is that of this row if it is one of them.
        """
        equal = np.flatnonzero(
            self.fingerprints.view(f"V{FINGERPRINT}")[:, 0] == np.void(fingerprint)
        )
        return next((int(n) for n in equal if self.rows[n] == row), *equal[:1].tolist() or [None])


class Given:
    """What a store knows of the exchanges that the site took part in."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database, self._ledger = database, ledger

    @property
    def n_exchanges(self) -> int:
        ((n,),) = self._database.run("SELECT COUNT(*) FROM given")
        return int(n)

    @property
    def may_be_more(self) -> bool:
        """Whether there may have been exchanges that the store does not know: it was restored."""
        return self._database.get(RESTORED) is not None

    def most_recipients(self, fingerprints: Prints, recipients: list[list[str]]) -> int:
        """How many sites would have been given the same example, at most, after another exchange.

        Args:
            fingerprints: of the examples that it would share, (examples, 16).
            recipients: the identities of the sites that would get each.
        """
        numbers: dict[str, int] = {}
        rows, sites = [fingerprints], [np.array(
            [[numbers.setdefault(who, len(numbers)) for who in row] for row in recipients], np.int64
        ).reshape(len(fingerprints), len(recipients[0]) if recipients else 0)]  # fmt: skip
        for exchange in self.exchanges().values():
            among = [numbers.setdefault(who, len(numbers)) for who in exchange.sites]
            drawn = exchange.places
            rows.append(exchange.fingerprints)
            sites.append(np.array(among, np.int64)[drawn] if drawn.size else drawn.astype(np.int64))
        pairs = [_pairs(*both) for both in zip(rows, sites, strict=True)]
        once = np.unique(np.concatenate(pairs), axis=0)
        _, counts = np.unique(once[:, :FINGERPRINT], axis=0, return_counts=True)
        return int(counts.max(initial=0))

    def exchanges(self) -> dict[int, GivenRows]:
        """What was given in each exchange, by its number."""
        found = {}
        for epoch, sites, places, prints, rows, per_chunk, grounds, ground in self._database.rows(
            "given"
        ):
            fingerprints = np.frombuffer(prints, np.uint8).reshape(-1, FINGERPRINT)
            n = len(fingerprints)
            copies = len(places) // (4 * n) if n else 0
            found[epoch] = GivenRows(
                json.loads(sites),
                np.frombuffer(places, np.int32).reshape(n, copies),
                fingerprints,
                np.frombuffer(rows, "<i8").astype(np.int64),
                per_chunk,
                Grounds.unpack(grounds, ground),
            )
        return found

    def note(self, epoch: Epoch, me: int, manifest: Manifest, grounds: Grounds) -> None:
        """The site takes part in an exchange, inside a transaction; an approval of it is used up.

        `grounds` are those of its share numbers, in order.
        """
        names = json.dumps([site.identity for site in epoch.sites])
        rows = manifest.share_rows
        places = epoch.draw.recipients(me, 0, len(rows)).astype(np.int32).tobytes()
        prints = manifest.fingerprints[rows].tobytes()
        per_chunk = rows_per_chunk(epoch.sites[me], epoch.copies)
        content = (names, places, prints, rows.astype("<i8").tobytes(), per_chunk, *grounds.pack())
        self._database.put("given", epoch.number, *content)
        approved = self.approved
        for number in (epoch.number, NEXT):
            if number in approved:
                approved.remove(number)
                self._set_approved(approved)
                break
        self._database.set("draws", b"0")

    # Draws that may still become an exchange

    @property
    def draws(self) -> int:
        """How many draws this site took part in since the last exchange or approval."""
        return int(self._database.get("draws") or b"0")

    def note_draw(self) -> None:
        """One more, inside a transaction."""
        self._database.set("draws", str(self.draws + 1).encode())

    # What the operator approved

    @property
    def approved(self) -> list[int]:
        """The numbers of exchanges that may be taken part in; 0 is the next, whichever it is."""
        return list(json.loads(self._database.get("approved") or b"[]"))

    def approve(self, number: int = NEXT) -> None:
        """The operator lets this site take part in one more exchange."""
        with self._database.writing("store.approved"):
            self._database.set("draws", b"0")
            if number not in (approved := self.approved):
                self._set_approved([*approved, number])
                self._ledger.note("approved", number, "", self.n_exchanges, 0, 0)

    def _set_approved(self, approved: list[int]) -> None:
        self._database.set("approved", json.dumps(approved).encode())


def _pairs(fingerprints: Prints, sites: IntArray) -> Prints:
    """One row of bytes for each example and site that gets it."""
    d = sites.shape[1]
    whom = np.ascontiguousarray(sites.reshape(-1, 1).astype("<i8")).view(np.uint8)
    return np.concatenate([np.repeat(fingerprints, d, axis=0), whom.reshape(-1, 8)], axis=1)


def check_roster(policy: Policy, epoch: Epoch) -> None:
    """Refuse an exchange among too few, or one in which too many get the same example."""
    n, copies = len(epoch.sites), epoch.copies
    if n < policy.min_sites:
        raise RosterTooSmall(f"the roster has {n} sites; min-sites is {policy.min_sites}")
    if copies > policy.max_copies:
        raise TooManyCopies(f"copies is {copies}; max-copies is {policy.max_copies}")
    if copies == n - 1 and not policy.share_with_all:
        raise TooManyCopies(f"copies is {copies}, all others of {n} sites; share-with-all is false")


def check_approved(policy: Policy, given: Given, number: int) -> None:
    """Refuse a further exchange that nobody approved."""
    if {number, NEXT} & set(given.approved):
        return
    if given.may_be_more and policy.exchanges < LARGEST:
        raise ExchangeNotApproved(
            "this site's store was restored from a backup, and may not know of exchanges that the "
            "site took part in; another one needs `fedcommons federate approve`"
        )
    if given.n_exchanges >= policy.exchanges:
        raise ExchangeNotApproved(
            f"this site took part in {given.n_exchanges} exchanges; another one needs "
            "`fedcommons federate approve`"
        )


def check_draws(policy: Policy, given: Given) -> None:
    """Refuse to draw once more: whoever may break off a draw could wait for one that it likes."""
    if given.draws >= policy.draws:
        raise DrawRefused(
            f"{given.draws} draws came to nothing; draws is {policy.draws}: another one needs "
            "`fedcommons federate approve`"
        )


def check_spread(policy: Policy, given: Given, epoch: Epoch, me: int, prints: Prints) -> None:
    """Refuse an exchange after which too many sites would have been sent the same example."""
    if not given.n_exchanges or {epoch.number, NEXT} & set(given.approved):
        return
    identities = [site.identity for site in epoch.sites]
    drawn = epoch.draw.recipients(me, 0, len(prints)).tolist()
    most = given.most_recipients(prints, [[identities[place] for place in row] for row in drawn])
    if most > policy.max_copies:
        raise TooManyCopies(
            f"{most} sites would have been sent the same example, uncommitted exchanges "
            f"included; max-copies is {policy.max_copies}"
        )
