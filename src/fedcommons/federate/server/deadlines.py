"""How long a round waits for answers."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedcommons import checks
from fedcommons.federate.server.link import Node

SHORTEST_DEADLINE, LONGEST_DEADLINE = 5.0, 600.0
FIRST_DEADLINE = 120.0  # of an adaptive one, before anything is known
LATE_FACTOR = 1.5  # a missed deadline counts as an answer that took so much longer
MOST_LATE = 3  # deadlines in a row that a site may miss before nobody waits longer for its sake


class Deadline:
    """A round's limit in seconds: always the same, or adapted to how long answers took.

    An adaptive one is one and a half times what nine of ten answers took in past rounds, and two
    seconds more. Either is `at_most` so many seconds.
    """

    def __init__(
        self, deadline: float | Literal["adaptive"], *, at_most: float | None = None
    ) -> None:
        if deadline != "adaptive":
            checks.positive("deadline", deadline)
        self.deadline, self.at_most = deadline, at_most
        self._answer_seconds: list[tuple[Node, float]] = []
        self._late: dict[Node, int] = {}  # how many deadlines in a row a node missed

    def of_evaluation(self) -> Deadline:
        """The limit of evaluations beside these rounds: adaptive, and not above a fixed one.

        Sites that are slow to evaluate hold up nobody for long.
        """
        fixed = [self.deadline] if self.deadline != "adaptive" else []
        limits = [float(limit) for limit in (*fixed, self.at_most) if limit is not None]
        return Deadline("adaptive", at_most=min(limits, default=None))

    @property
    def seconds(self) -> float:
        """The limit of the next round."""
        return self._seconds if self.at_most is None else min(self._seconds, self.at_most)

    @property
    def _seconds(self) -> float:
        if self.deadline != "adaptive":
            return float(self.deadline)
        if not self._answer_seconds:
            return FIRST_DEADLINE
        waited_for = [
            seconds
            for node, seconds in self._answer_seconds[-100:]
            if self._late.get(node, 0) <= MOST_LATE
        ]
        if not waited_for:
            return LONGEST_DEADLINE
        usual = float(np.quantile(waited_for, 0.9))
        return min(max(1.5 * usual + 2, SHORTEST_DEADLINE), LONGEST_DEADLINE)

    def note_answer(self, node: Node, seconds: float) -> None:
        self._late[node] = 0
        self._answer_seconds.append((node, seconds))

    def note_late(self, node: Node, seconds: float) -> None:
        """A node missed a deadline of so many seconds."""
        self._late[node] = self._late.get(node, 0) + 1
        self._answer_seconds.append((node, LATE_FACTOR * seconds))
