"""Step control by client secants, in a federation: from what the server has of each site anyway.

It remembers each site's last answer, so the number of a site follows from its next one, and nobody
is asked for it. Of the models it keeps sketches, of those alone that an answer is of, or may be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcommons import step_control
from fedcommons.checks import FloatArray
from fedcommons.step_control import Secants


@dataclass(slots=True)
class SiteSecants:
    """What is known of how fast sites' gradients change.

    Attributes:
        values: l_i by the site's identity.
        anchors: in which round the answer was asked for that is remembered of a site.
        models: sketches of the models by the round in which they were sent.
    """

    values: dict[str, float] = field(default_factory=dict)
    anchors: dict[str, int] = field(default_factory=dict)
    models: dict[int, FloatArray] = field(default_factory=dict)

    def send(self, in_round: int, model: FloatArray) -> None:
        """This model is sent in a round."""
        self.models[in_round] = step_control.sketch(model)

    def hear(
        self,
        identities: Sequence[str],
        asked_in: Sequence[int],
        changes: FloatArray,
        weights: FloatArray,
    ) -> None:
        """Answers came: how far each is from the last one, NaN where there is none before."""
        for identity, now, change, weight in zip(
            identities, asked_in, changes.tolist(), weights.tolist(), strict=True
        ):
            before = self.anchors.get(identity)
            if before is not None and {before, now} <= set(self.models):
                distance = float(np.linalg.norm(self.models[now] - self.models[before]))
                found = step_control.secant(change, weight, distance)
                known = Secants(np.array([self.values.get(identity, np.nan)]))
                value = float(known.observe(np.array([found])).values[0])
                if np.isfinite(value):
                    self.values[identity] = value
            self.anchors[identity] = now

    def longest_step(self, identities: Sequence[str], weights: FloatArray) -> float:
        values = np.array([self.values.get(identity, np.nan) for identity in identities])
        return Secants(values).longest_step(weights)

    def forget(self, known: Mapping[str, Any], asked_in: Sequence[int]) -> None:
        """Keep what is of sites with a remembered answer, and the models that are needed."""
        for identity in set(self.anchors) - set(known):
            del self.anchors[identity]
        needed = {*self.anchors.values(), *asked_in}
        self.models = {t: model for t, model in self.models.items() if t in needed}

    def to_json(self) -> dict[str, Any]:
        return {
            "values": self.values,
            "anchors": self.anchors,
            "models": {str(t): model.tolist() for t, model in self.models.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SiteSecants:
        return cls(
            {str(i): float(x) for i, x in content["values"].items()},
            {str(i): int(t) for i, t in content["anchors"].items()},
            {int(t): np.array(m, np.float64) for t, m in content["models"].items()},
        )
