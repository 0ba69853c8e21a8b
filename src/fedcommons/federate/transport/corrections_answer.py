"""What a holder computes of absent owners' examples beside its own chunk (`corrections`).

It divides its time in proportion: in as many jobs as it has chunks, it computes these, the absent
owners' examples that it holds, and those of them once more at each anchor that it has not computed
them at yet. An owner that it computed longest ago is next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedcommons import corrections
from fedcommons.federate.protocol.absences import Absences
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.site.absent_owners import HeldOf, correctable
from fedcommons.federate.site.chunk_memory import ChunkMemory
from fedcommons.federate.site.kept_models import KeptModels
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.stand_ins import StandIn, StandIns
from fedcommons.federate.transport import coded_answer
from fedcommons.federate.transport.coded_answer import Train
from fedcommons.federate.transport.weighted_examples import WeightedExamples

Values = npt.NDArray[np.floating]


class Correcting:
    """One question's corrections at one site."""

    def __init__(
        self,
        site: Site,
        commit: Commit,
        absences: Absences,
        memory: ChunkMemory,
        model: NamedArrays,
        digest: str,
        examples: WeightedExamples,
        train: Train,
        training: str,
    ) -> None:
        """`digest` names the model, which is kept: it may become somebody's anchor."""
        me, held, least = site.place(commit), site.holdings(commit), site.policy.min_examples
        self._model, self._examples, self._train = model, examples, train
        self._schema = ModelSchema.of(model)
        here = correctable(commit, me, held, least)
        P, dtype = self._schema.n_params, self._schema.precision
        self._models = KeptModels(site.store.folder, training, P, dtype)
        if here:
            self._models.keep(digest, self._schema.vector(model, dtype), absences.needed)
        self._stand_ins = StandIns(memory.folder, P, dtype)
        self._there = sorted({me, *absences.asked})
        self._of: dict[int, HeldOf] = {}
        self._found: dict[int, StandIn] = {}
        for owner, anchors in absences.anchors.items():
            if owner not in here:
                continue
            found = self._stand_ins.of(owner, anchors)
            if found.covered or "" in anchors or self._to_cover(found):
                self._of[owner], self._found[owner] = here[owner], found

    @property
    def outstanding(self) -> int:
        """How many gradients of examples a cycle has beside the chunks."""
        return sum(
            len(self._of[owner].places) * (1 + len(self._to_cover(found)))
            for owner, found in self._found.items()
        )

    def compute(self, most: int, question: int) -> None:
        """About so many of these gradients, but whole owners; what comes of them is kept."""
        done = 0
        for owner in sorted(self._found, key=lambda i: (self._found[i].at, i)):
            if done >= most:
                break
            done += self._refresh(owner, most - done, question)

    def _refresh(self, owner: int, most: int, question: int) -> int:
        """Compute an owner's examples now, and at anchors; how many gradients that took."""
        found, places, dtype = self._found[owner], self._of[owner].places, self._models.dtype
        now, done = self._gradient(places, self._model), len(places)
        covered, mean = dict(found.covered), found.mean
        if not covered:
            mean = np.zeros(self._schema.n_params, dtype)
            if "" in found.anchors:  # what was never computed counts 0
                covered[""] = found.anchors[""]
        for anchor in self._to_cover(found):
            if covered and done >= most:
                break
            model = self._models.find(anchor)
            if model is None:
                continue
            at = self._gradient(places, self._schema.model(model, self._model))
            done += len(places)
            sizes = np.array([sum(covered.values()), found.anchors[anchor]])
            mean = corrections.mean_at_anchors(np.stack([mean, at]), sizes)
            covered[anchor] = found.anchors[anchor]
        if covered:
            mean, now = np.asarray(mean, dtype), np.asarray(now, dtype)
            self._found[owner] = replace(found, covered=covered, mean=mean, now=now, at=question)
            self._stand_ins.keep(owner, self._found[owner])
        return done

    def correction(self) -> NamedArrays | None:
        """The sum over all absent owners; None if there is nothing to correct."""
        owners = [owner for owner, found in self._found.items() if found.at]
        if not owners:
            return None
        weight = [
            corrections.pooled_weight(
                list(self._found[owner].covered.values()), self._of[owner].others[self._there]
            )
            for owner in owners
        ]
        found = corrections.correction(
            self._stacked([self._found[owner].now for owner in owners]),
            self._stacked([self._found[owner].mean for owner in owners]),
            np.array(weight),
        )
        return self._schema.model(found, self._model)

    @staticmethod
    def _stacked(rows: Sequence[Values]) -> Values:
        return np.stack(rows).astype(np.float64)

    def _to_cover(self, found: StandIn) -> list[str]:
        return [x for x in found.anchors if x not in found.covered and self._models.has(x)]

    def _gradient(self, places: npt.NDArray[np.integer], model: NamedArrays) -> Values:
        """The sum of the gradients of these examples at a model: (P,)."""
        all_of_them, shares = self._examples, np.ones(len(places))
        x, y = all_of_them.x[places], all_of_them.y[places]
        part = replace(all_of_them, x=x, y=y, shares=shares, one_step=True)
        arrays = coded_answer.answer(model, part, self._train, is_other=True)
        return np.asarray(self._schema.vector(arrays), np.float64)
