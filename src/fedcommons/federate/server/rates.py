"""How long the server's steps are: by the settings, and at most 1/L with step control."""

from __future__ import annotations

import numpy as np

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.holders import held_by_each
from fedcommons.federate.protocol.model_schema import ModelSchema
from fedcommons.federate.server import estimation
from fedcommons.federate.server.answer_files import AnswerFiles
from fedcommons.federate.server.round_answers import RoundAnswers
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.server.training_state import TrainingState


class Rates:
    """The step on the mean gradient, round by round."""

    def __init__(self, settings: Settings, files: AnswerFiles, schema: ModelSchema) -> None:
        self.settings, self.files, self.schema = settings, files, schema

    def send(self, state: TrainingState, in_round: int) -> None:
        """The present model is sent in this round."""
        if self.settings.step_control:
            state.secants.send(in_round, self.schema.vector(state.model))

    def hear(
        self, state: TrainingState, found: RoundAnswers, commit: Commit, in_round: int
    ) -> None:
        """Answers came, and are not remembered yet."""
        if not self.settings.step_control:
            return
        memory, rows = state.memory or {}, found.all_rows
        places = [place for place, row in enumerate(rows) if row is not None]
        identities = [commit.members[place].identity for place in places]
        known = [memory.get(identity) for identity in identities]
        changes = estimation.changes(self.files, [rows[place] for place in places], known)
        changes[[row is None for row in known]] = np.nan
        late = found.late
        asked_in = [late[place].round if place in late else in_round for place in places]
        weights = held_by_each(commit.record)[1][places]
        state.secants.hear(identities, asked_in, changes, weights)
        open_in = [question.round for question in state.owed.values()]
        state.secants.forget(memory | dict.fromkeys(identities), [*open_in, in_round])

    def of(self, state: TrainingState, commit: Commit) -> float:
        """The step of the next round."""
        rate = self.settings.learning_rate * self.settings.decay**state.round
        if not self.settings.step_control:
            return rate
        active = np.flatnonzero(commit.active)
        identities = [commit.members[place].identity for place in active]
        weights = held_by_each(commit.record)[1][active]
        return min(rate, state.secants.longest_step(identities, weights))
