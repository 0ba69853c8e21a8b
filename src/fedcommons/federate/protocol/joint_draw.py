"""The seed of an exchange: drawn by all its sites together, so that nobody can choose it.

Every site promises a random value by its hash, in its signed offer. When the roster, its number and
d are fixed, all reveal their values; the seed is the hash of all of them. A site that promised
cannot change its value, and whoever reveals last has chosen it before it saw any other. One value
that nobody could guess makes the seed one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

VALUE = 32  # bytes


def promise(identity: str, value: bytes) -> str:
    """The hash by which a site, by its public key, promises a value; in hexadecimal."""
    return hashlib.sha256(b"fedcommons/1/promise\0" + bytes.fromhex(identity) + value).hexdigest()


def seed_of(federation: str, number: int, copies: int, values: Iterable[tuple[str, bytes]]) -> int:
    """The seed of what the sites, by name in the order of the roster, have revealed."""
    whole = hashlib.sha256(f"fedcommons/1/seed {federation} {number} {copies}".encode())
    for site, value in values:
        whole.update(b"\0" + site.encode() + b"\0" + value)
    return int.from_bytes(whole.digest()[:8], "big") >> 2


def repeatable_value(seed: int, site: str) -> bytes:
    """What a site of a simulation reveals: the same in every run with this seed."""
    return hashlib.sha256(f"fedcommons/1/simulated {seed} {site}".encode()).digest()
