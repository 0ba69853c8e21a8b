"""How long a round waits for answers: a fixed time, or the one that gives most for its time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcommons import checks, deadlines

SHORTEST_DEADLINE, LONGEST_DEADLINE = 5.0, 600.0
FIRST_DEADLINE = 120.0  # of an adaptive one, before anything is known
USUALLY = 0.8  # a quantile
SLACK, ALLOWANCE = 1.5, 2.0  # an adaptive one is so many times the best, and so many seconds more

Site = Hashable


@dataclass(frozen=True, slots=True)
class Decided:
    """How long a round waits, in seconds, and in words why."""

    seconds: float
    why: str = ""


class Deadline:
    """A round's limit in seconds: always the same, or adapted to how long answers took.

    An adaptive one follows from T = argmin T / F(T), with F(T) the share of the weight that comes
    within T (`fedcommons.deadlines`). It is half as long again and two seconds more: T is what some
    answer took, and few have been seen, so that the next one may well take a little longer; and a
    round ends anyway as soon as all who were asked have answered. It is in 5 to 600; twice as long
    after each round in a row in which nobody was in time, since all have become slower. Either is
    `at_most` so many seconds.
    """

    def __init__(
        self, deadline: float | Literal["adaptive"], *, at_most: float | None = None
    ) -> None:
        if deadline != "adaptive":
            checks.positive("deadline", deadline)
        self.deadline, self.at_most = deadline, at_most
        self._took: dict[Site, list[float]] = {}
        self._links: dict[Site, list[float]] = {}
        self._empty = 0  # rounds in a row in which nobody was in time

    def of_evaluation(self) -> Deadline:
        """The limit of evaluations beside these rounds: adaptive, and not above a fixed one.

        Sites that are slow to evaluate hold up nobody for long.
        """
        fixed = [self.deadline] if self.deadline != "adaptive" else []
        limits = [float(limit) for limit in (*fixed, self.at_most) if limit is not None]
        return Deadline("adaptive", at_most=min(limits, default=None))

    @property
    def seconds(self) -> float:
        """The limit if all sites count alike and nobody owes anything."""
        return self.decided({}, {}).seconds

    def decided(self, weights: Mapping[Site, float], waited: Mapping[Site, float]) -> Decided:
        """The limit of the next round.

        Args:
            weights: what each site counts; 1 for those that are not named.
            waited: for how long a site has been at work on what it owes.
        """
        if self.deadline != "adaptive":
            found = Decided(float(self.deadline))
        elif not self._took:
            found = Decided(FIRST_DEADLINE, "nothing is known yet of how long answers take")
        else:
            found = self._adapted(weights, waited)
        if self.at_most is not None and found.seconds > self.at_most:
            return Decided(self.at_most, "no round may take longer")
        return found

    def _adapted(self, weights: Mapping[Site, float], waited: Mapping[Site, float]) -> Decided:
        sites = [*self._took, *(site for site in waited if site not in self._took)]
        seconds = np.full((len(sites), deadlines.LAST), np.nan)
        for row, site in zip(seconds, sites, strict=True):
            took = self._took.get(site, [])
            row[: len(took)] = took
        weight = np.array([weights.get(site, 1.0) for site in sites])
        if not weight.sum() > 0:
            weight = np.ones(len(sites))
        at_work = np.array([waited.get(site, np.nan) for site in sites])
        best = deadlines.adaptive(seconds, weight, at_work)
        if not np.isfinite(best.seconds):
            return Decided(LONGEST_DEADLINE, "no answer has come in time")
        usual = max(SLACK * best.seconds + ALLOWANCE, SHORTEST_DEADLINE)
        limit = min(usual * 2.0**self._empty, LONGEST_DEADLINE)
        slow = [str(site) for site, on_time in zip(sites, best.on_time, strict=True) if not on_time]
        why = f"{best.share:.0%} of the weight comes in {best.seconds:.1f} s, the best for its time"
        if self._empty:
            why += f"; longer, since nobody was in time {self._empty} times in a row"
        elif limit in (SHORTEST_DEADLINE, LONGEST_DEADLINE):
            why += f"; at least {SHORTEST_DEADLINE:g} s, at most {LONGEST_DEADLINE:g}"
        else:
            why += f", and {limit - best.seconds:.1f} s to spare"
        return Decided(limit, why + (f"; slower: {', '.join(slow)}" if slow else ""))

    def note_answer(self, site: Site, seconds: float, worked: object = None) -> None:
        """An answer took so long, in time or late; so much of it was work, as the site says."""
        self._note(self._took, site, seconds)
        if isinstance(worked, int | float) and 0 <= worked <= seconds:
            self._note(self._links, site, seconds - worked)

    @staticmethod
    def _note(known: dict[Site, list[float]], site: Site, seconds: float) -> None:
        last = known.setdefault(site, [])
        last.append(seconds)
        del last[: -deadlines.LAST]

    def link(self, site: Site) -> float | None:
        """How long the ways there and back take at most, but for a fifth of them; None: unknown."""
        last = self._links.get(site)
        return None if not last else float(np.quantile(last, USUALLY))

    def note_given_up(self, site: Site) -> None:
        """An answer has not come, and would not count any more."""
        self.note_answer(site, np.inf)

    def note_round(self, in_time: int) -> None:
        """So many of those that were asked were in time."""
        self._empty = 0 if in_time else self._empty + 1
