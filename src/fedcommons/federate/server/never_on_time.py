"""Sites that have never answered in time, and what would help them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcommons import shown
from fedcommons.federate.server.link import NO_ANSWER, TOO_LATE
from fedcommons.federate.server.open_question import OWES
from fedcommons.federate.server.round_notes import RoundNote, SiteNote

logger = shown.logger(__name__)

TIMES = 3  # that a site was asked and there, before anything is said of it
UNHEARD = {"not connected", "not asked", "quarantined", OWES}
LESS_WORK = "less work (fewer local-steps, a batch-size, work = fits)"


@dataclass(slots=True)
class NeverOnTime:
    """Says once in a run which sites have never been on time."""

    remembers_late: bool
    _said: frozenset[str] = frozenset()

    def look(self, history: Sequence[RoundNote]) -> list[str]:
        """What is new after the last of these rounds, one text for each site, or one for all."""
        last = history[-1]
        slow = [site.site for site in last.sites if self._is_slow(site.site, history)]
        fresh = [site for site in slow if site not in self._said]
        self._said |= frozenset(fresh)
        if not fresh or last.deadline is None:
            return []
        if len(slow) == len(last.sites):
            return [self._of_all(history, last.deadline)]
        return [self._of_one(site, history, last.deadline) for site in fresh]

    def warn(self, history: Sequence[RoundNote]) -> None:
        for text in self.look(history):
            logger.warning("%s", text)

    def _is_slow(self, site: str, history: Sequence[RoundNote]) -> bool:
        notes = [note for note in _of(site, history) if note.outcome not in UNHEARD]
        if len(notes) < TIMES or any(note.answered for note in notes):
            return False
        return any(note.outcome in (NO_ANSWER, TOO_LATE) for note in notes)  # it does not refuse

    def _of_one(self, site: str, history: Sequence[RoundNote], deadline: float) -> str:
        took = [note.seconds for note in _of(site, history) if note.seconds is not None]
        if not took:
            late = "" if self.remembers_late else ", or late = remember, by which it would count"
            return (
                f"{site} has never been on time, and no answer of it has come: a longer deadline "
                f"than {deadline:.1f} s or {LESS_WORK} would help{late}"
            )
        return (
            f"{site} has never been on time: its answers take {min(took):.1f} to {max(took):.1f} "
            f"s, the deadline is {deadline:.1f} s. They count when they come; a longer deadline or "
            f"{LESS_WORK} would make them newer"
        )

    def _of_all(self, history: Sequence[RoundNote], deadline: float) -> str:
        took = [one.seconds for note in history for one in note.sites if one.seconds is not None]
        known = f"the fastest answer took {min(took):.1f} s" if took else "none has come at all"
        return (
            f"nobody has ever been on time: deadline = {deadline:g} s is shorter than what a "
            f"message and its answer need here ({known}); choose a longer one, or deadline = 0, "
            "which adapts"
        )


def _of(site: str, history: Sequence[RoundNote]) -> list[SiteNote]:
    return [one for note in history for one in note.sites if one.site == site]
