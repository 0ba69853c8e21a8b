"""What each site is told with a question: its number, the commit, receipts, others' statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server.coverage import Coverage
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.link import Question
from fedcommons.federate.server.open_question import OpenQuestion
from fedcommons.federate.server.witnesses import Witnesses

FieldsOf = Callable[[int], Mapping[str, Any]]


def nothing_else(_place: int) -> Mapping[str, Any]:
    """No site is told anything beside what all are told."""
    return {}


class Questions:
    """Makes the questions of a training, whose `config` goes to the app's own function."""

    def __init__(
        self, federation: ServerFederation, training: str, config: Mapping[str, Any]
    ) -> None:
        self.federation, self.training, self.config = federation, training, config
        self.coverage, self.witnesses = Coverage(), Witnesses()

    def fresh_number(self) -> int:
        return self.federation.state.questions.fresh()

    def to(
        self,
        model: NamedArrays | None,
        common: Mapping[str, Any],
        fields_of: FieldsOf,
        number: int,
        place: int,
        *,
        whole: bool = False,
    ) -> Question:
        """With the whole commit where the site is not known to have applied it, or says so."""
        commit = self.federation.commit
        who = commit.members[place].identity
        applied = self.federation.meeting.commits.get(who)
        is_known = not whole and applied is not None and applied.digest == commit.digest
        numbers = self.federation.state.questions
        numbers.note_answered(who, self.federation.meeting.answered.get(who, 0))
        fields: dict[str, Any] = {
            "question": numbers.of(who, number),
            "commit": b"" if is_known else commit.record,
            "digest": commit.digest,
            **common,
            **self.witnesses.for_(commit, who, number),
            **fields_of(place),
        }
        if whole or place not in self.coverage:  # it may not have seen this commit yet
            receipts = self.federation.receipts(who)
            fields["receipt-recipients"] = [r.recipient for r in receipts]
            fields["receipt-examples"] = [r.examples for r in receipts]
            fields["receipt-signatures"] = [r.signature for r in receipts]
            fields["receipt-path"] = self.federation.path_to_receipts(who)
        config = {**self.config, "server-round": common["round"]}
        return Question(fields, model=model, config=config, is_again=whole)

    def for_kept(self, round_number: int, identity: str, question: OpenQuestion) -> Question:
        """What a site is asked for that has kept its answer to an open question, perhaps."""
        common: dict[str, Any] = {
            "given-up": self.federation.state.given_up,
            "round": round_number,
            "task": "kept",
            "kept-question": question.number,
            "training": self.training,
        }
        place = self.federation.commit.index(identity)
        return self.to(None, common, nothing_else, self.fresh_number(), place or 0)
