"""The sites measure the model on held-out data of their own, after a round.

Only sites that answered in the round are asked: they are there, and owe nothing. Whoever does not
reply in time, or says what is no number, is left out of what it concerns and named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedcommons import checks, shown
from fedcommons.federate.protocol import scale_fields
from fedcommons.federate.protocol.model_schema import NamedArrays, digest_of
from fedcommons.federate.server import site_metrics
from fedcommons.federate.server.advice import advice
from fedcommons.federate.server.asking import Asking, Heard
from fedcommons.federate.server.deadlines import Deadline
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.hooks import Hooks
from fedcommons.federate.server.link import NO_ANSWER, Link, Node, Question, Reply
from fedcommons.federate.server.site_metrics import Numbers, SiteMetrics
from fedcommons.scaling import Scale
from fedcommons.streams import stream

logger = shown.logger(__name__)

UNGUARDED = "unguarded"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """When sites evaluate.

    Attributes:
        every: after every so many rounds, and after the last.
        fraction: of the sites that answered, drawn anew each time; 0 is never.
        config: for the app's evaluate function; another one is the same training.
    """

    every: int = 1
    fraction: float = 1.0
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.integer("evaluate_every", self.every, low=1)
        checks.real("fraction_evaluate", self.fraction, low=0, high=1)

    def with_config(self, config: Mapping[str, Any]) -> Evaluation:
        return replace(self, config=dict(config))

    def is_due(self, round_number: int, num_rounds: int) -> bool:
        due = round_number % self.every == 0 or round_number == num_rounds
        return due and self.fraction > 0


class Evaluator:
    """Asks sites for metrics of a model."""

    def __init__(
        self,
        federation: ServerFederation,
        link: Link,
        evaluation: Evaluation,
        deadline: Deadline,
        seed: int,
    ) -> None:
        self.federation, self.link, self.evaluation = federation, link, evaluation
        self.deadline, self.seed = deadline.of_evaluation(), seed
        self.scale: Scale | None = None  # of the inputs, if they have one
        self._said: set[str] = set()

    def metrics(
        self,
        round_number: int,
        model: NamedArrays,
        sites: Iterable[str],
        evaluates: Mapping[str, str],
        hooks: Hooks,
    ) -> SiteMetrics:
        """What these sites measure, those that say that they evaluate."""
        willing = [site for site in sites if evaluates.get(site)]
        self._say_once([site for site in willing if evaluates[site] == UNGUARDED])
        place_of = self._drawn([s for s in willing if evaluates[s] != UNGUARDED], round_number)
        if not place_of:
            return SiteMetrics()
        fields = {
            "digest": self.federation.commit.digest,
            "round": round_number,
            "model-digest": digest_of(model),
            **scale_fields.of_scale(self.scale),
        }
        config = {**self.evaluation.config, "server-round": round_number}
        numbers, who = self.federation.state.questions, self.federation.meeting.identity_of
        fresh = numbers.fresh()
        questions = {
            node: Question(
                {**fields, "question": numbers.of(who(node), fresh)}, model=model, config=config
            )
            for node in place_of
        }
        asking = Asking(self.link, "evaluate", questions, seconds=self.deadline.seconds)
        asked = {node: int(one.fields["question"]) for node, one in questions.items()}
        collected = _Collected(self, asking, place_of, asked)
        pooled = hooks.evaluate(round_number, asking, collected)
        return SiteMetrics(dict(pooled), collected.by_site, collected.left_out)

    def _drawn(self, sites: list[str], round_number: int) -> dict[Node, str]:
        """The nodes that are asked, and their sites' names."""
        n = math.ceil(self.evaluation.fraction * len(sites))
        if n < len(sites):
            rng = stream(self.seed, "evaluated", round_number)
            sites = [sites[k] for k in sorted(rng.choice(len(sites), n, replace=False))]
        found = {}
        for member in self.federation.commit.members_present:
            node = self.federation.meeting.node(member.identity)
            if member.site in sites and node is not None:
                found[node] = member.site
        return found

    def _say_once(self, sites: list[str]) -> None:
        for site in sites:
            if site not in self._said:
                self._said.add(site)
                logger.warning(
                    "%s is not asked to evaluate: its app's evaluate function must have "
                    "mods=[evaluated(site)]",
                    site,
                )


class _Collected:
    """What came of asking for metrics, when the strategy hands the replies on."""

    def __init__(
        self,
        evaluator: Evaluator,
        asking: Asking,
        site_of: Mapping[Node, str],
        asked: Mapping[Node, int],
    ) -> None:
        self._deadline, self._asking = evaluator.deadline, asking
        self._site_of, self._asked = site_of, asked  # the number of each one's question
        self.by_site: dict[str, Numbers] = {}
        self.left_out: dict[str, str] = {}

    def __call__(self, replies: Iterable[Heard]) -> Numbers:
        for node, reply, took in replies:
            site = self._site_of[node]
            self._deadline.note_answer(node, took)
            why = self._take(site, node, reply)
            if why:
                self._leave_out(site, why)
        for node in sorted(self._asking.asked & self._asking.silent):
            self._deadline.note_given_up(node)
            self._leave_out(self._site_of[node], NO_ANSWER)
        self.by_site = dict(sorted(self.by_site.items()))
        return site_metrics.pooled(self.by_site)

    def _take(self, site: str, node: Node, reply: Reply) -> str:
        """Why something of a reply, or all of it, does not count; empty if everything does."""
        if reply.failure is not None:
            return reply.failure
        if reply.sender != node or reply.fields.get("question") != self._asked[node]:
            return "malformed"
        numbers, left_out = site_metrics.checked(reply.metrics)
        if numbers:
            self.by_site[site] = numbers
        return ", ".join(left_out)

    def _leave_out(self, site: str, why: str) -> None:
        self.left_out[site] = why
        logger.warning("evaluation at %s: %s%s", site, why, advice(why))
