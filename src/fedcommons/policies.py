"""Whom the server waits for, how long, and what becomes of an answer that comes late."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.errors import ArgumentError

WAITS = ("all", "fastest", "deadline")
LATE = ("discard", "remember")
FASTEST = re.compile(r"fastest:([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Policy:
    """When a tick ends.

    Attributes:
        wait: "all": when everybody who was asked has answered. "fastest": when so many answers have
            come, also to earlier questions. "deadline": after so many seconds, or when everybody
            has answered who is asked in this tick; if nobody can be, when an owed answer comes.
        fastest: how many answers, for "fastest".
        deadline: seconds, for "deadline"; None for one that is chosen anew for each tick from what
            was seen (`deadlines`).
        late: "discard": what has not come when the tick ends is given up, and all are asked anew.
            "remember": whoever has not answered goes on, owes the answer and is not asked before it
            came; it comes in the tick during which it is done.
    """

    wait: str = "all"
    fastest: int = 0
    deadline: float | None = None
    late: str = "discard"

    def __post_init__(self) -> None:
        if self.wait not in WAITS:
            raise ArgumentError(f"wait must be one of {', '.join(WAITS)}, got {self.wait!r}")
        if self.late not in LATE:
            raise ArgumentError(f"late must be one of {', '.join(LATE)}, got {self.late!r}")
        if self.wait == "fastest":
            checks.integer("fastest", self.fastest, low=1)
        elif self.fastest:
            raise ArgumentError(f"fastest must go with wait = 'fastest', got {self.fastest}")
        if self.deadline is not None:
            if self.wait != "deadline":
                raise ArgumentError(f"deadline must go with wait = 'deadline', got {self.deadline}")
            checks.positive("deadline", self.deadline)

    @property
    def adaptive(self) -> bool:
        return self.wait == "deadline" and self.deadline is None

    def ends(self, begin: float, new: FloatArray, owed: FloatArray, deadline: float) -> float:
        """When the tick ends.

        Args:
            begin: when it began.
            new: when the answers of those who are asked would come, in any order.
            owed: when those would come that are owed from earlier ticks.
            deadline: the seconds of this tick, for "deadline".
        """
        if self.wait == "fastest":
            coming = np.sort(np.concatenate([new, owed]))
            return float(coming[min(self.fastest, len(coming)) - 1]) if len(coming) else begin
        if self.wait == "all":
            return float(max(new.max(initial=begin), owed.max(initial=begin)))
        everybody = float(new.max() if len(new) else owed.min(initial=np.inf))
        return min(begin + deadline, everybody)


def parse(wait: str, deadline: float | None = None, late: str = "discard") -> Policy:
    """The policy that a word names: "all", "fastest:10" or "deadline"."""
    if found := FASTEST.fullmatch(wait):
        return Policy("fastest", int(found[1]), deadline, late)
    if wait in ("all", "deadline"):
        return Policy(wait, 0, deadline, late)
    raise ArgumentError(f'policy must be "all", "fastest:K" or "deadline", got {wait!r}')


__all__ = ["LATE", "Policy", "parse"]


def __dir__() -> list[str]:
    return __all__
