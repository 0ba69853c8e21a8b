"""Do the sites agree on who holds what? Their sums of 1/d_j must add up to M."""

from __future__ import annotations

import math

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit


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

    def check(self, commit: Commit) -> None:
        """Once all sites have reported, their sums must add up to the number of examples."""
        present = [place for place, here in enumerate(commit.present) if here]
        if any(place not in self._reported for place in present):
            return
        total = sum(self._reported[place] for place in present)
        if not math.isclose(total, commit.n_examples, rel_tol=1e-9, abs_tol=1e-6):
            by_site = {commit.members[i].site: round(self._reported[i], 3) for i in present}
            raise FederationError(
                f"the sites' shares must add up to the {commit.n_examples} examples, "
                f"got {total:.6f}: they do not agree on who holds what: {by_site}"
            )
