"""What a site signs with every answer: which commit it is under. The server passes it on.

So a site that is shown a commit of its own, unlike the others', hears of nobody who is under it.
"""

from __future__ import annotations

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.keys import Identity, is_signed
from fedcommons.federate.protocol.records import encode

PURPOSE = "under"


def sign(identity: Identity, commit: Commit) -> bytes:
    return identity.sign(PURPOSE, _content(commit))


def is_under(public: str, commit: Commit, signature: object) -> bool:
    """Whether the site with this public key signed that it is under the commit."""
    if not isinstance(signature, bytes):
        return False
    return is_signed(bytes.fromhex(public), PURPOSE, _content(commit), signature)


def _content(commit: Commit) -> bytes:
    return encode(
        {
            "federation": commit.federation,
            "number": commit.number,
            "serial": commit.serial,
            "digest": commit.digest.hex(),
        }
    )
