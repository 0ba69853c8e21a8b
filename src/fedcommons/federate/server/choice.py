"""Whom a round asks, where not all sites are asked (`fedcommons.asking`).

The draw follows from the exchange's seed, which all sites drew together, from the round's number
and from the place in the roster: neither the server nor a site can choose it, whoever has the
commit can repeat it, and a round that is asked again, after a restart or a withdrawal, asks the
same. By norms, the probabilities are the server's: they are in the round's notes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedcommons import asking
from fedcommons.asking import Ask
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.streams import stream


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Whom a round asks.

    Attributes:
        asked: (N,) by place in the roster; whoever is not connected may be among them.
        probs: (N,) the probability that each was asked; 0 for those that could not be.
    """

    asked: BoolArray
    probs: FloatArray

    def missing_prob(self, straggler_prob: FloatArray) -> FloatArray:
        """What the estimator takes for p: (N,)."""
        return asking.missing_prob(self.probs, straggler_prob)


class Chooser:
    """Chooses whom to ask, by what is known of each site from the rounds before."""

    def __init__(self, ask: Ask | None) -> None:
        self.ask = ask
        self._changes: dict[str, float] = {}  # by site, when it last answered

    @property
    def measures(self) -> bool:
        """Whether it goes by how much answers changed."""
        return self.ask is not None and self.ask.by == "norms"

    def learn(self, history: Iterable[RoundNote]) -> None:
        """Take note of how much answers changed in past rounds."""
        for note in history:
            self._changes |= {s.site: s.change for s in note.sites if s.change is not None}

    def choice(
        self, commit: Commit, round_number: int, can: BoolArray, straggler_prob: FloatArray
    ) -> Choice:
        """Of those that can be asked, (N,): all, or those that the round draws."""
        if self.ask is None:
            return Choice(can.copy(), can.astype(np.float64))
        names = [member.site for member in commit.members]
        norms = np.array([self._changes.get(name, np.nan) for name in names])
        probs = self.ask.probs(can, straggler_prob, norms)
        units = stream(commit.seed, "asked", round_number).random(len(names))
        return Choice(self.ask.chosen(probs, units), probs)
