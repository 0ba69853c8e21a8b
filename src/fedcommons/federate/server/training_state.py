"""How far a training is: what changes from round to round."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcommons import optimizers
from fedcommons.checks import FloatArray
from fedcommons.errors import FederationError
from fedcommons.estimators import ESTIMATORS
from fedcommons.federate.protocol.absences import Anchors
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.server.answer_files import Row
from fedcommons.federate.server.checkpoints import Checkpoint
from fedcommons.federate.server.open_question import OpenQuestion
from fedcommons.federate.server.round_answers import RoundAnswers
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.server.site_secants import SiteSecants
from fedcommons.federate.server.state import ServerState
from fedcommons.federate.server.training_folder import TrainingFolder
from fedcommons.federate.server.withdrawals import forgotten
from fedcommons.methods import Method
from fedcommons.optimizers import OPTIMIZERS
from fedcommons.reliability import Reliability


@dataclass(slots=True)
class TrainingState:
    """Where a training is.

    Attributes:
        round: how many rounds are over.
        model: the present one.
        memory: where the answer lies that is remembered of a site, by its identity; None if the
            estimator remembers nothing.
        vacated: the files of remembered answers of which some are to be forgotten.
        moments: what the server optimizer keeps, of (P,) each.
        reliability: how often each site answers, as far as it is known.
        commit: the order of the commit that it is under.
        sites: the identities of its members; `reliability` is of these.
        initial: a digest of the model before round 1.
        warmed: whether memory was started from everybody's answer.
        history: a note of every round.
        sizes: how large each site's last answers were per unit of share, by its identity.
        owed: the question that a site has not answered yet, by its identity.
        secants: how fast sites' gradients change, for step control.
        anchors: where holders correct, at which models what is remembered of a site was computed,
            and of how many examples each, by its identity.
    """

    round: int
    model: NamedArrays
    memory: dict[str, Row] | None
    moments: optimizers.State
    reliability: Reliability
    commit: tuple[int, int]
    sites: list[str]
    initial: str
    warmed: bool = False
    history: list[RoundNote] = field(default_factory=list)
    vacated: set[int] = field(default_factory=set)
    sizes: dict[str, list[float]] = field(default_factory=dict)
    owed: dict[str, OpenQuestion] = field(default_factory=dict)
    secants: SiteSecants = field(default_factory=SiteSecants)
    anchors: dict[str, Anchors] = field(default_factory=dict)

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
            {} if ESTIMATORS[method.estimator].remembers else None,
            OPTIMIZERS[method.server_optimizer].start(vector.shape),
            reliability,
            commit.order,
            [member.identity for member in commit.members],
            digest_of(vector),
            history=[note],
        )

    @classmethod
    def resume(
        cls, saved: Checkpoint, untrained: NamedArrays, schema: ModelSchema, folder: TrainingFolder
    ) -> TrainingState:
        """The state of a checkpoint in a folder; refused if its arrays are not the schema's.

        `untrained` has the arrays that the checkpoint does not.
        """
        if saved.schema != schema.arrays:
            raise FederationError(
                f"{folder.path} holds the training of another model: choose another state-dir, or "
                "remove that folder"
            )
        return cls(
            saved.round,
            schema.model(saved.model, untrained),
            folder.go_on_from(saved),
            tuple(saved.moments),
            saved.reliability,
            saved.commit,
            saved.identities,
            saved.initial,
            saved.warmed,
            list(saved.history),
            sizes=dict(saved.sizes),
            owed=dict(saved.owed),
            secants=saved.secants,
            anchors=dict(saved.anchors),
        )

    def save(
        self, folder: TrainingFolder, commit: Commit, settings: Settings, about: dict[str, Any]
    ) -> None:
        """Have it on the disk: what a checkpoint names, then the checkpoint."""
        if self.memory is not None:
            rows = folder.answers.settle(list(self.memory.values()), self.vacated)
            self.memory = dict(zip(self.memory, rows, strict=True))
        precision = folder.answers.dtype
        checkpoint = Checkpoint(
            round=self.round,
            commit=self.commit,
            initial=self.initial,
            about=about,
            straggler_prob=commit.straggler_prob,
            owner_share=commit.owner_share,
            rehearsed=settings.stragglers is not None,
            warmed=self.warmed,
            schema=folder.schema.arrays,
            history=tuple(self.history),
            history_bytes=folder.append_to_history(self.history),
            model=folder.schema.vector(self.model, precision),
            memory=self.memory,
            sizes=self.sizes,
            owed=self.owed,
            secants=self.secants,
            anchors=self.anchors,
            moments=np.array(self.moments, np.float64).reshape(
                len(self.moments), folder.schema.n_params
            ),
            missed=self.reliability.missed,
            rounds=self.reliability.rounds,
            run=self.reliability.run,
        )
        folder.save(checkpoint, reuse=not self.vacated)
        self.vacated.clear()

    def note_anchors(self, commit: Commit, found: RoundAnswers) -> None:
        """What came is remembered from now on."""
        for place, anchors in found.anchors.items():
            if found.all_rows[place] is not None:
                self.anchors[commit.members[place].identity] = anchors

    def come_to(self, commit: Commit, disk: ServerState) -> None:
        """Be under another commit: what is known of a site stays with it, wherever it is listed.

        Forgotten are the answers of sites that held what is gone since, or hold other examples.
        """
        if self.commit == commit.order:
            return
        self.reliability = self.reliability.of(commit.places_in(self.sites))
        if self.memory is not None:
            gone = forgotten(disk.commit_of(self.commit), commit)
            for site in set(self.memory) if gone is None else set(self.memory) & gone:
                self.vacated.add(self.memory[site].file)
                del self.memory[site]
                self.anchors.pop(site, None)
        if self.commit[0] != commit.number:
            self.warmed = False  # everybody has just been there again
        self.sites = [member.identity for member in commit.members]
        for site in set(self.owed) - set(self.sites):
            del self.owed[site]
        self.commit = commit.order


def digest_of(vector: FloatArray) -> str:
    """A digest of a model's values."""
    return hashlib.sha256(vector.tobytes()).hexdigest()
