"""Answers to questions of earlier rounds: which of those that come may count.

One that was given under an older commit counts, too, unless its site held what has left since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedcommons import shown
from fedcommons.federate.protocol.absences import Anchors, anchors_of
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import AnswerRefused
from fedcommons.federate.server import site_metrics, withdrawals
from fedcommons.federate.server.advice import advice
from fedcommons.federate.server.answer_files import Row
from fedcommons.federate.server.answer_parts import n_chunks, parts_of
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.link import Link, Node, Reply
from fedcommons.federate.server.open_question import OpenQuestion
from fedcommons.federate.server.owed import LOST, Owed
from fedcommons.federate.server.round_answers import LateAnswer, RoundAnswers
from fedcommons.federate.server.site_metrics import Numbers
from fedcommons.federate.server.training_folder import TrainingFolder

logger = shown.logger(__name__)

OUTDATED = "outdated"
WITHDREW = "withdrew examples"
LEFT = "withdrew everything"
OTHER_QUESTION = "answers another question"  # a SuperNode may hold replies back


@dataclass(frozen=True, slots=True)
class _Came:
    """A reply to an open question: where its answer lies, or why there is none."""

    question: OpenQuestion
    seconds: float
    row: Row | None = None
    norm: float = 0.0
    chunks: int = 1
    anchors: Anchors | None = None
    why: str = ""
    fields: Mapping[str, Any] | None = None  # of one that reports withdrawals, or takes leave
    measured: tuple[Numbers, list[str]] = ({}, [])  # and what of it is left out


class LateAnswers:
    """What sites owe, and what came of it in this round and is not used yet."""

    def __init__(
        self,
        federation: ServerFederation,
        link: Link,
        folder: TrainingFolder,
        open_questions: dict[str, OpenQuestion],
        deadline: Deadline,
        *,
        needs_anchors: bool = False,
    ) -> None:
        self._deadline, self.needs_anchors = deadline, needs_anchors
        self.federation, self.folder = federation, folder
        self.owed = Owed(federation.meeting, link, open_questions)
        self._came: dict[str, _Came] = {}  # by identity

    @property
    def rows(self) -> list[Row]:
        """The answers that are not used yet."""
        return [came.row for came in self._came.values() if came.row is not None]

    def look(self, connected: Collection[Node]) -> bool:
        """Take what came since from these nodes; whether anything did in this round."""
        for identity, question, reply in self.owed.replies(connected):
            came = self._came[identity] = self._taken(question, reply)
            place = self.federation.commit.index(identity)
            if came.row is not None and place is not None:
                site = self.federation.commit.members[place].site
                self._deadline.note_answer(site, came.seconds, reply.fields.get("worked"))
        return bool(self._came)

    def _taken(self, question: OpenQuestion, reply: Reply) -> _Came:
        seconds, fields = question.age, reply.fields
        if reply.failure is not None:
            return _Came(question, seconds, why=reply.failure)
        try:
            if "withdrew" in fields:
                return _Came(question, seconds, why=LEFT, fields=fields)
            if fields.get("kept") is False:
                return _Came(question, seconds, why=LOST)
            if "withdrawn" in fields:
                return _Came(question, seconds, why=WITHDREW, fields=fields)
            asked_under = self.federation.state.commit_of(question.commit)
            if asked_under is None or fields.get("digest") != asked_under.digest:
                raise AnswerRefused("wrong commit")
            if fields.get("round") != question.round:
                raise AnswerRefused("wrong round")
            if fields.get("question") != question.number:
                raise AnswerRefused(OTHER_QUESTION)
            parts, norm = parts_of(reply, self.folder)
            chunks, measured = n_chunks(fields), site_metrics.of_answer(reply.metrics, fields)
            anchors = anchors_of(fields) if self.needs_anchors else None
        except AnswerRefused as refusal:
            return _Came(question, seconds, why=str(refusal))
        except Exception:  # whatever a site sends, the round goes on
            return _Came(question, seconds, why="malformed")
        row = self.folder.answers.put(parts)
        return _Came(question, seconds, row, norm, chunks, anchors, measured=measured)

    def gather(self, found: RoundAnswers, commit: Commit) -> None:
        """Have `found` say what came late, under the present commit; it is not used up yet.

        Whose part holders were asked to correct is not heard: it would count twice.
        """
        for identity, came in self._came.items():
            place = commit.index(identity)
            if place is None or place in found.absent:
                continue
            why, row = came.why, came.row
            if row is not None and not self._still_counts(identity, place, came, commit):
                why, row = OUTDATED, None
            if why == LEFT:
                with contextlib.suppress(Exception):  # whatever a site sends, the round goes on
                    self.federation.meeting.take_leave(came.fields or {})
                    found.left[place] = self.federation.meeting.farewells[identity]
            elif why == WITHDREW and came.fields is not None:
                why = self._withdrawn(found, commit, place, came)
            if why:
                site = commit.members[place].site
                logger.warning(
                    "%s, asked in round %d: %s%s", site, came.question.round, why, advice(why)
                )
            question = came.question
            found.late[place] = LateAnswer(
                question.round, came.seconds, question.deadline, row, why
            )
            if row is not None:
                found.chunks[place] = came.chunks
                if came.anchors is not None:
                    found.anchors.setdefault(place, came.anchors)
                if came.norm:
                    found.norms[place] = came.norm
                found.measured(place, *came.measured)

    def _still_counts(self, identity: str, place: int, came: _Came, commit: Commit) -> bool:
        if not commit.active[place]:
            return False
        if came.question.commit == commit.order:
            return True
        before = self.federation.state.commit_of(came.question.commit)
        gone = withdrawals.forgotten(before, commit)
        return gone is not None and identity not in gone

    @staticmethod
    def _withdrawn(found: RoundAnswers, commit: Commit, place: int, came: _Came) -> str:
        """Note what a late reply says was withdrawn; said of another exchange it is heard later."""
        question, fields = came.question, came.fields or {}
        if question.commit[0] != commit.number:
            return OUTDATED
        try:
            taken_back = withdrawals.reported(fields, commit, place)
        except Exception:  # whatever a site sends, the round goes on
            return "malformed"
        if taken_back is not None:
            found.taken_back[place] = taken_back
        return WITHDREW

    def note_bounded(self, found: RoundAnswers, commit: Commit) -> None:
        """Answers that were clipped, or refused, are so from now on."""
        for place, late in found.late.items():
            identity = commit.members[place].identity
            came = self._came[identity]
            if came.row is not None and late.why != OUTDATED:
                self._came[identity] = replace(came, row=late.row, norm=0.0, why=late.why)

    def use_up(self, found: RoundAnswers, commit: Commit) -> None:
        """What `found` says came late is used."""
        for place in found.late:
            self._came.pop(commit.members[place].identity, None)
