"""Receipts: a recipient's signed statement of what it received."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fedcommons.federate.protocol.draw import Draw
from fedcommons.federate.protocol.keys import is_signed
from fedcommons.federate.protocol.records import Epoch, encode


@dataclass(frozen=True, slots=True)
class Receipt:
    """A recipient's signed statement that it has all that the draw gives it from one sender."""

    sender: str
    recipient: str
    examples: int
    signature: bytes

    def is_signed(self, epoch: Epoch) -> bool:
        """Whether the recipient signed it, for exactly what the epoch's draw gives it."""
        place = {site.identity: i for i, site in enumerate(epoch.sites)}
        return (
            self.sender in place
            and self.recipient in place
            and self.examples == n_assigned(epoch.draw, place[self.sender], place[self.recipient])
            and self.is_signed_under(epoch.digest)
        )

    def is_signed_under(self, epoch: bytes) -> bool:
        """Whether the recipient signed it for the epoch with this digest, whatever the number."""
        try:
            content = receipt_content(epoch, self.sender, self.recipient, self.examples)
            return is_signed(bytes.fromhex(self.recipient), "receipt", content, self.signature)
        except (ValueError, TypeError):
            return False


def receipt_content(epoch: bytes, sender: str, recipient: str, examples: int) -> bytes:
    return encode(
        {"epoch": epoch.hex(), "sender": sender, "recipient": recipient, "examples": examples}
    )


@lru_cache(maxsize=1024)
def n_assigned(draw: Draw, sender: int, recipient: int) -> int:
    return draw.n_assigned(sender, recipient)
