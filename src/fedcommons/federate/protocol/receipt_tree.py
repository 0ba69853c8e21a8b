"""The receipts that a commit rests on, as one hash: a Merkle tree with a leaf for each site.

A site's leaf is the hash of all receipts for what it sent, which it is shown anyway; with a path of
log2(N) hashes it checks that they are those that the commit names, without seeing the others'.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from fedcommons.federate.protocol.receipts import Receipt, receipt_content


def leaf_of(epoch: bytes, receipts: Iterable[Receipt]) -> bytes:
    """The hash of the receipts for what one site sent."""
    whole = hashlib.sha256(b"\0")
    for receipt in sorted(receipts, key=lambda one: one.recipient):
        content = receipt_content(epoch, receipt.sender, receipt.recipient, receipt.examples)
        whole.update(hashlib.sha256(content + receipt.signature).digest())
    return whole.digest()


def leaves_of(epoch: bytes, roster: Sequence[str], receipts: Iterable[Receipt]) -> list[bytes]:
    """The leaf of each site of a roster, by identity."""
    by_sender: dict[str, list[Receipt]] = {identity: [] for identity in roster}
    for receipt in receipts:
        by_sender[receipt.sender].append(receipt)
    return [leaf_of(epoch, by_sender[identity]) for identity in roster]


def root_of(leaves: Sequence[bytes]) -> bytes:
    level = list(leaves)
    while len(level) > 1:
        level = _above(level)
    return level[0]


def path_of(leaves: Sequence[bytes], place: int) -> list[bytes]:
    """What leads from the leaf at a place to the root: the neighbours on the way."""
    path, level = [], list(leaves)
    while len(level) > 1:
        if (place ^ 1) < len(level):
            path.append(level[place ^ 1])
        level, place = _above(level), place // 2
    return path


def leads_to(root: bytes, leaf: bytes, place: int, n: int, path: Sequence[bytes]) -> bool:
    """Whether a path leads from the leaf at a place, of n leaves, to the root."""
    left = list(path)
    while n > 1:
        if (place ^ 1) < n:
            if not left:
                return False
            other = left.pop(0)
            leaf = _pair(other, leaf) if place % 2 else _pair(leaf, other)
        place, n = place // 2, -(-n // 2)
    return not left and leaf == root


def _above(level: Sequence[bytes]) -> list[bytes]:
    """The next level; the last of an odd number goes up as it is."""
    pairs = [_pair(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
    return pairs + list(level[len(level) - len(level) % 2 :])


def _pair(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
