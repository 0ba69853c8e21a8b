"""Where a transport's own strategy comes in: around the questions and the replies of a round.

What a round does goes through here. By itself nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedcommons.federate.protocol.model_schema import NamedArrays
from fedcommons.federate.server.asking import Asking, Heard
from fedcommons.federate.server.site_metrics import Numbers

Trained = tuple[NamedArrays | None, Numbers]
"""The model after a round, None if it is to stay as it was; and the sites' metrics together."""


class Hooks:
    """Hands replies on as they are."""

    def train(
        self,
        round_number: int,
        asking: Asking,
        aggregate: Callable[[Iterable[Heard]], Trained],
    ) -> Trained:
        del round_number
        return aggregate(asking.replies())

    def evaluate(
        self,
        round_number: int,
        asking: Asking,
        aggregate: Callable[[Iterable[Heard]], Numbers],
    ) -> Numbers:
        del round_number
        return aggregate(asking.replies())
