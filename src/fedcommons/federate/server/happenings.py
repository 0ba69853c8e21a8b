"""What happened to the sites of a federation: who came, left, was late, withdrew, was left out.

It follows from what is kept anyway, the commits and the notes of the rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.link import CRASHED, NO_ANSWER, TOO_LATE, UNAVAILABLE
from fedcommons.federate.server.open_question import OWES
from fedcommons.federate.server.quarantine import QUARANTINED
from fedcommons.federate.server.round_notes import AWAY, NOT_ASKED, RoundNote, SiteNote

USUAL = {"answered", OWES, QUARANTINED, NOT_ASKED, NO_ANSWER, TOO_LATE, "outdated"}
GONE = {
    AWAY: "is not connected",
    UNAVAILABLE: "was cut off",
    CRASHED: "has lost its app, which was killed or crashed",
}


@dataclass(frozen=True, slots=True)
class Happening:
    """What happened to a site, and in which round; None before the first, or after the last."""

    round: int | None
    site: str
    what: str


def happenings(commits: Sequence[Commit], notes: Sequence[RoundNote]) -> list[Happening]:
    """All that happened, in order, of commits in theirs and of rounds in theirs."""
    found = [*_of_commits(commits, notes), *_of_rounds(notes)]
    return sorted(found, key=lambda one: -1 if one.round is None else one.round)


def _of_commits(commits: Sequence[Commit], notes: Sequence[RoundNote]) -> Iterator[Happening]:
    for before, after in itertools.pairwise(commits):
        rounds = [note.round for note in notes if note.commit and note.commit >= after.order]
        when = rounds[0] if rounds else (notes[-1].round if notes else None)
        for site, what in changes(before, after):
            yield Happening(when, site, what)


def changes(before: Commit, after: Commit) -> Iterator[tuple[str, str]]:
    """(site, what happened to it) from one commit to the next."""
    old = {member.identity: place for place, member in enumerate(before.members)}
    for place, member in enumerate(after.members):
        was = old.get(member.identity)
        if was is None:
            yield member.site, f"joined with {member.n_examples} examples"
            continue
        if before.present[was] and not after.present[place]:
            how = "withdrew everything and left" if after.signature(place) else "left for good"
            yield member.site, how
            continue
        if before.number == after.number:
            n = len(after.withdrawn[place]) + after.withdrawn_private[place]
            n -= len(before.withdrawn[was]) + before.withdrawn_private[was]
            if n:
                yield member.site, f"withdrew {n} example{'' if n == 1 else 's'}"
        if place in after.quarantined and was not in before.quarantined:
            yield member.site, "is quarantined"
        elif was in before.quarantined and place not in after.quarantined:
            yield member.site, "takes part again"
    now = {member.identity for member in after.members}
    for member in before.members:
        if member.identity not in now:
            yield member.site, "is not in the new exchange"


def _of_rounds(notes: Sequence[RoundNote]) -> Iterator[Happening]:
    away: set[str] = set()
    outcomes: dict[str, str] = {}
    for note in notes:
        for site in note.sites:
            for what in _of_site(site, outcomes.get(site.site), is_away=site.site in away):
                yield Happening(note.round, site.site, what)
            outcomes[site.site] = site.outcome
            if _is_heard(site):
                away.discard(site.site)
            elif site.outcome in GONE:
                away.add(site.site)


def _is_heard(site: SiteNote) -> bool:
    return site.answered or site.asked_in is not None


def _of_site(site: SiteNote, last: str | None, *, is_away: bool) -> Iterator[str]:
    is_heard = _is_heard(site)
    if is_away and is_heard:
        yield "is back"
    elif not is_away and not is_heard and site.outcome in GONE:
        yield GONE[site.outcome]
    if site.asked_in is not None:
        by = "" if site.late_by is None else f" {site.late_by:.1f} s late"
        counts = "counts" if site.late_counts else "does not count"
        yield f"answered the question of round {site.asked_in}{by}, which {counts}"
    if site.outcome not in {*USUAL, *GONE, last}:
        yield f"gave an answer that does not count: {site.outcome}"
