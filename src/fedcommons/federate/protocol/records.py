"""The records that parties exchange and keep: offers and epochs. Commits are in `commits`.

All are canonical JSON (sorted keys, no spaces), so that a digest names a record and a signature
covers it. Every field is checked when a record is read, since it comes from elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from fedcommons.federate.protocol import example_schema
from fedcommons.federate.protocol.draw import Draw
from fedcommons.federate.protocol.joint_draw import VALUE, promise, seed_of
from fedcommons.federate.protocol.keys import Identity, is_signed
from fedcommons.federate.protocol.refusals import DrawRefused, MalformedRecord, RosterRefused

LARGEST = 2**63 - 1
MOST_SITES = 10_000
MOST_EXAMPLES = 2**30  # of a site; others draw for as many as it claims
MOST_DRAWN = 2**27  # rows that all sites share out: a party draws for each, some 8 s in all
MOST_BYTES = 64 << 20  # of a record
MOST_AHEAD = 1_000_000  # epochs that a site may have seen and another one not
HIGHEST_QUESTION = 2**62  # the number of a question
SMALLEST_ROW = 10  # share number, a byte of label and one of inputs
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def encode(content: dict[str, Any]) -> bytes:
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()


def digest(record: bytes) -> bytes:
    return hashlib.sha256(record).digest()


class Reader:
    """Reads the fields of a record, and checks each."""

    def __init__(self, record: bytes, what: str) -> None:
        self.what = what
        if len(record) > MOST_BYTES:
            raise MalformedRecord(f"{what} must have at most {MOST_BYTES} bytes")
        try:
            content = json.loads(record)
        except (ValueError, RecursionError):
            raise MalformedRecord(f"{what} must be JSON") from None
        if not isinstance(content, dict) or encode_or_none(content) != record:
            raise MalformedRecord(f"{what} must be canonical JSON")
        self.content = content

    def _take(self, name: str) -> Any:
        if name not in self.content:
            raise MalformedRecord(f"{self.what} must have {name}")
        return self.content.pop(name)

    def text(self, name: str, form: re.Pattern[str] = NAME) -> str:
        value = self._take(name)
        if not isinstance(value, str) or not form.fullmatch(value):
            raise MalformedRecord(f"{self.what}: {name} must be of the form {form.pattern}")
        return value

    def hexadecimal(self, name: str, n_bytes: int, *, may_be_empty: bool = False) -> str:
        value = self._take(name)
        if may_be_empty and value == "":
            return ""
        return hexadecimal_of(value, n_bytes, f"{self.what}: {name}")

    def integer(self, name: str, low: int = 0, high: int = LARGEST) -> int:
        return integer_of(self._take(name), f"{self.what}: {name}", low, high)

    def list(self, name: str, most: int = LARGEST) -> list[Any]:
        value = self._take(name)
        if not isinstance(value, list) or len(value) > most:
            raise MalformedRecord(f"{self.what}: {name} must be a list")
        return value

    def end(self) -> None:
        if self.content:
            raise MalformedRecord(f"{self.what} must have no other fields")


def encode_or_none(content: dict[str, Any]) -> bytes | None:
    try:
        return encode(content)
    except (ValueError, TypeError, RecursionError):
        return None


def integer_of(value: object, what: str, low: int = 0, high: int = LARGEST) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise MalformedRecord(f"{what} must be an integer in [{low}, {high}]")
    return value


def hexadecimal_of(value: object, n_bytes: int, what: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(rf"[0-9a-f]{{{2 * n_bytes}}}", value):
        raise MalformedRecord(f"{what} must be {n_bytes} bytes in hexadecimal")
    return value


@dataclass(frozen=True, slots=True)
class Offer:
    """What a site says about itself, for one run and node.

    Attributes:
        site, identity: its name, and its public key in hexadecimal.
        key: its X25519 key for an epoch that may follow; empty if none was asked for.
        promise: the hash of the value that it will reveal for the epoch's draw; empty likewise.
        n_examples, n_shareable, row_bytes: how much it has, and the size of an example.
        layout: the type and shape of one example; empty if it has none.
        columns: the digest of its features' names; empty if they have no names.
        manifest: the digest of its rows as they were numbered.
        highest_epoch: the highest epoch that it has seen.
        commit: the digest of the commit that it is under; empty if none.
    """

    federation: str
    site: str
    identity: str
    node_id: int
    run_id: int
    key: str
    promise: str
    n_examples: int
    n_shareable: int
    row_bytes: int
    layout: str
    columns: str
    manifest: str
    highest_epoch: int
    commit: str

    def encode(self) -> bytes:
        return encode({name: getattr(self, name) for name in self.__slots__})

    def signed(self, identity: Identity) -> SignedOffer:
        content = self.encode()
        return SignedOffer(content, identity.sign("offer", content))

    @classmethod
    def decode(cls, record: bytes) -> Offer:
        read = Reader(record, "offer")
        offer = cls(
            read.text("federation"),
            read.text("site"),
            read.hexadecimal("identity", 32),
            read.integer("node_id", high=2**64 - 1),
            read.integer("run_id", high=2**64 - 1),
            read.hexadecimal("key", 32, may_be_empty=True),
            read.hexadecimal("promise", 32, may_be_empty=True),
            read.integer("n_examples", high=MOST_EXAMPLES),
            read.integer("n_shareable", high=MOST_EXAMPLES),
            read.integer("row_bytes", low=SMALLEST_ROW, high=2**40),
            read.text("layout", example_schema.LAYOUT),
            read.hexadecimal("columns", example_schema.DIGEST, may_be_empty=True),
            read.hexadecimal("manifest", 32),
            read.integer("highest_epoch", high=2**40),
            read.hexadecimal("commit", 32, may_be_empty=True),
        )
        read.end()
        if offer.n_shareable > offer.n_examples:
            raise MalformedRecord("offer: n_shareable must be at most n_examples")
        return offer


@dataclass(frozen=True, slots=True)
class SignedOffer:
    """An offer with the signature of the identity that it names."""

    content: bytes
    signature: bytes

    def checked(self) -> Offer:
        offer = Offer.decode(self.content)
        if not is_signed(bytes.fromhex(offer.identity), "offer", self.content, self.signature):
            raise RosterRefused(f"the offer of {offer.site} is not signed by the key that it names")
        return offer


class OnRoster(Protocol):
    """A site as it is listed in a roster."""

    @property
    def site(self) -> str: ...

    @property
    def identity(self) -> str: ...

    @property
    def n_shareable(self) -> int: ...


class Agreed(ABC):
    """A record that all sites follow: it has a roster, and says who gets a copy of what."""

    copies: int

    @property
    @abstractmethod
    def draw_seed(self) -> int: ...

    @property
    @abstractmethod
    def roster(self) -> Sequence[OnRoster]: ...

    @abstractmethod
    def encode(self) -> bytes: ...

    @cached_property
    def record(self) -> bytes:
        return self.encode()

    @cached_property
    def digest(self) -> bytes:
        return digest(self.record)

    @cached_property
    def draw(self) -> Draw:
        return Draw(
            self.draw_seed,
            self.copies,
            tuple(site.site for site in self.roster),
            tuple(site.n_shareable for site in self.roster),
        )

    def check_roster(self) -> None:
        """Refuse a roster that is unsorted, repeats a site, or is too small for the copies."""
        names = [site.site for site in self.roster]
        n = len(names)
        if names != sorted(set(names)) or len({site.identity for site in self.roster}) != n:
            raise RosterRefused("the roster must have each name and each key once, sorted by name")
        if n < 2 or self.copies >= n:
            raise RosterRefused("there must be two sites or more, and fewer copies than sites")
        if sum(site.n_shareable for site in self.roster) > MOST_DRAWN:
            raise RosterRefused(f"all sites together must share at most {MOST_DRAWN} examples")


@dataclass(frozen=True)
class Epoch(Agreed):
    """The record that an exchange follows: the draw, d, and who takes part.

    Attributes:
        values: what each site revealed for the draw, in the order of the roster; none while they
            have not been asked to.
    """

    federation: str
    number: int
    copies: int
    offers: tuple[SignedOffer, ...]
    values: tuple[bytes, ...] = ()

    @cached_property
    def draw_seed(self) -> int:
        """The seed that follows from the values."""
        pairs = zip((site.site for site in self.sites), self.values, strict=True)
        return seed_of(self.federation, self.number, self.copies, pairs)

    @property
    def proposal(self) -> Epoch:
        """The same before anybody revealed a value."""
        return replace(self, values=())

    def encode(self) -> bytes:
        offers = [[o.content.decode(), o.signature.hex()] for o in self.offers]
        return encode(
            {
                "federation": self.federation,
                "number": self.number,
                "copies": self.copies,
                "offers": offers,
                "values": [value.hex() for value in self.values],
            }
        )

    @classmethod
    def decode(cls, record: bytes) -> Epoch:
        """Check all but the sites' identities, which the reader compares with pinned keys."""
        read = Reader(record, "epoch")
        federation, number = read.text("federation"), read.integer("number", low=1, high=2**40)
        copies = read.integer("copies", high=MOST_SITES)
        offers = tuple(_signed_offer(entry) for entry in read.list("offers", most=MOST_SITES))
        values = tuple(
            bytes.fromhex(hexadecimal_of(value, VALUE, "epoch: a value"))
            for value in read.list("values", most=MOST_SITES)
        )
        read.end()
        epoch = cls(federation, number, copies, offers, values)
        epoch.check_roster()
        if any(s.federation != federation or not (s.key and s.promise) for s in epoch.sites):
            raise RosterRefused(
                "the roster must consist of offers to this federation, with keys and promises"
            )
        if values and len(values) != len(offers):
            raise MalformedRecord("epoch: values must be those of all sites, or none")
        for site, value in zip(epoch.sites, values, strict=False):
            if promise(site.identity, value) != site.promise:
                raise DrawRefused(f"what {site.site} revealed is not what it promised")
        return epoch

    @cached_property
    def sites(self) -> tuple[Offer, ...]:
        return tuple(offer.checked() for offer in self.offers)

    @property
    def roster(self) -> tuple[Offer, ...]:
        return self.sites

    def index(self, identity: str) -> int:
        """The site's place in the roster."""
        for place, site in enumerate(self.sites):
            if site.identity == identity:
                return place
        raise RosterRefused("this site is not in the roster")


def _signed_offer(entry: object) -> SignedOffer:
    if not (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and entry[0].isascii()
    ):
        raise MalformedRecord("epoch: offers must be pairs of content and signature")
    signature = hexadecimal_of(entry[1], 64, "epoch: a signature")
    return SignedOffer(entry[0].encode(), bytes.fromhex(signature))
