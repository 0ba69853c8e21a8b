"""What came of asking the sites once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedcommons import shown
from fedcommons.checks import BoolArray
from fedcommons.estimators import Arrivals
from fedcommons.federate.protocol.absences import Anchors
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.server.advice import advice
from fedcommons.federate.server.answer_files import Row
from fedcommons.federate.server.deadlines import Decided
from fedcommons.federate.server.quarantine import QUARANTINED, Offence
from fedcommons.federate.server.round_notes import NOT_ASKED
from fedcommons.federate.server.site_metrics import Numbers, SiteMetrics

logger = shown.logger(__name__)


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """An answer to a question of an earlier round that came in this one.

    Attributes:
        round: in which it was asked.
        seconds: how long it took; that round waited for `deadline` of them.
        row: where it lies; None if it does not count.
        why: it does not count, in a word or two.
    """

    round: int
    seconds: float
    deadline: float
    row: Row | None
    why: str = ""


@dataclass(slots=True)
class RoundAnswers:
    """What came of asking the sites once, by place in the roster.

    Attributes:
        rows: where each answer lies; None where there is none.
        outcomes: what became of each site, in a word or two.
        metrics: what sites measured while they trained, by place.
        metrics_left_out: what of it does not count, and why.
        taken_back: what sites withdrew.
        left: the farewells of those that withdrew everything.
        bad: why replies could not count that came, though nobody withdrew anything.
        offenders: who is to be quarantined at once.
        norms: the sizes of answers.
        clipped: what answers were multiplied by that were too large.
        seconds: how long answers took.
        owing: who was not asked, since it owes an answer to an earlier question.
        late: the answers to earlier questions.
        decided: how long was waited for answers.
        chunks: how many chunks those have that answer from one of them.
        absent: whose part holders were asked to correct.
        anchors: where holders correct, the models that each answer's parts were computed at, in
            time or late.
        corrections: where what holders correct lies, of who answered in time.
        correction_norms: the sizes of these.
    """

    rows: list[Row | None]
    outcomes: list[str]
    metrics: dict[int, Numbers] = field(default_factory=dict)
    metrics_left_out: dict[int, str] = field(default_factory=dict)
    taken_back: dict[int, Withdrawn] = field(default_factory=dict)
    left: dict[int, str] = field(default_factory=dict)
    bad: dict[int, str] = field(default_factory=dict)
    offenders: dict[int, Offence] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)
    clipped: dict[int, float] = field(default_factory=dict)
    chunks: dict[int, int] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)
    anchors: dict[int, Anchors] = field(default_factory=dict)
    corrections: dict[int, Row] = field(default_factory=dict)
    correction_norms: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    owing: set[int] = field(default_factory=set)
    late: dict[int, LateAnswer] = field(default_factory=dict)
    decided: Decided | None = None

    @classmethod
    def nothing(cls, n_sites: int) -> RoundAnswers:
        """Nobody was asked."""
        return cls([None] * n_sites, [NOT_ASKED] * n_sites)

    @property
    def answered(self) -> BoolArray:
        return np.array([row is not None for row in self.rows], np.bool_)

    @property
    def all_rows(self) -> list[Row | None]:
        """Where the answer lies that came of each site, in time or late."""
        late = {place: answer.row for place, answer in self.late.items()}
        return [row or late.get(place) for place, row in enumerate(self.rows)]

    def arrivals(
        self, places: Sequence[int], in_round: int, chosen: BoolArray | None = None
    ) -> Arrivals:
        """What arrived of these sites, (n,) each, of all that were `chosen` to be asked."""
        came = [place in self.late and self.late[place].row is not None for place in places]
        late = np.array(came, np.bool_)
        free = np.array([place not in self.owing for place in places], np.bool_) & ~late
        asked_in = [self.late[place].round if place in self.late else in_round for place in places]
        age = np.where(late, in_round - np.array(asked_in, np.int64), 0)
        asked = free if chosen is None else free & chosen[list(places)]
        return Arrivals(self.answered[list(places)], asked, late, age)

    def replace_row(self, place: int, row: Row | None, why: str = "") -> None:
        """Another row for the answer that came of a site; none if it may not count."""
        if self.rows[place] is not None:
            self.rows[place] = row
        else:
            self.late[place] = replace(self.late[place], row=row, why=why)

    def measured(self, place: int, numbers: Numbers, left_out: Sequence[str]) -> None:
        """What a site measured as it trained came with its answer, in time or late."""
        if numbers:
            self.metrics[place] = numbers
        if left_out:
            self.metrics_left_out[place] = ", ".join(left_out)

    def refuse(self, place: int, site: str, why: str) -> None:
        self.outcomes[place] = why
        logger.warning("%s: %s%s", site, why, advice(why))

    def outdated(self) -> RoundAnswers:
        """The same without the answers: the commit that they were given under has been replaced."""
        outcomes = ["outdated" if what == "answered" else what for what in self.outcomes]
        for place in self.offenders:
            outcomes[place] = QUARANTINED
        return RoundAnswers(
            [None] * len(self.rows), outcomes, owing=self.owing, decided=self.decided
        )

    def site_metrics(self, names: Mapping[int, str]) -> SiteMetrics:
        """The metrics of those whose answers count, by the sites' names."""
        rows = self.all_rows
        places = [place for place in sorted(self.metrics) if rows[place] is not None]
        return SiteMetrics.of(
            {names[place]: self.metrics[place] for place in places if self.metrics[place]},
            {names[place]: why for place, why in sorted(self.metrics_left_out.items())},
        )
