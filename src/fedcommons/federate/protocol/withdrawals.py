"""What a site takes back of what it brought into a federation, and what it signs of it.

Holders delete what was taken back, and answer without it, on its owner's word alone: whoever could
make a withdrawal up would see what it is about as the difference of two answers. A statement lists
all that was withdrawn of one exchange. So nobody can make a part of one pass for the whole, nor one
of an earlier exchange for one of this, and of two the later one contains the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.farewells import is_farewell
from fedcommons.federate.protocol.keys import Identity, is_signed
from fedcommons.federate.protocol.records import encode

PURPOSE = "withdrawal"


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What a site took back: share numbers, and how many of its unshared examples.

    `signature` is the owner's, in hexadecimal; empty if it has not signed it yet.
    """

    numbers: tuple[int, ...]
    n_private: int
    signature: str = ""

    def signed(self, identity: Identity, commit: Commit) -> Withdrawn:
        """The same with its owner's signature, for the exchange of a commit."""
        content = _content(commit, self.numbers, self.n_private)
        return Withdrawn(self.numbers, self.n_private, identity.sign(PURPOSE, content).hex())

    def is_signed(self, owner: str, commit: Commit) -> bool:
        """Whether its owner, by public key in hexadecimal, signed it for a commit's exchange."""
        content = _content(commit, self.numbers, self.n_private)
        return is_signed(bytes.fromhex(owner), PURPOSE, content, bytes.fromhex(self.signature))


def listed_in(commit: Commit, place: int) -> Withdrawn:
    """What a member withdrew by a commit, with the signature that the commit has."""
    return Withdrawn(
        commit.withdrawn[place], commit.withdrawn_private[place], commit.signature(place)
    )


def is_owners_word(commit: Commit, place: int) -> bool:
    """Whether a member signed what a commit says it took back, or that it left."""
    owner = commit.members[place].identity
    if not commit.present[place]:
        return is_farewell(owner, commit.federation, commit.signature(place))
    found = listed_in(commit, place)
    return not (found.numbers or found.n_private) or found.is_signed(owner, commit)


def _content(commit: Commit, numbers: Sequence[int], n_private: int) -> bytes:
    return encode(
        {
            "federation": commit.federation,
            "epoch": commit.epoch,
            "numbers": list(numbers),
            "private": n_private,
        }
    )
