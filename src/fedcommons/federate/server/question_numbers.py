"""The numbers of the server's questions: each is used once, whatever dies.

A site answers no question whose number is not above that of the last one it answered. The server
reserves numbers on its disk a block at a time, and begins behind the block when it is started
again. A server that lost its disk begins again at 1: each site says in its offer which number it
answered last, and is asked with higher ones, so no site's claim matters to another.
"""

from __future__ import annotations

import json
from pathlib import Path

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.json_file import read_json

BLOCK = 1000


class QuestionNumbers:
    """Numbers that increase; those below what is in the file may have been used."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "questions.json"
        try:
            self._next = self._reserved = int(read_json(self._path, FederationError))
        except FileNotFoundError:
            self._next = self._reserved = 1
        except (ValueError, TypeError, OverflowError) as error:
            raise FederationError(f"{self._path} is damaged: {error}") from None
        self._last: dict[str, int] = {}  # by identity: what a site answered, or was asked

    def fresh(self) -> int:
        """A number that no question had."""
        if self._next == self._reserved:
            self._reserved += BLOCK
            content = json.dumps(self._reserved).encode()
            durable.write_file(self._path, content, "server.questions")
        self._next += 1
        return self._next - 1

    def note_answered(self, identity: str, number: int) -> None:
        """A site says that this was the number of the last question it answered."""
        self._last[identity] = max(number, self._last.get(identity, 0))

    def of(self, identity: str, fresh: int) -> int:
        """The number of a question to this site: a fresh one, or more if it has heard higher."""
        self._last[identity] = max(fresh, self._last.get(identity, 0) + 1)
        return self._last[identity]
