"""What sites signed about the commit that they are under, passed on to each other.

Each training message carries a few of these statements, other ones each time.
"""

from __future__ import annotations

from typing import Any

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.statements import is_under

AT_ONCE = 4  # statements in a message


class Witnesses:
    """The statements of the members about the newest commit."""

    def __init__(self) -> None:
        self._digest = b""
        self._signed: dict[str, bytes] = {}  # by identity

    def note(self, commit: Commit, identity: str, signature: object) -> None:
        """Keep what a member said with its answer, if it signed just that."""
        if commit.digest != self._digest:
            self._digest, self._signed = commit.digest, {}
        if identity not in self._signed and is_under(identity, commit, signature):
            self._signed[identity] = bytes(signature)  # type: ignore[call-overload]

    def for_(self, commit: Commit, identity: str, turn: int) -> dict[str, Any]:
        """What a member's next question says of the others; `turn` goes through them."""
        if commit.digest != self._digest:
            return {}
        others = sorted(set(self._signed) - {identity})
        some = (
            [others[(AT_ONCE * turn + k) % len(others)] for k in range(AT_ONCE)] if others else []
        )
        some = list(dict.fromkeys(some))
        return {"others": some, "other-statements": [self._signed[who] for who in some]}
