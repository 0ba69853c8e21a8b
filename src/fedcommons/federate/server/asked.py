"""Questions that are out, and what came of them so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedcommons.federate.server.asking import Asking
from fedcommons.federate.server.link import Node, Question
from fedcommons.federate.server.open_question import OpenQuestion
from fedcommons.federate.server.round_answers import RoundAnswers


@dataclass(slots=True)
class Asked:
    """Sites that were asked the same at one model, and what came of it so far.

    Attributes:
        round: the number of the round.
        seconds: how long answers are waited for.
        asking: the questions that are out.
        place_of: where in the roster a node's site is.
        found: what came of it.
        open: what a node owes that does not answer in time; its reply names the number.
    """

    round: int
    seconds: float
    asking: Asking
    place_of: Mapping[Node, int]
    found: RoundAnswers
    question: Callable[..., Question]  # by place
    open: dict[Node, OpenQuestion]
    told: set[Node] = field(default_factory=set)  # the whole commit, since they lack it
