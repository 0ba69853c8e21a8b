"""A question that a site has not answered yet, as the checkpoint has it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

OWES = "owes an answer"


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that a site has not answered yet.

    Attributes:
        number: of the question, at that site.
        round: in which it was asked.
        commit: the order of the commit under which it was asked.
        asked_at: when, in seconds since 1970; that round waited `deadline` seconds.
    """

    number: int
    round: int
    commit: tuple[int, int]
    asked_at: float
    deadline: float

    @classmethod
    def asked_now(
        cls, number: int, in_round: int, commit: tuple[int, int], deadline: float
    ) -> OpenQuestion:
        return cls(number, in_round, commit, time.time(), deadline)

    @property
    def age(self) -> float:
        """How many seconds ago it was asked."""
        return max(time.time() - self.asked_at, 0.0)

    def to_json(self) -> list[Any]:
        return [self.number, self.round, list(self.commit), self.asked_at, self.deadline]

    @classmethod
    def from_json(cls, content: Any) -> OpenQuestion:
        number, in_round, (epoch, serial), asked_at, deadline = content
        commit = (int(epoch), int(serial))
        return cls(int(number), int(in_round), commit, float(asked_at), float(deadline))
