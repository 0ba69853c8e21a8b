"""Asking the sites for answers, and which of those that come may count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedcommons import shown
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.federate.protocol import versions
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.protocol.refusals import AnswerRefused, CommitUnknown
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.server import asking, withdrawals
from fedcommons.federate.server.answer_files import Row
from fedcommons.federate.server.coverage import Coverage
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.joining import Newcomers
from fedcommons.federate.server.link import NO_ANSWER, TOO_LATE, Link, Node, Question, Reply
from fedcommons.federate.server.quarantine import Offence
from fedcommons.federate.server.training_folder import TrainingFolder
from fedcommons.federate.server.withdrawals import Dismissals, Unasked
from fedcommons.methods import Method

logger = shown.logger(__name__)

Parts = list[npt.NDArray[Any]]
T = TypeVar("T")

LARGEST_OWNER_SHARE = 1e6
LARGEST_NUMBER = 1e100  # in an answer: what is beyond is no gradient, and its square no number
SOME = 1 << 20
QUARANTINED = "quarantined"
WITHDREW = "withdrew examples"
NOT_ITS_FAULT = {WITHDREW, "unknown sender"}
ADVICE = {
    "DataChanged": ": its data changed since the exchange, reshare = true takes them in",
    "StoreIsOlder": ": its store is older than a withdrawal that it made, from a backup perhaps; "
    "its operator must withdraw those examples again",
    "LocalStepsIgnored": ": its training function returns a gradient; with several local steps or "
    "batches it must loop over site.batches and return the trained arrays",
    "SeveralStepsRefused": ": its training function takes several steps, which the owner-corrected "
    "code does not allow for; choose code = equal-split",
    "ExamplesIgnored": ": its training function must take its examples from site.batches, "
    "site.dataloader or site.examples",
    **{name: f": {what}" for name, what in versions.ADVICE.items()},
}


@dataclass(slots=True)
class RoundAnswers:
    """What came of asking the sites once, by place in the roster.

    Attributes:
        rows: where each answer lies; None where there is none.
        norms: their sizes; 0 where there is none.
        outcomes: what became of each site, in a word or two.
        taken_back: what sites withdrew; those that withdrew everything are in `left`.
        bad: why replies could not count that came, though nobody withdrew anything.
        offenders: who is to be quarantined at once.
    """

    rows: list[Row | None]
    outcomes: list[str]
    taken_back: dict[int, Withdrawn] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    bad: dict[int, str] = field(default_factory=dict)
    offenders: dict[int, Offence] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)
    clipped: dict[int, float] = field(default_factory=dict)

    @property
    def answered(self) -> BoolArray:
        return np.array([row is not None for row in self.rows], np.bool_)

    def refuse(self, place: int, site: str, why: str) -> None:
        self.outcomes[place] = why
        logger.warning("%s: %s%s", site, why, ADVICE.get(why, ""))

    def outdated(self) -> RoundAnswers:
        """The same without the answers: the commit that they were given under has been replaced."""
        outcomes = ["outdated" if what == "answered" else what for what in self.outcomes]
        for place in self.offenders:
            outcomes[place] = QUARANTINED
        return RoundAnswers([None] * len(self.rows), outcomes)


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
        self.method, self.deadline, self.config = method, deadline, config
        self._coverage = Coverage()
        self._dismissals = Dismissals(federation)
        self._unasked = Unasked(federation, link)
        self.newcomers = Newcomers(federation)

    @property
    def commit(self) -> Commit:
        return self.federation.commit

    @property
    def schema(self) -> ModelSchema:
        return self.folder.schema

    def answers(self, model: NamedArrays, round_number: int, asked: BoolArray) -> RoundAnswers:
        """Every site's coded answer at this model; each is put on the disk as it arrives."""

        def take(found: RoundAnswers, place: int, reply: Reply) -> Parts:
            fields = self._checked(reply, place, round_number)
            taken_back = withdrawals.reported(fields, self.commit, place)
            if taken_back is not None:
                found.taken_back[place] = taken_back
                raise AnswerRefused(WITHDREW)
            coverage = _number(fields["coverage"], low=0, high=self.commit.n_examples)
            if reply.answer is None:
                raise AnswerRefused("malformed")
            parts = self._parts(reply.answer)
            found.norms[place] = _norm(parts)
            self._coverage.note(place, coverage)
            self.federation.meeting.commits[self.commit.members[place].identity] = self.commit
            return parts

        found = self._ask(model, round_number, "answer", asked, take)
        found.offenders |= self._coverage.offenders(self.commit)
        found.taken_back |= self._unasked.withdrawn
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

        self._ask(model, 0, task, np.array(self.commit.active), take, fields_of)
        return replies

    def _parts(self, answer: NamedArrays) -> Parts:
        """An answer's arrays as they are kept; refused if they are not of numbers that can be."""
        with np.errstate(over="ignore"):
            parts = [np.asarray(a, self.folder.answers.dtype) for a in self.schema.trained(answer)]
        if not all(np.isfinite(part).all() for part in parts):
            raise AnswerRefused("NaN or infinity")
        return parts

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

        self._ask(model, 0, "owner-share", present, take)
        return shares

    def _ask(
        self,
        model: NamedArrays,
        round_number: int,
        task: str,
        asked: BoolArray,
        take: Callable[[RoundAnswers, int, Reply], Parts | None],
        fields_of: Callable[[int], Mapping[str, Any]] = lambda _place: {},
    ) -> RoundAnswers:
        """What became of each site.

        `take` gets the replies without a failure; it says what is to be kept of them, or refuses.
        """
        members, meeting = self.commit.members, self.federation.meeting
        self._coverage.begin(self.commit)
        seconds = self.deadline.seconds
        places = np.flatnonzero(asked).tolist()
        self._await_somebody([members[place].identity for place in places], seconds)
        self._dismissals.tell(self.link, seconds=seconds)
        self._unasked.listen(
            partial(self._question, model, round_number, "report", {}, lambda _place: {}),
            round_number,
            seconds=seconds,
        )
        found = RoundAnswers(
            [None] * len(members),
            [
                QUARANTINED if i in self.commit.quarantined else "answered" if one else "not asked"
                for i, one in enumerate(asked)
            ],
            left={i for i, m in enumerate(members) if m.identity in meeting.withdrew},
        )
        place_of: dict[Node, int] = {}
        for place in places:
            node = meeting.node(members[place].identity)
            if node is None:
                found.outcomes[place] = "not connected"
            else:
                place_of[node] = place
        newcomers = self.newcomers.look()
        question = partial(self._question, model, round_number, task, newcomers, fields_of)
        told: set[Node] = set()  # the whole commit, since they said that they lack it

        def hear(node: Node, reply: Reply, took: float) -> Question | None:
            place = place_of[node]
            if reply.failure == CommitUnknown.__name__ and node not in told:
                told.add(node)
                return question(place, whole=True)
            if reply.failure is not None:
                self._note_failure(found, node, place, reply.failure, seconds)
                return None
            self.deadline.note_answer(node, took)
            parts = None
            try:
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
            return None

        questions = {node: question(place) for node, place in place_of.items()}
        for node in asking.ask(self.link, "train", questions, seconds=seconds, on_reply=hear):
            self._note_failure(found, node, place_of[node], NO_ANSWER, seconds)
        return found

    def _note_failure(
        self, found: RoundAnswers, node: Node, place: int, why: str, seconds: float
    ) -> None:
        found.refuse(place, self.commit.members[place].site, why)
        if why in (NO_ANSWER, TOO_LATE):
            self.deadline.note_late(node, seconds)
        if why == "SiteWithdrew":
            found.left.add(place)

    def _await_somebody(self, identities: list[str], seconds: float) -> None:
        """Look who is connected, until the deadline if it is none of these."""
        meeting, end = self.federation.meeting, time.monotonic() + seconds
        meeting.ask_newcomers(self.link)
        while identities and all(meeting.node(identity) is None for identity in identities):
            if (left := end - time.monotonic()) <= 0:
                break
            time.sleep(min(asking.POLL_SECONDS, left))
            meeting.ask_newcomers(self.link)

    def _question(
        self,
        model: NamedArrays,
        round_number: int,
        task: str,
        newcomers: Mapping[str, Any],
        fields_of: Callable[[int], Mapping[str, Any]],
        place: int,
        *,
        whole: bool = False,
    ) -> Question:
        """With the whole commit where the site is not known to have applied it, or says so."""
        commit, who = self.commit, self.commit.members[place].identity
        applied = self.federation.meeting.commits.get(who)
        is_known = not whole and applied is not None and applied.digest == commit.digest
        fields: dict[str, Any] = {
            "commit": b"" if is_known else commit.record,
            "digest": commit.digest,
            "given-up": self.federation.state.given_up,
            "round": round_number,
            "task": task,
            "local-steps": self.method.local_steps,
            "batch-size": self.method.batch_size or 0,
            **newcomers,
            **fields_of(place),
        }
        if whole or place not in self._coverage:  # it may not have seen this commit yet
            receipts = self.federation.receipts(who)
            fields["receipt-recipients"] = [r.recipient for r in receipts]
            fields["receipt-examples"] = [r.examples for r in receipts]
            fields["receipt-signatures"] = [r.signature for r in receipts]
        config = {**self.config, "server-round": round_number}
        return Question(fields, model=None if task == "report" else model, config=config)

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
        return reply.fields


def _norm(parts: Parts) -> float:
    """The size of an answer; refused if no number can say it."""
    with np.errstate(over="ignore"):
        largest = max((float(np.abs(part).max(initial=0)) for part in parts), default=0.0)
        if largest > LARGEST_NUMBER:
            raise AnswerRefused("absurd values")
        return float(np.sqrt(sum(np.vdot(one, one) for part in parts for one in _in_float64(part))))


def _in_float64(part: npt.NDArray[Any]) -> Iterator[FloatArray]:
    """A part, some at a time: a copy of it all would be as large as the model."""
    flat = part.reshape(-1)
    for start in range(0, len(flat), SOME):
        yield flat[start : start + SOME].astype(np.float64)


def _number(value: object, *, low: float, high: float) -> float:
    if not isinstance(value, float | int) or not low <= value <= high:  # NaN is not
        raise AnswerRefused("malformed")
    return float(value)
