"""Where a transport's own strategy comes in: around the questions and the replies of a round.

What a round does goes through here. By itself nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
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


def as_handed_back(
    model: NamedArrays | None, aggregated: NamedArrays, before: NamedArrays, schema: ModelSchema
) -> NamedArrays:
    """The model as a strategy hands it back: as it was aggregated, changed, or not moved."""
    if model is aggregated:
        return aggregated
    if model is None:
        return before
    found = ModelSchema.of(model)
    if found != schema:
        raise FederationError(
            f"aggregate_train must return the model's arrays, got {found.first_difference(schema)}"
        )
    if not all(np.isfinite(x).all() for x in schema.trained(model)):
        raise FederationError("aggregate_train must return a model of finite numbers")
    return model
