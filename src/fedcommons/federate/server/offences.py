"""What a site may not go on doing in a run: noticed here, and answered with a quarantine."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.quarantine import Offence
from fedcommons.federate.server.round_answers import RoundAnswers

MOST_BAD_ANSWERS = 3  # in a row
MOST_WITHDRAWALS = 3  # commits that one site may cause in
WINDOW = 10  # rounds


class Offences:
    """Counts what sites did in this run; by identity."""

    def __init__(self) -> None:
        self._bad: dict[str, int] = defaultdict(int)  # answers in a row that could not count
        self._withdrew: dict[str, list[int]] = defaultdict(list)  # in which rounds

    def forget(self, identity: str) -> None:
        """What a site did so far is settled: the operator lets it take part again."""
        self._bad.pop(identity, None)
        self._withdrew.pop(identity, None)

    def hear(self, commit: Commit, found: RoundAnswers, round_number: int) -> dict[int, Offence]:
        """Note what came of asking once; who is to be quarantined for it, by place.

        Bad answers are held against a site only where most sites gave good ones: if most cannot
        answer, it is not the sites.
        """
        offenders = dict(found.offenders)
        n_good, n_bad = int(found.answered.sum()), len(found.bad)
        for place in np.flatnonzero(found.answered).tolist():
            self._bad[commit.members[place].identity] = 0
        for place, why in found.bad.items():
            identity = commit.members[place].identity
            self._bad[identity] += n_good > n_bad
            if self._bad[identity] >= MOST_BAD_ANSWERS:
                offenders.setdefault(
                    place, Offence(f"its answers could not count {MOST_BAD_ANSWERS} times: {why}")
                )
                self._bad[identity] = 0
        for place in found.taken_back:
            rounds = self._withdrew[commit.members[place].identity]
            rounds.append(round_number)
            rounds[:] = [one for one in rounds if one > round_number - WINDOW]
            if len(rounds) > MOST_WITHDRAWALS and place not in commit.set_aside:
                offenders[place] = Offence(
                    f"it withdrew examples {len(rounds)} times in {WINDOW} rounds; none of its "
                    "examples is trained on until this is lifted",
                    set_aside=True,
                )
        return offenders
