"""How far a training is: what changes from round to round."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcommons import estimators, optimizers
from fedcommons.checks import FloatArray
from fedcommons.errors import FederationError
from fedcommons.estimators import ESTIMATORS
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.server.checkpoints import Checkpoint
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.server.state import ServerState
from fedcommons.federate.server.withdrawals import reset_memory
from fedcommons.methods import Method
from fedcommons.optimizers import OPTIMIZERS
from fedcommons.reliability import Reliability


@dataclass(slots=True)
class TrainingState:
    """Where a training is.

    Attributes:
        round: how many rounds are over.
        model: the present one.
        memory: what the estimator remembers, (N, P); None if it remembers nothing.
        moments: what the server optimizer keeps, of (P,) each.
        reliability: how often each site answers, as far as it is known.
        commit: the order of the commit that `memory` is of.
        initial: a digest of the model before round 1.
        warmed: whether memory was started from everybody's answer.
        history: a note of every round.
    """

    round: int
    model: NamedArrays
    memory: FloatArray | None
    moments: optimizers.State
    reliability: Reliability
    commit: tuple[int, int]
    initial: str
    warmed: bool = False
    history: list[RoundNote] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        model: NamedArrays,
        schema: ModelSchema,
        method: Method,
        reliability: Reliability,
        commit: Commit,
        note: RoundNote,
    ) -> TrainingState:
        vector = schema.vector(model)
        return cls(
            0,
            model,
            estimators.start(ESTIMATORS[method.estimator], len(commit.members), len(vector)),
            OPTIMIZERS[method.server_optimizer].start(vector.shape),
            reliability,
            commit.order,
            digest_of(vector),
            history=[note],
        )

    @classmethod
    def resume(
        cls, saved: Checkpoint, untrained: NamedArrays, schema: ModelSchema, folder: str
    ) -> TrainingState:
        """The state of a checkpoint; refused if its arrays are others than the schema's.

        `untrained` has the arrays that the checkpoint does not.
        """
        if saved.schema != schema.arrays:
            raise FederationError(
                f"{folder} holds the training of another model: choose another state-dir, or "
                "remove that folder"
            )
        return cls(
            saved.round,
            schema.model(saved.model, untrained),
            saved.memory,
            tuple(saved.moments),
            saved.reliability,
            saved.commit,
            saved.initial,
            saved.warmed,
            list(saved.history),
        )

    def checkpoint(
        self, schema: ModelSchema, commit: Commit, settings: Settings, about: dict[str, Any]
    ) -> Checkpoint:
        model = schema.vector(self.model)
        moments = np.array(self.moments, np.float64).reshape(len(self.moments), len(model))
        return Checkpoint(
            round=self.round,
            commit=self.commit,
            initial=self.initial,
            about=about,
            straggler_prob=commit.straggler_prob,
            owner_share=commit.owner_share,
            rehearsed=settings.stragglers is not None,
            warmed=self.warmed,
            schema=schema.arrays,
            history=tuple(self.history),
            model=model,
            memory=self.memory,
            moments=moments,
            missed=self.reliability.missed,
            rounds=self.reliability.rounds,
            run=self.reliability.run,
        )

    def come_to(self, commit: Commit, disk: ServerState) -> None:
        """Forget the answers of sites that held what is gone since the state's last commit."""
        if self.commit != commit.order:
            if self.memory is not None:
                reset_memory(self.memory, disk.commit_of(self.commit), commit)
            self.commit = commit.order


def digest_of(vector: FloatArray) -> str:
    """A digest of a model's values."""
    return hashlib.sha256(vector.tobytes()).hexdigest()
