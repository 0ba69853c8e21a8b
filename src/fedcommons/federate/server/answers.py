"""Asking the sites for answers, and which of those that come may count."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import WARNING
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedcommons.checks import BoolArray, FloatArray
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import AnswerRefused
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.server.coordinator import Federation
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.transport import messages
from fedcommons.federate.transport.model_arrays import Layout

SHORTEST_DEADLINE, LONGEST_DEADLINE = 5.0, 600.0
FIRST_DEADLINE = 120.0  # of an adaptive one, before anything is known
LATE_FACTOR = 1.5  # a missed deadline counts as an answer that took so much longer
MOST_LATE = 3  # deadlines in a row that a site may miss before nobody waits longer for its sake
LATE = ("no answer", "too late")
LARGEST_OWNER_SHARE = 1e6
ADVICE = {
    "DataChanged": ": its data changed since the exchange, reshare = true takes them in",
    "StoreIsOlder": ": its store is older than a withdrawal that it made, from a backup perhaps; "
    "its operator must withdraw those examples again",
    "LocalStepsIgnored": ": its training function returns a gradient; with several local steps or "
    "batches it must loop over site.batches and return the trained arrays",
}


@dataclass(slots=True)
class Heard:
    """What came of asking the sites once, by place in the roster.

    Attributes:
        answers: (N, P), 0 where there is none; `answered` says where.
        outcomes: in a word what became of each site.
        taken_back: what sites withdrew; those that withdrew everything are in `left`.
    """

    answers: FloatArray
    answered: BoolArray
    outcomes: list[str]
    taken_back: dict[int, Withdrawn] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)

    def refuse(self, place: int, site: str, why: str) -> None:
        self.outcomes[place] = why
        log(WARNING, "%s: %s%s", site, why, ADVICE.get(why, ""))

    def outdated(self) -> Heard:
        """The same without the answers: the commit that they were given under has been replaced."""
        outcomes = ["outdated" if what == "answered" else what for what in self.outcomes]
        return Heard(np.zeros_like(self.answers), np.zeros_like(self.answered), outcomes)


class Inquiry:
    """Asks the sites of a federation. Whatever a reply holds, the others' still count."""

    def __init__(
        self,
        federation: Federation,
        layout: Layout,
        settings: Settings,
        deadline: float | Literal["adaptive"],
        config: ConfigRecord,
    ) -> None:
        self.federation, self.layout, self.settings = federation, layout, settings
        self.deadline, self.config = deadline, config
        self._answer_seconds: list[tuple[int, float]] = []  # by node
        self._late: dict[int, int] = {}  # by node, how many deadlines in a row it missed
        self._digest = b""  # of the commit that the following is of
        self._coverage: dict[int, float] = {}  # sites under it, and their sums of 1/d_j
        self._dismissed: set[str] = set()

    @property
    def commit(self) -> Commit:
        return self.federation.commit

    def answers(self, grid: Grid, model: ArrayRecord, round_number: int, asked: BoolArray) -> Heard:
        """Every site's coded answer at this model."""
        heard, replies = self._ask(grid, model, round_number, "answer", asked)
        for place, reply in replies.items():
            site = self.commit.members[place].site
            try:
                fields = self._checked(reply, place, round_number)
                taken_back = _taken_back(fields, self.commit, place)
                if taken_back is not None:
                    heard.taken_back[place] = taken_back
                    raise AnswerRefused("withdrew examples")
                coverage = _number(fields["coverage"], low=0, high=self.commit.n_examples)
                vector = self.layout.vector(reply.content.array_records["answer"])
                if not np.isfinite(vector).all():
                    raise AnswerRefused("NaN or infinity")
            except AnswerRefused as refusal:
                heard.refuse(place, site, str(refusal))
            except Exception:  # whatever a site sends, the round goes on
                heard.refuse(place, site, "malformed")
            else:
                heard.answers[place], heard.answered[place] = vector, True
                self._coverage[place] = coverage
        self._check_coverage()
        return heard

    def owner_shares(self, grid: Grid, model: ArrayRecord) -> list[float]:
        """Each owner's best w at this model; an owner that is not there splits equally."""
        present = np.array(self.commit.present)
        heard, replies = self._ask(grid, model, 0, "owner-share", present)
        shares = [1 / (self.commit.copies + 1)] * len(present)
        for place, reply in replies.items():
            try:
                w = self._checked(reply, place, 0)["owner-share"]
                shares[place] = _number(w, low=-LARGEST_OWNER_SHARE, high=LARGEST_OWNER_SHARE)
            except Exception:  # whatever a site sends, the others' shares count
                heard.refuse(place, self.commit.members[place].site, "no owner share")
        return shares

    def _ask(
        self, grid: Grid, model: ArrayRecord, round_number: int, task: str, asked: BoolArray
    ) -> tuple[Heard, dict[int, Message]]:
        """What became of each site, and the replies without an error."""
        members, meeting = self.commit.members, self.federation.meeting
        if self._digest != self.commit.digest:
            self._digest, self._coverage = self.commit.digest, {}
        seconds = self.seconds
        self._await_somebody(grid, [members[place].identity for place in np.flatnonzero(asked)])
        self._dismiss(grid)
        size = len(self.layout.vector(model))
        heard = Heard(
            np.zeros((len(members), size)),
            np.zeros(len(members), np.bool_),
            ["answered" if one else "not asked" for one in asked],
            left={i for i, m in enumerate(members) if m.identity in meeting.withdrew},
        )
        place_of: dict[int, int] = {}
        for place in np.flatnonzero(asked).tolist():
            node = meeting.node(members[place].identity)
            if node is None:
                heard.outcomes[place] = "not connected"
            else:
                place_of[node] = place
        contents = {
            node: self._request(place, model, round_number, task)
            for node, place in place_of.items()
        }
        replies = messages.ask(
            grid, contents, "train", seconds=seconds, on_reply=self._note_seconds
        )
        good = {}
        for node, place in place_of.items():
            why = messages.failure(replies.get(node))
            if why is None:
                good[place] = replies[node]
                continue
            heard.refuse(place, members[place].site, why)
            if why in LATE:
                self._note_late(node, seconds)
            if why == "SiteWithdrew":
                heard.left.add(place)
        return heard, good

    def _await_somebody(self, grid: Grid, identities: list[str]) -> None:
        """Look who is connected, until the deadline if it is none of these."""
        meeting, end = self.federation.meeting, time.monotonic() + self.seconds
        meeting.ask_newcomers(grid)
        while identities and all(meeting.node(identity) is None for identity in identities):
            if (left := end - time.monotonic()) <= 0:
                break
            time.sleep(min(messages.POLL_SECONDS, left))
            meeting.ask_newcomers(grid)

    def _dismiss(self, grid: Grid) -> None:
        """Tell sites that have no part any more, once: they delete what others gave them.

        They left, or a new exchange was made without them and they are under an older commit.
        """
        meeting, commit = self.federation.meeting, self.commit
        content = messages.content(
            {"commit": commit.record, "given-up": self.federation.state.given_up}
        )
        gone = {m.identity for i, m in enumerate(commit.members) if not commit.present[i]}
        left_out = {
            identity
            for identity, known in meeting.commits.items()
            if known.order < commit.order and all(m.identity != identity for m in commit.members)
        }
        for identity in sorted((gone | left_out) - self._dismissed):
            node = meeting.node(identity)
            if node is None:
                continue
            message = Message(content, dst_node_id=node, message_type="train", ttl=self.seconds)
            grid.push_messages([message])  # what it answers does not matter
            self._dismissed.add(identity)

    def _request(self, place: int, model: ArrayRecord, round_number: int, task: str) -> RecordDict:
        fields: dict[str, Any] = {
            "commit": self.commit.record,
            "given-up": self.federation.state.given_up,
            "round": round_number,
            "task": task,
            "local-steps": self.settings.local_steps,
            "batch-size": self.settings.batch_size,
        }
        if place not in self._coverage:  # it may not have seen this commit yet
            receipts = self.federation.receipts(self.commit.members[place].identity)
            fields["receipt-recipients"] = [r.recipient for r in receipts]
            fields["receipt-examples"] = [r.examples for r in receipts]
            fields["receipt-signatures"] = [r.signature for r in receipts]
        config = ConfigRecord({**self.config, "server-round": round_number})
        return messages.content(fields, arrays=model, config=config)

    @property
    def seconds(self) -> float:
        """The deadline of the next round."""
        if self.deadline != "adaptive":
            return float(self.deadline)
        if not self._answer_seconds:
            return FIRST_DEADLINE
        waited_for = [
            seconds
            for node, seconds in self._answer_seconds[-100:]
            if self._late.get(node, 0) <= MOST_LATE
        ]
        if not waited_for:
            return LONGEST_DEADLINE
        usual = float(np.quantile(waited_for, 0.9))
        return min(max(1.5 * usual + 2, SHORTEST_DEADLINE), LONGEST_DEADLINE)

    def _note_seconds(self, node: int, reply: Message, seconds: float) -> None:
        if not reply.has_error():
            self._late[node] = 0
            self._answer_seconds.append((node, seconds))

    def _note_late(self, node: int, seconds: float) -> None:
        self._late[node] = self._late.get(node, 0) + 1
        self._answer_seconds.append((node, LATE_FACTOR * seconds))

    def _checked(self, reply: Message, place: int, round_number: int) -> Mapping[str, Any]:
        """The fields of a reply to this message, from this site, under this commit."""
        fields = messages.fields(reply)
        node = self.federation.meeting.node(self.commit.members[place].identity)
        if node is None or reply.metadata.src_node_id != node:
            raise AnswerRefused("unknown sender")
        if fields.get("digest") != self.commit.digest:
            raise AnswerRefused("wrong commit")
        if fields.get("round") != round_number:
            raise AnswerRefused("wrong round")
        return fields

    def _check_coverage(self) -> None:
        """All sites' sums of 1/d_j add up to M: they agree on who holds what."""
        present = [place for place, here in enumerate(self.commit.present) if here]
        if any(place not in self._coverage for place in present):
            return
        total = sum(self._coverage[place] for place in present)
        if not math.isclose(total, self.commit.n_examples, rel_tol=1e-9, abs_tol=1e-6):
            by_site = {self.commit.members[i].site: round(self._coverage[i], 3) for i in present}
            raise FederationError(
                f"the sites' shares must add up to the {self.commit.n_examples} examples, "
                f"got {total:.6f}: they do not agree on who holds what: {by_site}"
            )


def _taken_back(fields: Mapping[str, Any], commit: Commit, place: int) -> Withdrawn | None:
    """What a site says it withdrew; None if it says nothing."""
    if "withdrawn" not in fields:
        return None
    member = commit.members[place]
    numbers, n_private = list(fields["withdrawn"]), fields["withdrawn-private"]
    if not all(type(n) is int and 0 <= n < member.n_shareable for n in numbers):
        raise AnswerRefused("malformed")
    if type(n_private) is not int or not 0 <= n_private <= member.n_examples - member.n_shareable:
        raise AnswerRefused("malformed")
    return Withdrawn(tuple(numbers), n_private)


def _number(value: object, *, low: float, high: float) -> float:
    if not isinstance(value, float | int) or not low <= value <= high:  # NaN is not
        raise AnswerRefused("malformed")
    return float(value)
