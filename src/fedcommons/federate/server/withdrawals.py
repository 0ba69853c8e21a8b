"""What leaves a federation: examples that owners withdraw, and sites that leave for good."""

from __future__ import annotations

import numpy as np

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.withdrawals import Withdrawn


def withdraw(commit: Commit, place: int, taken_back: Withdrawn) -> Commit:
    """The next commit, without what the site at `place` took back; the same if that is nothing."""
    gone = tuple(sorted({*commit.withdrawn[place], *taken_back.numbers}))
    n_private = max(taken_back.n_private, commit.withdrawn_private[place])
    if (gone, n_private) == (commit.withdrawn[place], commit.withdrawn_private[place]):
        return commit
    withdrawn, private = list(commit.withdrawn), list(commit.withdrawn_private)
    withdrawn[place], private[place] = gone, n_private
    return commit.anew(withdrawn=tuple(withdrawn), withdrawn_private=tuple(private))


def holders_of_what_left(before: Commit, after: Commit) -> set[int]:
    """The sites, by place, that held examples of one commit that a later one does not have.

    What is remembered of their answers contains those examples. A holder whose shares merely
    changed is not among them: what is remembered of it is still close to what it will answer.
    """
    found: set[int] = set()
    for place in range(len(before.members)):
        recipients = {r for s, r in before.pairs if s == place}
        if before.present[place] and not after.present[place]:
            found |= {place} | recipients
        gone = sorted(set(after.withdrawn[place]) - set(before.withdrawn[place]))
        if gone or after.withdrawn_private[place] > before.withdrawn_private[place]:
            drawn = before.draw.recipients_of(place, np.array(gone, np.int64))
            found |= {place} | (recipients & set(drawn.ravel().tolist()))
    return found
