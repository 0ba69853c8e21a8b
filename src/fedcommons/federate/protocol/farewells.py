"""What a site signs that withdrew everything, so that nobody else can say it in its name.

It is true for good: under these keys the site has no part in this federation any more.
"""

from __future__ import annotations

from fedcommons.federate.protocol.keys import Identity, is_signed
from fedcommons.federate.protocol.records import encode

PURPOSE = "farewell"


def farewell(identity: Identity, federation: str) -> bytes:
    return identity.sign(PURPOSE, _content(federation))


def is_farewell(owner: str, federation: str, signature: str) -> bool:
    """Whether a site, by its public key, took leave of a federation; both in hexadecimal."""
    key = bytes.fromhex(owner)
    return is_signed(key, PURPOSE, _content(federation), bytes.fromhex(signature))


def _content(federation: str) -> bytes:
    return encode({"federation": federation})
