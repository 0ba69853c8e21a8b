"""What is noted of each site in a round, from what came of asking."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.choice import Choice
from fedcommons.federate.server.round_answers import LateAnswer, RoundAnswers
from fedcommons.federate.server.round_notes import SiteNote


def of_sites(
    commit: Commit,
    found: RoundAnswers,
    choice: Choice,
    straggler_prob: FloatArray,
    changes: FloatArray,
) -> tuple[SiteNote, ...]:
    """What became of each site that is with the commit."""
    notes = []
    for i in np.flatnonzero(commit.present).tolist():
        note = SiteNote(
            commit.members[i].site,
            bool(found.answered[i]),
            found.outcomes[i],
            float(straggler_prob[i]),
            found.clipped.get(i, 1.0),
            bool(choice.asked[i]),
            float(choice.probs[i]),
            float(changes[i]) if np.isfinite(changes[i]) else None,
            _rounded(found.seconds.get(i)),
        )
        notes.append(with_late(note, found.late[i]) if i in found.late else note)
    return tuple(notes)


def with_late(note: SiteNote, late: LateAnswer) -> SiteNote:
    """The note of a site whose answer to an earlier question came, too."""
    return replace(
        note,
        seconds=_rounded(late.seconds),
        asked_in=late.round,
        late_by=_rounded(max(late.seconds - late.deadline, 0.0)),
        late_counts=late.row is not None,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
