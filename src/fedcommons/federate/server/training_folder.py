"""A training's folder on the server's disk."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.model_schema import ModelSchema, NamedArrays
from fedcommons.federate.server import history
from fedcommons.federate.server.answer_files import AnswerFiles, Row
from fedcommons.federate.server.checkpoints import Checkpoint
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.npz import read_npz, write_npz

logger = shown.logger(__name__)


class TrainingFolder:
    """The folder of one training, while it runs.

    checkpoint.npz       where it is after the last finished round; it names what counts of
    history.jsonl        a line for each round, and
    answers/000012.float32  answers: those that the estimator remembers, and those of this round;
    scale.json           what inputs are brought to one scale with, if they are;
    untrained.npz        the model's arrays that no round changes, as the training began with them,
    and, when a run ends, the results: run.json, model.npz, rounds.parquet, answers.parquet
    """

    def __init__(self, path: Path, schema: ModelSchema) -> None:
        durable.make_folder(path)
        self.path, self.schema = path, schema
        self.answers = AnswerFiles(path / "answers", schema.n_params, schema.precision)
        self._history_bytes = self._n_noted = 0

    def go_on_from(self, saved: Checkpoint) -> dict[str, Row] | None:
        """Where what the checkpoint remembers lies, checked; whatever it does not name is removed.

        What an older version had in the checkpoint itself is put into files.
        """
        self._history_bytes = saved.history_bytes
        self._n_noted = len(saved.history) if saved.history_bytes else 0
        if saved.memory is None:
            self.answers.sweep(())
            return None
        for row in saved.memory.values():
            self.answers.check(row)
        self.answers.sweep(saved.memory.values())
        unfiled = {site: self.answers.put([row]) for site, row in saved.unfiled.items()}
        return {**saved.memory, **unfiled}

    def untrained(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that the training began with and no round changes; none if none were kept."""
        path = self.path / "untrained.npz"
        return read_npz(path, None, FederationError) if path.exists() else {}

    def save_untrained(self, arrays: NamedArrays) -> None:
        """Keep them for whoever goes on, from an initial model with other values perhaps."""
        if arrays:
            buffer = io.BytesIO()
            write_npz(buffer, arrays)
            durable.write_file(self.path / "untrained.npz", buffer.getbuffer(), "server.untrained")

    def append_to_history(self, notes: list[RoundNote]) -> int:
        """Have all these rounds on the disk; how many bytes of the file they are."""
        fresh = notes[self._n_noted :]
        self._history_bytes = history.append(self.path, fresh, self._history_bytes)
        self._n_noted = len(notes)
        return self._history_bytes

    def save(self, checkpoint: Checkpoint, *, reuse: bool) -> None:
        """Make this the checkpoint; then what it does not name can go, or be written over."""
        path = self.path / "checkpoint.npz"
        durable.write_file(path, checkpoint.write, "server.checkpoint")
        self.answers.sweep((checkpoint.memory or {}).values(), reuse=reuse)

    def tidy(self, memory: Mapping[str, Row] | None) -> None:
        """Remove the files that the next round would have written over."""
        self.answers.sweep((memory or {}).values())
