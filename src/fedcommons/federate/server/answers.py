"""Asking the sites for answers, and which of those that come may count."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcommons import shown
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.federate.protocol import versions
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.protocol.refusals import AnswerRefused
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.server import asking, withdrawals
from fedcommons.federate.server.coverage import Coverage
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.link import NO_ANSWER, TOO_LATE, Link, Node, Question, Reply
from fedcommons.federate.server.withdrawals import Dismissals
from fedcommons.methods import Method

logger = shown.logger(__name__)

LARGEST_OWNER_SHARE = 1e6
ADVICE = {
    "DataChanged": ": its data changed since the exchange, reshare = true takes them in",
    "StoreIsOlder": ": its store is older than a withdrawal that it made, from a backup perhaps; "
    "its operator must withdraw those examples again",
    "LocalStepsIgnored": ": its training function returns a gradient; with several local steps or "
    "batches it must loop over site.batches and return the trained arrays",
    **{name: f": {what}" for name, what in versions.ADVICE.items()},
}


@dataclass(slots=True)
class RoundAnswers:
    """What came of asking the sites once, by place in the roster.

    Attributes:
        answers: (N, P), 0 where there is none; `answered` says where.
        outcomes: what became of each site, in a word or two.
        taken_back: what sites withdrew; those that withdrew everything are in `left`.
    """

    answers: FloatArray
    answered: BoolArray
    outcomes: list[str]
    taken_back: dict[int, Withdrawn] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)

    def refuse(self, place: int, site: str, why: str) -> None:
        self.outcomes[place] = why
        logger.warning("%s: %s%s", site, why, ADVICE.get(why, ""))

    def outdated(self) -> RoundAnswers:
        """The same without the answers: the commit that they were given under has been replaced."""
        outcomes = ["outdated" if what == "answered" else what for what in self.outcomes]
        return RoundAnswers(np.zeros_like(self.answers), np.zeros_like(self.answered), outcomes)


class AnswerCollector:
    """Asks the sites of a federation. Whatever one reply holds, the others still count."""

    def __init__(
        self,
        federation: ServerFederation,
        link: Link,
        schema: ModelSchema,
        method: Method,
        deadline: Deadline,
        config: Mapping[str, Any],
    ) -> None:
        self.federation, self.link, self.schema = federation, link, schema
        self.method, self.deadline, self.config = method, deadline, config
        self._coverage = Coverage()
        self._dismissals = Dismissals(federation)

    @property
    def commit(self) -> Commit:
        return self.federation.commit

    def answers(self, model: NamedArrays, round_number: int, asked: BoolArray) -> RoundAnswers:
        """Every site's coded answer at this model."""
        found, replies = self._ask(model, round_number, "answer", asked)
        for place, reply in replies.items():
            site = self.commit.members[place].site
            try:
                fields = self._checked(reply, place, round_number)
                taken_back = withdrawals.reported(fields, self.commit, place)
                if taken_back is not None:
                    found.taken_back[place] = taken_back
                    raise AnswerRefused("withdrew examples")
                coverage = _number(fields["coverage"], low=0, high=self.commit.n_examples)
                if reply.answer is None:
                    raise AnswerRefused("malformed")
                vector = self.schema.vector(reply.answer)
                if not np.isfinite(vector).all():
                    raise AnswerRefused("NaN or infinity")
            except AnswerRefused as refusal:
                found.refuse(place, site, str(refusal))
            except Exception:  # whatever a site sends, the round goes on
                found.refuse(place, site, "malformed")
            else:
                found.answers[place], found.answered[place] = vector, True
                self._coverage.note(place, coverage)
        self._coverage.check(self.commit)
        return found

    def owner_shares(self, model: NamedArrays) -> list[float]:
        """Each owner's best w at this model; an owner that is not there splits equally."""
        present = np.array(self.commit.present)
        found, replies = self._ask(model, 0, "owner-share", present)
        shares = [1 / (self.commit.copies + 1)] * len(present)
        for place, reply in replies.items():
            try:
                w = self._checked(reply, place, 0)["owner-share"]
                shares[place] = _number(w, low=-LARGEST_OWNER_SHARE, high=LARGEST_OWNER_SHARE)
            except Exception:  # whatever a site sends, the others' shares count
                found.refuse(place, self.commit.members[place].site, "no owner share")
        return shares

    def _ask(
        self, model: NamedArrays, round_number: int, task: str, asked: BoolArray
    ) -> tuple[RoundAnswers, dict[int, Reply]]:
        """What became of each site, and the replies without a failure, by place."""
        members, meeting = self.commit.members, self.federation.meeting
        self._coverage.begin(self.commit)
        seconds = self.deadline.seconds
        places = np.flatnonzero(asked).tolist()
        self._await_somebody([members[place].identity for place in places], seconds)
        self._dismissals.tell(self.link, seconds=seconds)
        found = RoundAnswers(
            np.zeros((len(members), len(self.schema.vector(model)))),
            np.zeros(len(members), np.bool_),
            ["answered" if one else "not asked" for one in asked],
            left={i for i, m in enumerate(members) if m.identity in meeting.withdrew},
        )
        place_of: dict[Node, int] = {}
        for place in places:
            node = meeting.node(members[place].identity)
            if node is None:
                found.outcomes[place] = "not connected"
            else:
                place_of[node] = place
        questions = {
            node: self._question(place, model, round_number, task)
            for node, place in place_of.items()
        }
        replies = asking.ask(
            self.link, "train", questions, seconds=seconds, on_reply=self._note_seconds
        )
        good = {}
        for node, place in place_of.items():
            reply = replies.get(node)
            why = NO_ANSWER if reply is None else reply.failure
            if reply is not None and why is None:
                good[place] = reply
                continue
            found.refuse(place, members[place].site, str(why))
            if why in (NO_ANSWER, TOO_LATE):
                self.deadline.note_late(node, seconds)
            if why == "SiteWithdrew":
                found.left.add(place)
        return found, good

    def _await_somebody(self, identities: list[str], seconds: float) -> None:
        """Look who is connected, until the deadline if it is none of these."""
        meeting, end = self.federation.meeting, time.monotonic() + seconds
        meeting.ask_newcomers(self.link)
        while identities and all(meeting.node(identity) is None for identity in identities):
            if (left := end - time.monotonic()) <= 0:
                break
            time.sleep(min(asking.POLL_SECONDS, left))
            meeting.ask_newcomers(self.link)

    def _question(self, place: int, model: NamedArrays, round_number: int, task: str) -> Question:
        fields: dict[str, Any] = {
            "commit": self.commit.record,
            "given-up": self.federation.state.given_up,
            "round": round_number,
            "task": task,
            "local-steps": self.method.local_steps,
            "batch-size": self.method.batch_size or 0,
        }
        if place not in self._coverage:  # it may not have seen this commit yet
            receipts = self.federation.receipts(self.commit.members[place].identity)
            fields["receipt-recipients"] = [r.recipient for r in receipts]
            fields["receipt-examples"] = [r.examples for r in receipts]
            fields["receipt-signatures"] = [r.signature for r in receipts]
        config = {**self.config, "server-round": round_number}
        return Question(fields, model=model, config=config)

    def _note_seconds(self, node: Node, reply: Reply, seconds: float) -> None:
        if reply.failure is None:
            self.deadline.note_answer(node, seconds)

    def _checked(self, reply: Reply, place: int, round_number: int) -> Mapping[str, Any]:
        """The fields of a reply to this question, from this site, under this commit."""
        node = self.federation.meeting.node(self.commit.members[place].identity)
        if node is None or reply.sender != node:
            raise AnswerRefused("unknown sender")
        if reply.fields.get("digest") != self.commit.digest:
            raise AnswerRefused("wrong commit")
        if reply.fields.get("round") != round_number:
            raise AnswerRefused("wrong round")
        return reply.fields


def _number(value: object, *, low: float, high: float) -> float:
    if not isinstance(value, float | int) or not low <= value <= high:  # NaN is not
        raise AnswerRefused("malformed")
    return float(value)
