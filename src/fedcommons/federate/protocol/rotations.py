"""A site's new identity key, signed by the one before it: how peers come to pin it.

Both keys sign: the old one, so that nobody else can replace it, and the new one, so that nobody can
claim a key of somebody else. Whoever has the old private key can do this. So a key that may be in
the wrong hands is not replaced in this way, but by asking the site, as when its store was lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from fedcommons.federate.protocol.keys import Identity, is_signed
from fedcommons.federate.protocol.records import Reader, encode, hexadecimal_of
from fedcommons.federate.protocol.refusals import MalformedRecord, RosterRefused

PURPOSE = "rotation"
MOST = 1000  # rotations of one site


@dataclass(frozen=True, slots=True)
class Rotations:
    """All the keys that a site has had, oldest first, and the signatures of each step.

    Attributes:
        keys: public keys in hexadecimal, two at least.
        signatures: for each key but the first, those of the key before it and of its own.
    """

    keys: tuple[str, ...]
    signatures: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, identities: Sequence[Identity]) -> Rotations:
        steps = itertools.pairwise(identities)
        return cls(
            tuple(identity.name for identity in identities),
            tuple(
                (old.sign(PURPOSE, content).hex(), new.sign(PURPOSE, content).hex())
                for old, new in steps
                for content in [_content(old.name, new.name)]
            ),
        )

    def encode(self) -> bytes:
        return encode(
            {"keys": list(self.keys), "signatures": [list(pair) for pair in self.signatures]}
        )

    @classmethod
    def decode(cls, record: bytes) -> Rotations:
        """Check every step; refuse all if one is not signed by both of its keys."""
        read = Reader(record, "rotations")
        keys = tuple(
            hexadecimal_of(key, 32, "rotations: a key") for key in read.list("keys", most=MOST)
        )
        signatures = tuple(_signatures(entry) for entry in read.list("signatures", most=MOST))
        read.end()
        if len(keys) < 2 or len(set(keys)) != len(keys) or len(signatures) != len(keys) - 1:
            raise MalformedRecord("rotations must be two keys or more, all different, all signed")
        for (old, new), pair in zip(itertools.pairwise(keys), signatures, strict=True):
            content = _content(old, new)
            for key, signature in zip((old, new), pair, strict=True):
                if not is_signed(bytes.fromhex(key), PURPOSE, content, bytes.fromhex(signature)):
                    raise RosterRefused("a new key is not signed by itself and the one before it")
        return cls(keys, signatures)

    @property
    def newest(self) -> str:
        return self.keys[-1]


def _content(old: str, new: str) -> bytes:
    return encode({"old": old, "new": new})


def _signatures(entry: object) -> tuple[str, str]:
    if not isinstance(entry, list) or len(entry) != 2:
        raise MalformedRecord("rotations: signatures must be pairs")
    old, new = (hexadecimal_of(one, 64, "rotations: a signature") for one in entry)
    return old, new
