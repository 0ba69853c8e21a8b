"""The checkpoint of a training: all that the next round needs, in one file that is always whole."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import DataError, FedcommonsError, FederationError
from fedcommons.federate.server.formats import CHECKPOINT, SavedTraining
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.npz import unpack_npz, write_npz
from fedcommons.reliability import Reliability

Arrays = tuple[tuple[str, tuple[int, ...], str], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """Where a training is after a round.

    Attributes:
        round: how many rounds are over.
        commit: the order of the commit that `memory` is of.
        initial: a digest of the model before round 1.
        about: what is trained and among whom, for the results.
        straggler_prob, owner_share: what the commit's code was made with, if it needs it.
        rehearsed: whether absences are rehearsed: they say nothing of the sites.
        warmed: whether memory was started from everybody's answer.
        schema: the names, shapes and types of the model's arrays.
        history: a note of every round.
        model: the trained arrays as one vector, (P,).
        memory: (N, P), or None if the estimator remembers nothing.
        moments: what the server optimizer keeps, (its number of moments, P).
        missed, rounds, run: what is known of how often each site answers, (N,).
    """

    round: int
    commit: tuple[int, int]
    initial: str
    about: dict[str, Any]
    straggler_prob: tuple[float, ...] | None
    owner_share: tuple[float, ...] | None
    rehearsed: bool
    warmed: bool
    schema: Arrays
    history: tuple[RoundNote, ...]
    model: FloatArray
    memory: FloatArray | None
    moments: FloatArray
    missed: IntArray
    rounds: IntArray
    run: IntArray
    reliability: Reliability = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.missed)
        if self.round < 0 or self.model.ndim != 1 or self.model.dtype.kind != "f":
            raise ValueError("a round or a model that cannot be")
        if self.memory is not None and self.memory.shape != (n, len(self.model)):
            raise ValueError("the memory does not fit the model and the sites")
        if self.moments.ndim != 2 or self.moments.shape[1] != len(self.model):
            raise ValueError("the optimizer's moments do not fit the model")
        if not self.history or self.history[-1].round != self.round:
            raise ValueError("the history does not end with the last round")
        object.__setattr__(self, "reliability", Reliability(self.missed, self.rounds, self.run))

    def encode(self) -> memoryview:
        notes = {
            "version": CHECKPOINT.version,
            "round": self.round,
            "commit": self.commit,
            "initial": self.initial,
            "about": self.about,
            "straggler_prob": self.straggler_prob,
            "owner_share": self.owner_share,
            "rehearsed": self.rehearsed,
            "warmed": self.warmed,
            "layout": self.schema,
            "history": [note.to_json() for note in self.history],
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "notes": np.frombuffer(json.dumps(notes).encode(), np.uint8),
            "model": self.model,
            "moments": self.moments,
            "missed": self.missed,
            "rounds": self.rounds,
            "run": self.run,
        }
        if self.memory is not None:
            arrays["memory"] = self.memory
        buffer = io.BytesIO()
        write_npz(buffer, arrays)
        return buffer.getbuffer()

    @classmethod
    def decode(cls, content: bytes, path: Path) -> Checkpoint:
        """Read and check one; `path` is for errors. An older version is upgraded."""
        try:
            arrays = unpack_npz(io.BytesIO(content), path.name, None, DataError)
            notes = json.loads(arrays.pop("notes").tobytes())
            saved = SavedTraining(notes, arrays)
            saved = CHECKPOINT.upgraded(saved, int(notes.get("version", 0)), path)
            return cls._of(saved)
        except FederationError:
            raise
        except KeyError as error:
            raise FederationError(f"{path} is damaged: it lacks {error}") from None
        except (
            ValueError,
            TypeError,
            AttributeError,
            LookupError,
            OverflowError,
            RecursionError,
            FedcommonsError,
        ) as error:
            raise FederationError(f"{path} is damaged: {error}") from None

    @classmethod
    def _of(cls, saved: SavedTraining) -> Checkpoint:
        notes, arrays = saved.notes, saved.arrays
        number, serial = notes["commit"]
        return cls(
            round=int(notes["round"]),
            commit=(int(number), int(serial)),
            initial=str(notes["initial"]),
            about=dict(notes["about"]),
            straggler_prob=_floats(notes["straggler_prob"]),
            owner_share=_floats(notes["owner_share"]),
            rehearsed=bool(notes["rehearsed"]),
            warmed=bool(notes["warmed"]),
            schema=tuple((str(name), tuple(shape), str(d)) for name, shape, d in notes["layout"]),
            history=tuple(RoundNote.from_json(note) for note in notes["history"]),
            model=arrays["model"],
            memory=arrays.get("memory"),
            moments=arrays["moments"],
            missed=arrays["missed"],
            rounds=arrays["rounds"],
            run=arrays["run"],
        )


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint in a file; None if there is no such file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FederationError(f"{path} is damaged: {error}") from None
    return Checkpoint.decode(content, path)


def _floats(value: Any) -> tuple[float, ...] | None:
    return None if value is None else tuple(float(x) for x in value)
