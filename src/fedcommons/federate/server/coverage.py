"""Do the sites agree on who holds what? Their sums of 1/d_j must add up to M.

Where they do not, the server works out from the commit what each should have said.
"""

from __future__ import annotations

import math

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.holders import held_by_each
from fedcommons.federate.server.quarantine import Offence


class Coverage:
    """What each site reports as the sum of 1/d_j over the examples that it holds, under a commit.

    It is also how the server knows which sites have applied the commit.
    """

    def __init__(self) -> None:
        self._digest = b""
        self._reported: dict[int, float] = {}  # by place in the roster

    def __contains__(self, place: int) -> bool:
        return place in self._reported

    def begin(self, commit: Commit) -> None:
        """Forget what was reported under another commit."""
        if self._digest != commit.digest:
            self._digest, self._reported = commit.digest, {}

    def note(self, place: int, coverage: float) -> None:
        self._reported[place] = coverage

    def offenders(self, commit: Commit) -> dict[int, Offence]:
        """Who reported something else than the commit gives it, once all have reported.

        It is an error if those are not the few: then it is not the sites that are wrong.
        """
        asked = [place for place, here in enumerate(commit.active) if here]
        if any(place not in self._reported for place in asked):
            return {}
        total = sum(self._reported[place] for place in asked)
        if _same(total, commit.n_examples):
            return {}
        expected, _ = held_by_each(commit.record)
        wrong = [place for place in asked if not _same(self._reported[place], expected[place])]
        if not wrong or 2 * len(wrong) >= len(asked):
            by_site = {commit.members[i].site: round(self._reported[i], 3) for i in asked}
            raise FederationError(
                f"the sites' shares must add up to the {commit.n_examples} examples, "
                f"got {total:.6f}: they do not agree on who holds what: {by_site}"
            )
        return {
            place: Offence(
                f"it says that its shares add up to {self._reported[place]:.6g}, by the commit it "
                f"is {expected[place]:.6g}"
            )
            for place in wrong
        }


def _same(found: float, expected: float) -> bool:
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-6)
