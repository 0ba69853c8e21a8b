"""A sign for what became of a site in a round, on terminals and pages."""

from __future__ import annotations

from fedcommons.federate.server.open_question import OWES
from fedcommons.federate.server.round_notes import AWAY, NOT_ASKED, SiteNote

MARKS = {  # what became of a site in a round: a sign, and whether that is good
    "answered": ("●", "good"),
    "late": ("↩", "good"),
    "lost": ("↩", "bad"),
    "owes": ("…", "open"),
    "not asked": ("·", "open"),
    "away": ("×", "bad"),
    "missing": ("○", "bad"),
}


def mark(note: SiteNote) -> tuple[str, str, str]:
    """The sign of a site in a round, whether that is good, and by how much an answer was late."""
    kind = "answered" if note.answered else "missing"
    by = ""
    if note.asked_in is not None and not note.answered:
        kind = "late" if note.late_counts else "lost"
        by = "" if note.late_by is None else f"+{note.late_by:.1f}"
    elif note.outcome == OWES:
        kind = "owes"
    elif not note.asked or note.outcome == NOT_ASKED:
        kind = "not asked"
    elif note.outcome == AWAY:
        kind = "away"
    return (*MARKS[kind], by)
