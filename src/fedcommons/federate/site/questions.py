"""Which questions a site answers: new ones alone, and none about too few examples.

An answer says something of the examples it was made of, and the server chooses what it asks. So
every question has a number above all before it, and no answer rests on fewer of the site's own
examples than its policy allows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.records import HIGHEST_QUESTION
from fedcommons.federate.protocol.refusals import (
    BatchTooSmall,
    NotConfirmed,
    QuestionRefused,
    TooFewExamples,
    TooManySteps,
)
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.policy import Policy

COUNTS = 0.01  # an example whose weight is a smaller part of the largest one hides nobody


class Questions:
    """The number of the last question that a site answered, in its store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def last(self) -> int:
        """0 if it answered none."""
        return int(self._database.get("answered") or b"0")

    def check_new(self, number: object) -> int:
        """The number of a question; refused if it is not above that of the last one answered."""
        if type(number) is not int or not self.last < number <= HIGHEST_QUESTION:
            raise QuestionRefused(
                f"question {number!r} must have a number above {self.last}, the last one answered"
            )
        return number

    def note_measured(self, number: int) -> None:
        """A question about the model's metrics at this site is answered."""
        with self._database.writing("store.answered"):
            self._database.set("answered", str(self.check_new(number)).encode())

    def note(self, number: int, commit: Commit, others: Sequence[str], policy: Policy) -> None:
        """A question is answered: it is on the disk before the answer leaves.

        `others` signed that they are under the commit too. Refused if another process has answered
        a later question meanwhile, or if nobody else was heard of under this commit for too long.
        """
        with self._database.writing("store.answered"):
            self.check_new(number)
            digest, answers, heard = json.loads(self._database.get("confirmed") or b'["", 0, ""]')
            if digest != commit.digest.hex():
                answers, heard = 0, ""
            heard = heard or next(iter(others), "")
            if not heard and answers >= policy.unconfirmed_answers:
                raise NotConfirmed(
                    f"{answers} answers were given under commit {commit.order}, and no other site "
                    "is known to be under it"
                )
            now = [commit.digest.hex(), answers + 1, heard]
            self._database.set("confirmed", json.dumps(now).encode())
            self._database.set("answered", str(number).encode())


def check_steps(policy: Policy, local_steps: int, batch_size: int) -> None:
    """Refuse batches that are too small, and too many of them; a batch of size 0 is all."""
    if local_steps > policy.max_local_steps:
        raise TooManySteps(
            f"{local_steps} local steps are asked for; max-local-steps is {policy.max_local_steps}"
        )
    if batch_size and batch_size < policy.min_examples:
        raise BatchTooSmall(
            f"batches of {batch_size} are asked for; min-examples is {policy.min_examples}"
        )


def check_measured(policy: Policy, n_examples: object) -> None:
    """Refuse to say what was measured on too few examples; apps say on how many it was."""
    if isinstance(n_examples, int | float) and 0 < n_examples < policy.min_examples:
        raise TooFewExamples(
            f"metrics would be of {n_examples:g} examples; min-examples is {policy.min_examples}"
        )


def check_examples(policy: Policy, shares: FloatArray, n_own: int) -> None:
    """Refuse an answer that would rest on too few examples.

    Received ones may be known to whoever sent them, so they hide nobody: where the site's own take
    part, these count alone. `shares` are those of the `n_own` own ones, then those of the others.
    """
    sizes = np.abs(shares)
    counts = (sizes > 0) & (sizes >= COUNTS * sizes.max(initial=0.0))
    own, all_of_them = int(counts[:n_own].sum()), int(counts.sum())
    n = own if (sizes[:n_own] > 0).any() else all_of_them
    if all_of_them and n < policy.min_examples:
        raise TooFewExamples(
            f"an answer would rest on {n} examples of this site; min-examples is "
            f"{policy.min_examples}"
        )
