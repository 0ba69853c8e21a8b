"""The records that parties exchange and keep: an offer, an epoch, a commit.

All are canonical JSON (sorted keys, no spaces), so that a digest names a record and a signature
covers it. Reading one checks every field: what comes from elsewhere is not trusted.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedcommons.coding import CODES
from fedcommons.federate.draw import Draw
from fedcommons.federate.keys import Identity, is_signed
from fedcommons.federate.refusals import MalformedRecord, RosterRefused

LARGEST = 2**63 - 1
MOST_SITES = 10_000
MOST_EXAMPLES = 2**30  # of a site: what a claim makes others draw is bounded
MOST_BYTES = 64 << 20  # of a record
SMALLEST_ROW = 17  # number, label and one byte
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def encode(content: dict[str, Any]) -> bytes:
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()


def digest(record: bytes) -> bytes:
    return hashlib.sha256(record).digest()


class _Reader:
    """The fields of a record, each checked as it is taken."""

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

    def text(self, name: str) -> str:
        value = self._take(name)
        if not isinstance(value, str) or not NAME.fullmatch(value):
            raise MalformedRecord(f"{self.what}: {name} must be a name")
        return value

    def hexadecimal(self, name: str, n_bytes: int, *, may_be_empty: bool = False) -> str:
        value = self._take(name)
        if may_be_empty and value == "":
            return ""
        return _hexadecimal(value, n_bytes, f"{self.what}: {name}")

    def integer(self, name: str, low: int = 0, high: int = LARGEST) -> int:
        return _integer(self._take(name), f"{self.what}: {name}", low, high)

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


def _integer(value: object, what: str, low: int = 0, high: int = LARGEST) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise MalformedRecord(f"{what} must be an integer in [{low}, {high}]")
    return value


def _hexadecimal(value: object, n_bytes: int, what: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(rf"[0-9a-f]{{{2 * n_bytes}}}", value):
        raise MalformedRecord(f"{what} must be {n_bytes} bytes in hexadecimal")
    return value


@dataclass(frozen=True, slots=True)
class Offer:
    """What a site says of itself, for one run and node.

    Attributes:
        site, identity: its name, and its public key in hexadecimal.
        key: its X25519 key for the epoch that may follow; empty if none was asked for.
        n_examples, n_shareable, row_bytes: how much it has. No labels.
        manifest: the digest of what its rows were when they were numbered.
        highest_epoch: the highest epoch that it has seen.
        commit: the digest of the commit that it is under; empty if none.
    """

    federation: str
    site: str
    identity: str
    node_id: int
    run_id: int
    key: str
    n_examples: int
    n_shareable: int
    row_bytes: int
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
        read = _Reader(record, "offer")
        offer = cls(
            read.text("federation"),
            read.text("site"),
            read.hexadecimal("identity", 32),
            read.integer("node_id", high=2**64 - 1),
            read.integer("run_id", high=2**64 - 1),
            read.hexadecimal("key", 32, may_be_empty=True),
            read.integer("n_examples", high=MOST_EXAMPLES),
            read.integer("n_shareable", high=MOST_EXAMPLES),
            read.integer("row_bytes", low=SMALLEST_ROW, high=2**40),
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


@dataclass(frozen=True)
class Epoch:
    """What an exchange goes by: the seed of the draw, d, and who takes part with which keys."""

    federation: str
    number: int
    seed: int
    copies: int
    offers: tuple[SignedOffer, ...]

    def encode(self) -> bytes:
        offers = [[o.content.decode(), o.signature.hex()] for o in self.offers]
        return encode(
            {
                "federation": self.federation,
                "number": self.number,
                "seed": self.seed,
                "copies": self.copies,
                "offers": offers,
            }
        )

    @classmethod
    def decode(cls, record: bytes) -> Epoch:
        """Check everything but who the sites may be: that is for the reader's pinned keys."""
        read = _Reader(record, "epoch")
        epoch = cls(
            read.text("federation"),
            read.integer("number", low=1, high=2**40),
            read.integer("seed"),
            read.integer("copies", high=MOST_SITES),
            tuple(_signed_offer(entry) for entry in read.list("offers", most=MOST_SITES)),
        )
        read.end()
        sites = epoch.sites
        _check_roster([(site.site, site.identity) for site in sites], epoch.copies)
        if any(s.federation != epoch.federation or not s.key for s in sites):
            raise RosterRefused("the roster must hold offers to this federation, with keys")
        return epoch

    @cached_property
    def sites(self) -> tuple[Offer, ...]:
        return tuple(offer.checked() for offer in self.offers)

    @cached_property
    def record(self) -> bytes:
        return self.encode()

    @cached_property
    def digest(self) -> bytes:
        return digest(self.record)

    @cached_property
    def draw(self) -> Draw:
        return Draw(
            self.seed,
            self.copies,
            tuple(site.site for site in self.sites),
            tuple(site.n_shareable for site in self.sites),
        )

    def index(self, identity: str) -> int:
        """The site's place in the roster."""
        for place, site in enumerate(self.sites):
            if site.identity == identity:
                return place
        raise RosterRefused("this site is not in the roster")


def _check_roster(sites: list[tuple[str, str]], copies: int) -> None:
    """Whether these (name, identity) can be a roster, for this many copies."""
    names = [name for name, _ in sites]
    if names != sorted(set(names)) or len({identity for _, identity in sites}) != len(sites):
        raise RosterRefused("the roster must have each name and each key once, in order")
    if len(sites) < 2 or copies >= len(sites):
        raise RosterRefused("copies must be below the number of sites, of which two are needed")


def _signed_offer(entry: object) -> SignedOffer:
    if not (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and entry[0].isascii()
    ):
        raise MalformedRecord("epoch: offers must be pairs of content and signature")
    signature = _hexadecimal(entry[1], 64, "epoch: a signature")
    return SignedOffer(entry[0].encode(), bytes.fromhex(signature))


@dataclass(frozen=True, slots=True)
class Member:
    """A site as a commit names it."""

    site: str
    identity: str
    n_examples: int
    n_shareable: int
    manifest: str

    @property
    def n_private(self) -> int:
        return self.n_examples - self.n_shareable


@dataclass(frozen=True)
class Commit:
    """Who holds what from now on, and which share each holder has: the record that all train by.

    Attributes:
        number, serial: the epoch, and how often it was committed anew.
        epoch: the digest of the epoch's record, in hexadecimal.
        members: the roster, in the order of names; `present` are those still with it.
        pairs: (sender, recipient), by place in the roster: deliveries that have receipts.
        withdrawn: for each site the share numbers that it withdrew, sorted.
        withdrawn_private: for each site how many of its unshared examples it withdrew.
        code, straggler_prob, owner_share: the code, and p_i or w_i where it uses them.
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

    @classmethod
    def of(cls, epoch: Epoch, pairs: tuple[tuple[int, int], ...]) -> Commit:
        """The first commit of an epoch."""
        n = len(epoch.sites)
        return cls(
            epoch.federation,
            epoch.number,
            0,
            epoch.digest.hex(),
            epoch.seed,
            epoch.copies,
            tuple(
                Member(s.site, s.identity, s.n_examples, s.n_shareable, s.manifest)
                for s in epoch.sites
            ),
            (True,) * n,
            tuple(sorted(pairs)),
            ((),) * n,
            (0,) * n,
        )

    def anew(self, **changes: Any) -> Commit:
        """The next commit of this epoch, with what changed."""
        return replace(self, serial=self.serial + 1, **changes)

    def without(self, leaving: int) -> Commit:
        """The next commit, after a site left for good: with it go its examples and its copies."""
        return self.anew(
            present=tuple(here and i != leaving for i, here in enumerate(self.present)),
            pairs=tuple(pair for pair in self.pairs if leaving not in pair),
        )

    @property
    def order(self) -> tuple[int, int]:
        return self.number, self.serial

    @property
    def facts(self) -> tuple[object, ...]:
        """What all commits of an epoch have in common."""
        return self.federation, self.number, self.epoch, self.seed, self.copies, self.members

    def may_follow(self, earlier: Commit) -> bool:
        """Whether it can be a later commit of the same epoch: nothing that went comes back."""
        return (
            self.facts == earlier.facts
            and self.serial > earlier.serial
            and set(self.pairs) <= set(earlier.pairs)
            and all(b or not a for a, b in zip(self.present, earlier.present, strict=True))
            and all(
                set(a) >= set(b) for a, b in zip(self.withdrawn, earlier.withdrawn, strict=True)
            )
            and all(
                a >= b
                for a, b in zip(self.withdrawn_private, earlier.withdrawn_private, strict=True)
            )
        )

    @cached_property
    def draw(self) -> Draw:
        return Draw(
            self.seed,
            self.copies,
            tuple(member.site for member in self.members),
            tuple(member.n_shareable for member in self.members),
        )

    @cached_property
    def record(self) -> bytes:
        return self.encode()

    @cached_property
    def digest(self) -> bytes:
        return digest(self.record)

    @cached_property
    def n_examples(self) -> int:
        """M: the examples that are trained on."""
        return sum(
            member.n_examples - len(self.withdrawn[i]) - self.withdrawn_private[i]
            for i, member in enumerate(self.members)
            if self.present[i]
        )

    def index(self, identity: str) -> int | None:
        """The site's place in the roster; None if it has none or left."""
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
        return encode(content)

    @classmethod
    def decode(cls, record: bytes) -> Commit:
        read = _Reader(record, "commit")
        members = tuple(_member(entry) for entry in read.list("members", most=MOST_SITES))
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
                bool(_integer(e, "commit: present", high=1))
                for e in _of_length(read.list("present"), n, "present")
            ),
            tuple(_pair(entry, n) for entry in read.list("pairs")),
            tuple(
                _numbers(entry, members[i].n_shareable)
                for i, entry in enumerate(_of_length(read.list("withdrawn"), n, "withdrawn"))
            ),
            tuple(
                _integer(e, "commit: withdrawn_private", high=members[i].n_private)
                for i, e in enumerate(
                    _of_length(read.list("withdrawn_private"), n, "withdrawn_private")
                )
            ),
            read.text("code"),
            _floats(read.list("straggler_prob"), n, "straggler_prob"),
            _floats(read.list("owner_share"), n, "owner_share"),
        )
        read.end()
        _check_roster([(member.site, member.identity) for member in members], commit.copies)
        if list(commit.pairs) != sorted(set(commit.pairs)):
            raise MalformedRecord("commit: pairs must be sorted, each once")
        if not all(commit.present[place] for pair in commit.pairs for place in pair):
            raise MalformedRecord("commit: pairs must be of sites that are present")
        needed = {"reliability-split": "straggler_prob", "owner-corrected": "owner_share"}
        if commit.code not in CODES or any(
            (getattr(commit, field) is None) == (commit.code == code)
            for code, field in needed.items()
        ):
            raise MalformedRecord("commit: the code must be known and come with what it needs")
        return commit


def _member(entry: object) -> Member:
    if not (isinstance(entry, list) and len(entry) == 5):
        raise MalformedRecord("commit: members must have five fields")
    site, identity, n_examples, n_shareable, manifest = entry
    if not isinstance(site, str) or not NAME.fullmatch(site):
        raise MalformedRecord("commit: a site must have a name")
    n_examples = _integer(n_examples, "commit: n_examples", high=MOST_EXAMPLES)
    return Member(
        site,
        _hexadecimal(identity, 32, "commit: an identity"),
        n_examples,
        _integer(n_shareable, "commit: n_shareable", high=n_examples),
        _hexadecimal(manifest, 32, "commit: a manifest"),
    )


def _of_length(value: list[Any], n: int, name: str) -> list[Any]:
    if len(value) != n:
        raise MalformedRecord(f"commit: {name} must have one entry for each member")
    return value


def _pair(entry: object, n: int) -> tuple[int, int]:
    if not (isinstance(entry, list) and len(entry) == 2):
        raise MalformedRecord("commit: pairs must be pairs")
    sender, recipient = (_integer(place, "commit: a pair", high=n - 1) for place in entry)
    if sender == recipient:
        raise MalformedRecord("commit: a pair must be of two sites")
    return sender, recipient


def _numbers(entry: object, below: int) -> tuple[int, ...]:
    if not isinstance(entry, list):
        raise MalformedRecord("commit: withdrawn must be lists")
    numbers = tuple(_integer(number, "commit: withdrawn", high=below - 1) for number in entry)
    if list(numbers) != sorted(set(numbers)):
        raise MalformedRecord("commit: withdrawn must be sorted, each once")
    return numbers


def _floats(value: list[Any], n: int, name: str) -> tuple[float, ...] | None:
    if not value:
        return None
    _of_length(value, n, name)
    if not all(isinstance(x, float) and abs(x) < 1e100 for x in value):
        raise MalformedRecord(f"commit: {name} must be numbers")
    if name == "straggler_prob" and not all(0 <= x < 1 for x in value):
        raise MalformedRecord("commit: straggler_prob must be in [0, 1)")
    return tuple(value)
