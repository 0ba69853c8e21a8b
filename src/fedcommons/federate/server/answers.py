"""Asking the sites for answers, and which of those that come may count."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fedcommons import shown
from fedcommons.checks import BoolArray
from fedcommons.federate.protocol import scale_fields
from fedcommons.federate.protocol.absences import Anchors, anchors_of
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.holders import held_by_each
from fedcommons.federate.protocol.model_schema import NamedArrays, digest_of
from fedcommons.federate.protocol.refusals import AnswerRefused, CommitUnknown
from fedcommons.federate.server import corrections, site_metrics, withdrawals
from fedcommons.federate.server.answer_parts import Parts, correction_of, n_chunks, parts_of
from fedcommons.federate.server.asked import Asked
from fedcommons.federate.server.asking import Asking, Heard
from fedcommons.federate.server.deadlines import Deadline, Decided
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.joining import Newcomers
from fedcommons.federate.server.late_answers import LEFT, OTHER_QUESTION, WITHDREW, LateAnswers
from fedcommons.federate.server.link import NO_ANSWER, TOO_LATE, Link, Node, Reply
from fedcommons.federate.server.live_round import LiveRound
from fedcommons.federate.server.open_question import OWES, OpenQuestion
from fedcommons.federate.server.owed import LASTING
from fedcommons.federate.server.quarantine import QUARANTINED
from fedcommons.federate.server.questions import FieldsOf, Questions, nothing_else
from fedcommons.federate.server.round_answers import RoundAnswers
from fedcommons.federate.server.round_notes import AWAY, NOT_ASKED
from fedcommons.federate.server.training_folder import TrainingFolder
from fedcommons.federate.server.withdrawals import Dismissals, Unasked
from fedcommons.methods import Method
from fedcommons.scaling import Moments, Scale

logger = shown.logger(__name__)

T = TypeVar("T")

LARGEST_OWNER_SHARE = 1e6
KEEP_AFTER = 0.5  # of the deadline: a site keeps what takes longer, since ways take time, too
LEFT_OUT = "left out by the strategy"
NOT_ITS_FAULT = {WITHDREW, LEFT, OTHER_QUESTION, "unknown sender"}


class AnswerCollector:
    """Asks the sites of a federation. Whatever one reply holds, the others still count."""

    def __init__(
        self,
        federation: ServerFederation,
        link: Link,
        folder: TrainingFolder,
        method: Method,
        deadline: Deadline,
        config: Mapping[str, Any],
    ) -> None:
        self.federation, self.link, self.folder = federation, link, folder
        self.method, self.deadline = method, deadline
        self.scale: Scale | None = None  # of the inputs, if they have one
        self.work = ""  # as `Settings.work_asked`
        self._questions = Questions(federation, folder.path.name, config)
        self._dismissals = Dismissals(federation)
        self._unasked = Unasked(federation, link)
        self.newcomers = Newcomers(federation)
        self.late: LateAnswers | None = None  # if late ones are remembered
        self.live = LiveRound(folder.path)
        self.anchors: Mapping[str, Anchors] | None = None  # by identity, if holders correct
        self.evaluates: dict[str, str] = {}  # whether a site would evaluate, as it says itself

    @property
    def commit(self) -> Commit:
        return self.federation.commit

    def answers(self, asked: Asked, replies: Iterable[Heard] | None = None) -> RoundAnswers:
        """Every site's coded answer; each is put on the disk as it arrives.

        `replies` are those of `asked.asking` as somebody handed them on.
        """

        def take(found: RoundAnswers, place: int, reply: Reply) -> Parts:
            fields = self._checked(reply, place, asked.round)
            taken_back = withdrawals.reported(fields, self.commit, place)
            if taken_back is not None:
                found.taken_back[place] = taken_back
                raise AnswerRefused(WITHDREW)
            coverage = _number(fields["coverage"], low=0, high=self.commit.n_examples)
            parts, found.norms[place] = parts_of(reply, self.folder)
            if self.work:
                found.chunks[place] = n_chunks(fields)
            if self.anchors is not None:
                found.anchors[place] = anchors_of(fields)
                self._take_correction(found, place, reply)
            self._questions.coverage.note(place, coverage)
            self.federation.meeting.commits[self.commit.members[place].identity] = self.commit
            site = self.commit.members[place].site
            self.evaluates[site] = str(fields.get("evaluates", ""))
            found.measured(place, *site_metrics.of_answer(reply.metrics, fields))
            return parts

        found = self._hear(asked, replies, take)
        found.offenders |= self._questions.coverage.offenders(self.commit)
        found.taken_back |= self._unasked.withdrawn
        found.left |= self._unasked.left
        return found

    def asked(
        self,
        model: NamedArrays,
        task: str,
        fields_of: Callable[[int], Mapping[str, Any]],
        read: Callable[[Mapping[str, Any]], T],
    ) -> dict[int, T]:
        """What is read of the replies of all that are asked another task, by place.

        `fields_of` says what each is told beside; a reply that cannot be read is none.
        """
        replies: dict[int, T] = {}

        def take(_found: RoundAnswers, place: int, reply: Reply) -> None:
            fields = self._checked(reply, place, 0)
            if "withdrawn" in fields:  # it is heard again in the next round
                raise AnswerRefused(WITHDREW)
            replies[place] = read(fields)

        active = np.array(self.commit.active)
        self._hear(self.ask(model, 0, active, task=task, fields_of=fields_of), None, take)
        return replies

    def _take_correction(self, found: RoundAnswers, place: int, reply: Reply) -> None:
        correction = correction_of(reply, self.folder)
        if correction is not None and found.absent:
            parts, found.correction_norms[place] = correction
            found.corrections[place] = self.folder.answers.put(parts)

    def owner_shares(self, model: NamedArrays) -> list[float]:
        """Each owner's best w at this model; an owner that is not there splits equally."""
        present = np.array(self.commit.active)
        shares = [1 / (self.commit.copies + 1)] * len(present)

        def take(_found: RoundAnswers, place: int, reply: Reply) -> None:
            try:
                w = self._checked(reply, place, 0)["owner-share"]
                shares[place] = _number(w, low=-LARGEST_OWNER_SHARE, high=LARGEST_OWNER_SHARE)
            except Exception:  # whatever a site sends, the others' shares count
                raise AnswerRefused("no owner share") from None

        self._hear(self.ask(model, 0, present, task="owner-share"), None, take)
        return shares

    def moments(self, asked: BoolArray) -> tuple[RoundAnswers, dict[int, Moments]]:
        """What sites tell of their inputs, by place."""
        moments: dict[int, Moments] = {}

        def take(found: RoundAnswers, place: int, reply: Reply) -> None:
            fields = self._checked(reply, place, 0)
            taken_back = withdrawals.reported(fields, self.commit, place)
            if taken_back is not None:
                found.taken_back[place] = taken_back
                raise AnswerRefused(WITHDREW)
            moments[place] = scale_fields.moments_of(fields, self.commit.members[place].n_examples)

        return self._hear(self.ask({}, 0, asked, task="moments"), None, take), moments

    def ask(
        self,
        model: NamedArrays,
        round_number: int,
        asked: BoolArray,
        *,
        task: str = "answer",
        fields_of: FieldsOf = nothing_else,
        others: BoolArray | None = None,
    ) -> Asked:
        """Ask those members that are connected; nobody is waited for yet.

        `others` are asked for what they withdraw alone, as those are that are quarantined.
        """
        members, meeting = self.commit.members, self.federation.meeting
        self._questions.coverage.begin(self.commit)
        decided = self._decided()
        seconds = decided.seconds
        places = np.flatnonzero(asked).tolist()
        meeting.await_one_of([members[place].identity for place in places], self.link, seconds)
        self._dismissals.tell(self.link, seconds=seconds)
        found = RoundAnswers(
            [None] * len(members),
            ["answered" if one else NOT_ASKED for one in asked.tolist()],
            left={
                i: meeting.farewells[member.identity]
                for i, member in enumerate(members)
                if member.identity in meeting.farewells
            },
            decided=decided,
        )
        for place in self.commit.quarantined:
            found.outcomes[place] = QUARANTINED
        owed = self.late.owed if self.late and task == "answer" else None
        if owed is not None:
            owed.ask_for_kept(partial(self._questions.for_kept, round_number))
            found.owing = {place for place in places if members[place].identity in owed.open}
        place_of: dict[Node, int] = {}
        for place in places:
            node = meeting.node(members[place].identity)
            if node is None:
                found.outcomes[place] = AWAY
            elif place in found.owing:
                found.outcomes[place] = OWES
            else:
                place_of[node] = place
        common: dict[str, Any] = {
            "given-up": self.federation.state.given_up,
            "round": round_number,
            "task": task,
            "local-steps": self.method.local_steps,
            "batch-size": self.method.batch_size or 0,
            **scale_fields.of_scale(self.scale),
        }
        if self.work and task == "answer":
            common |= {"work": self.work, "seconds": seconds, "training": self._questions.training}
            if self.anchors is not None:
                asked_now = sorted(place_of.values())
                about = (self.commit, asked_now, self.anchors, round_number)
                absences = corrections.absences(*about)
                found.absent = set(absences.anchors)
                fields_of = corrections.told(self.commit, absences)
            fields_of = partial(self._beside, fields_of)
        if owed is not None:
            common |= {"training": self._questions.training, "keep-after": KEEP_AFTER * seconds}
        number = self._questions.fresh_number()
        self._unasked.listen(
            partial(self._questions.to, None, {**common, "task": "report"}, nothing_else, number),
            round_number,
            [
                place
                for place in ([] if others is None else np.flatnonzero(others).tolist())
                if owed is None or members[place].identity not in owed.open
            ],
            seconds=seconds,
        )
        common |= {"model-digest": digest_of(model), **self.newcomers.look()}
        question = partial(self._questions.to, model, common, fields_of, number)
        questions = {node: question(place) for node, place in place_of.items()}
        if owed is None:
            sent = Asking(self.link, "train", questions, seconds=seconds)
        else:
            sent = Asking(
                self.link,
                "train",
                questions,
                seconds=seconds,
                lasting=LASTING,
                beside=self.late.look if self.late and owed.open else None,
                for_others=bool(found.owing),
            )
        for node in set(place_of) - sent.asked:  # the strategy chose others
            found.outcomes[place_of[node]] = NOT_ASKED
        if task == "answer":
            owes = {} if owed is None else owed.open
            self.live.begin(round_number, seconds, self.commit, found.outcomes, owes)
        order = self.commit.order
        open_questions = {
            node: OpenQuestion.asked_now(q.fields["question"], round_number, order, seconds)
            for node, q in questions.items()
        }
        return Asked(round_number, seconds, sent, place_of, found, question, open_questions)

    def _hear(
        self,
        asked: Asked,
        replies: Iterable[Heard] | None,
        take: Callable[[RoundAnswers, int, Reply], Parts | None],
    ) -> RoundAnswers:
        """Take what arrives. A site that lacks the commit is asked again with all of it."""
        found, members = asked.found, self.commit.members
        heard: set[Node] = set()
        rest = asked.asking.replies()  # what nobody handed on, or what comes of asking again
        for node, reply, took in itertools.chain(rest if replies is None else replies, rest):
            place = asked.place_of[node]
            if reply.failure == CommitUnknown.__name__ and node not in asked.told:
                asked.told.add(node)
                again = asked.question(place, whole=True)
                asked.open[node] = replace(asked.open[node], number=again.fields["question"])
                asked.asking.again(node, again)
                continue
            heard.add(node)
            if reply.failure is not None:
                self._note_failure(found, place, reply.failure)
                self.live.heard(members[place].site, found.outcomes[place], took)
                continue
            self.deadline.note_answer(members[place].site, took, reply.fields.get("worked"))
            parts = None
            try:
                if "withdrew" in reply.fields:
                    self._take_leave(found, place, reply)
                if reply.fields.get("question") != asked.open[node].number:
                    raise AnswerRefused(OTHER_QUESTION)
                parts = take(found, place, reply)
            except AnswerRefused as refusal:
                found.refuse(place, members[place].site, str(refusal))
                if str(refusal) not in NOT_ITS_FAULT:
                    found.bad[place] = str(refusal)
            except Exception:  # whatever a site sends, the round goes on
                found.refuse(place, members[place].site, "malformed")
                found.bad[place] = "malformed"
            if parts is not None:  # what fails now is the server's own disk
                found.rows[place] = self.folder.answers.put(parts)
                found.seconds[place] = took
            self.live.heard(members[place].site, found.outcomes[place], took)
        self.live.end()
        for node in sorted(asked.asking.asked - heard):
            if node in asked.asking.silent:
                self._note_failure(found, asked.place_of[node], NO_ANSWER)
            else:
                found.outcomes[asked.place_of[node]] = LEFT_OUT
        if asked.asking.asked:
            self.deadline.note_round(len(heard))
        if asked.asking.lasts and self.late is not None:
            self.late.owed.take_over(asked.asking, asked.open)
        return found

    def _take_leave(self, found: RoundAnswers, place: int, reply: Reply) -> None:
        """The site withdrew everything, as it says itself."""
        meeting, identity = self.federation.meeting, self.commit.members[place].identity
        if reply.sender != meeting.node(identity):
            raise AnswerRefused("unknown sender")
        meeting.take_leave(reply.fields)
        if identity in meeting.farewells:
            found.left[place] = meeting.farewells[identity]
            raise AnswerRefused(LEFT)

    def _note_failure(self, found: RoundAnswers, place: int, why: str) -> None:
        found.refuse(place, self.commit.members[place].site, why)
        if why in (NO_ANSWER, TOO_LATE) and self.late is None:
            self.deadline.note_given_up(self.commit.members[place].site)

    def _decided(self) -> Decided:
        """How long the next round waits."""
        members = self.commit.members
        weights = held_by_each(self.commit.record)[1].tolist()
        owed = {} if self.late is None else self.late.owed.open
        return self.deadline.decided(
            {member.site: weight for member, weight in zip(members, weights, strict=True)},
            {m.site: owed[m.identity].age for m in members if m.identity in owed},
        )

    def _beside(self, fields_of: FieldsOf, place: int) -> Mapping[str, Any]:
        """With how long ways to a site and back take, if it is known."""
        link = self.deadline.link(self.commit.members[place].site)
        return {**fields_of(place), **({} if link is None else {"link-seconds": link})}

    def _checked(self, reply: Reply, place: int, round_number: int) -> Mapping[str, Any]:
        """The fields of a reply to this question, from this site, under this commit."""
        node = self.federation.meeting.node(self.commit.members[place].identity)
        if node is None or reply.sender != node:
            raise AnswerRefused("unknown sender")
        if reply.fields.get("digest") != self.commit.digest:
            raise AnswerRefused("wrong commit")
        if reply.fields.get("round") != round_number:
            raise AnswerRefused("wrong round")
        self.newcomers.hear(place, reply.fields)
        who = self.commit.members[place].identity
        self._questions.witnesses.note(self.commit, who, reply.fields.get("statement"))
        return reply.fields


def _number(value: object, *, low: float, high: float) -> float:
    if not isinstance(value, float | int) or not low <= value <= high:  # NaN is not
        raise AnswerRefused("malformed")
    return float(value)
