"""The checkpoint of a training: all that the next round needs.

One file that is always whole. What it names beside it, the history and the answers that are
remembered, is on the disk before it, and is not changed while it names it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import DataError, FedcommonsError, FederationError
from fedcommons.federate.protocol.absences import Anchors
from fedcommons.federate.server import history
from fedcommons.federate.server.answer_files import Row
from fedcommons.federate.server.formats import CHECKPOINT, SavedTraining
from fedcommons.federate.server.open_question import OpenQuestion
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.federate.server.site_secants import SiteSecants
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
        history_bytes: how many bytes of the history's file hold it; 0 if it is in none yet.
        model: the trained arrays as one vector, (P,).
        memory: where the answer lies that is remembered of a site, by its identity; None if the
            estimator remembers nothing.
        unfiled: remembered answers that are in no file yet, since an older version wrote them.
        moments: what the server optimizer keeps, (its number of moments, P).
        sizes: the sizes of each site's last answers per unit of share, by its identity.
        owed: the question that a site has not answered yet, by its identity.
        secants: how fast sites' gradients change, for step control.
        anchors: at which models what is remembered of a site was computed, by its identity.
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
    history_bytes: int
    model: npt.NDArray[np.floating[Any]]
    memory: Mapping[str, Row] | None
    unfiled: Mapping[str, npt.NDArray[np.floating[Any]]] = field(default_factory=dict)
    sizes: Mapping[str, list[float]] = field(default_factory=dict)
    owed: Mapping[str, OpenQuestion] = field(default_factory=dict)
    secants: SiteSecants = field(default_factory=SiteSecants)
    anchors: Mapping[str, Anchors] = field(default_factory=dict)
    moments: FloatArray
    missed: IntArray
    rounds: IntArray
    run: IntArray
    reliability: Reliability = field(init=False)

    def __post_init__(self) -> None:
        if self.round < 0 or self.model.ndim != 1 or self.model.dtype.kind != "f":
            raise ValueError("a round or a model that cannot be")
        if self.moments.ndim != 2 or self.moments.shape[1] != len(self.model):
            raise ValueError("the optimizer's moments do not fit the model")
        if len(self.identities) != len(self.missed):
            raise ValueError("the sites are not those of the reliability")
        if not self.history or self.history[-1].round != self.round:
            raise ValueError("the history does not end with the last round")
        object.__setattr__(self, "reliability", Reliability(self.missed, self.rounds, self.run))

    @property
    def identities(self) -> list[str]:
        """The identities of the sites that `missed` and the like are of."""
        return [str(site["identity"]) for site in self.about["sites"]]

    def write(self, file: IO[bytes]) -> None:
        """Write it, but for what is in files beside it."""
        memory = self.memory
        rows = None if memory is None else {site: astuple(row) for site, row in memory.items()}
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
            "history_bytes": self.history_bytes,
            "memory": rows,
            "sizes": dict(self.sizes),
            "owed": {site: question.to_json() for site, question in self.owed.items()},
            "secants": self.secants.to_json(),
            "anchors": dict(self.anchors),
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "notes": np.frombuffer(json.dumps(notes).encode(), np.uint8),
            "model": self.model,
            "moments": self.moments,
            "missed": self.missed,
            "rounds": self.rounds,
            "run": self.run,
        }
        write_npz(file, arrays)

    @classmethod
    def decode(cls, content: bytes, path: Path) -> Checkpoint:
        """Read and check one; `path` is for errors. An older version is upgraded."""
        try:
            arrays = unpack_npz(io.BytesIO(content), path.name, None, DataError)
            notes = json.loads(arrays.pop("notes").tobytes())
            saved = SavedTraining(notes, arrays)
            saved = CHECKPOINT.upgraded(saved, int(notes.get("version", 0)), path)
            return cls._of(saved, path.parent)
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
    def _of(cls, saved: SavedTraining, folder: Path) -> Checkpoint:
        notes, arrays = saved.notes, saved.arrays
        n_bytes, memory = int(notes["history_bytes"]), notes["memory"]
        rounds = tuple(map(RoundNote.from_json, saved.rounds))
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
            history=history.read(folder, n_bytes) if n_bytes else rounds,
            history_bytes=n_bytes,
            model=arrays["model"],
            memory=None if memory is None else _rows(memory),
            unfiled=saved.answers,
            sizes={str(i): [float(x) for x in last] for i, last in notes["sizes"].items()},
            owed={str(i): OpenQuestion.from_json(one) for i, one in notes["owed"].items()},
            secants=SiteSecants.from_json(notes["secants"]),
            anchors={
                str(i): {str(x): float(n) for x, n in one.items()}
                for i, one in notes["anchors"].items()
            },
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


def _rows(memory: Mapping[str, Any]) -> dict[str, Row]:
    return {str(site): Row(*(int(number) for number in row)) for site, row in memory.items()}


def _floats(value: Any) -> tuple[float, ...] | None:
    return None if value is None else tuple(float(x) for x in value)
