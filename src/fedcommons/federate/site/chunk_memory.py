"""What a site remembers of its chunks: the part of its data that fits into a question's time.

What it holds is cut into 1, 2, 4, ... chunks: example k of an order that nobody else knows into
chunk k mod C, so that twice as many chunks are halves of these. So no difference of answers is
about less than a chunk of the finest cut, however often a server has it cut anew by the time that
it leaves. With other examples, or shares, the order is another one (`batch_order`). Each chunk's
last gradient r is a file; their sum is h, what the site answered for all that it holds. Where
holders correct what is remembered of absent owners, it also notes the chunks' anchors: the models
that they were last computed at.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import FloatArray, IntArray
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.site.holdings import Holdings

FOLDER, NOTES = "chunks", "notes.json"
MOST_CHUNKS = 64
MOST_BYTES = 1 << 32  # of all chunks' gradients
ROOM = 0.8  # chunks are joined if two of them take less than so much of what fits


@dataclass(frozen=True, slots=True)
class Notes:
    """What is known of the chunks.

    Attributes:
        about: which training and which examples they are of.
        number: C, how many there are; 0 before the first question.
        turn: the chunk that is next if they take turns.
        pace: seconds for an example; None before the first answer.
        anchors: of how many examples of each chunk which model is the anchor, "" where they were
            never computed. Cutting anew mixes them. Empty if nobody asks for them.
    """

    about: str
    number: int = 0
    turn: int = 0
    pace: float | None = None
    anchors: tuple[dict[str, float], ...] = ()


class ChunkMemory:
    """The chunks of one training at one site, in its store's folder.

    What is remembered of another training, or of other examples, is deleted when it is opened.
    """

    def __init__(
        self,
        store: Path,
        training: str,
        held: str,
        n_examples: int,
        n_params: int,
        dtype: np.dtype[Any],
        order: IntArray | None = None,
    ) -> None:
        """`held` is `key_of` what the site holds; it is cut in this `order` of it, or as it is."""
        self.order = np.arange(n_examples) if order is None else order
        self.folder, self.n_examples, self.n_params, self.dtype = (
            *(store / FOLDER, n_examples, n_params),
            np.dtype(dtype),
        )
        about = f"{held} {training} {n_params} {self.dtype.str}"
        self.notes = _notes(self.folder) or Notes("")
        if self.notes.about != about:
            clear(store)
            self.notes = Notes(about)
        durable.make_folder(self.folder)

    def places(self, chunk: int) -> IntArray:
        """Which of the examples that the site holds are in a chunk."""
        return self.order[chunk :: self.notes.number]

    def cut(self, seconds: float, n_own: int, least: int, beside: float = 0) -> None:
        """Have as many chunks as it takes for one to fit into so much time.

        Each has `least` of the site's own examples, `n_own` in all; before anything is known of how
        long an example takes they are as small as that allows. So many examples `beside` them are
        to be computed in the same number of jobs.
        """
        most = min(
            MOST_CHUNKS,
            (n_own or self.n_examples) // max(1, least),
            MOST_BYTES // max(1, self.n_params * self.dtype.itemsize),
        )
        pace, number = self.notes.pace, 1
        fit = 0.0 if pace is None else seconds / max(pace, 1e-12)
        in_all = self.n_examples + int(np.ceil(beside))
        while 2 * number <= most and -(-in_all // number) > fit * (
            1 if number >= self.notes.number else ROOM
        ):
            number *= 2
        if not self.notes.number:
            self._remember(number=number)
        while self.notes.number > number:
            self._join()
        while self.notes.number < number:
            self._halve()

    def sum(self) -> FloatArray:
        """h, in float64: (P,)."""
        total = np.zeros(self.n_params)
        for chunk in range(self.notes.number):
            total += self.last(chunk)
        return total

    def last(self, chunk: int) -> npt.NDArray[Any]:
        """r, the gradient of a chunk as it was last remembered, 0 before that: (P,)."""
        path = self._path(self.notes.number, chunk)
        with contextlib.suppress(OSError):
            found = np.fromfile(path, self.dtype)
            if len(found) == self.n_params and np.isfinite(found).all():
                return found
        return np.zeros(self.n_params, self.dtype)

    def remember(
        self,
        chunk: int,
        gradient: npt.NDArray[Any],
        seconds: float,
        *,
        anchor: str | None = None,
    ) -> None:
        """Keep a chunk's gradient, which took so long; it is the next one's turn.

        Its `anchor` names the model that it was computed at, if somebody wants to know.
        """
        self._write(self.notes.number, chunk, gradient)
        size = len(self.places(chunk))
        now = seconds / max(1, size)
        pace = now if self.notes.pace is None else (self.notes.pace + now) / 2
        anchors = [self._anchors_of(k) for k in range(self.notes.number)]
        if anchor is not None:
            anchors[chunk] = {anchor: float(size)}
            self.notes = replace(self.notes, anchors=tuple(anchors))
        self._remember(turn=(chunk + 1) % self.notes.number, pace=pace)

    def anchors(self) -> dict[str, float]:
        """How many examples were last computed at which model, "" for those that never were."""
        return _together(self._anchors_of(k) for k in range(self.notes.number))

    def _anchors_of(self, chunk: int) -> dict[str, float]:
        known = self.notes.anchors
        return known[chunk] if known else {"": float(len(self.places(chunk)))}

    def _join(self) -> None:
        """Half as many chunks, each of two."""
        half = self.notes.number // 2
        for chunk in range(half):
            both = self.last(chunk).astype(np.float64) + self.last(chunk + half)
            self._write(half, chunk, both)
        pairs = [(k, k + half) for k in range(half)]
        self._cut_into(half, [_together(map(self._anchors_of, pair)) for pair in pairs])

    def _halve(self) -> None:
        """Twice as many chunks: what is remembered of one is shared by size."""
        n = self.notes.number
        anchors: list[dict[str, float]] = [{}] * (2 * n)
        for chunk in range(n):
            r, size = self.last(chunk).astype(np.float64), len(self.places(chunk))
            for part in (chunk, chunk + n):
                share = len(range(part, self.n_examples, 2 * n)) / max(1, size)
                self._write(2 * n, part, r * share)
                anchors[part] = {x: share * m for x, m in self._anchors_of(chunk).items()}
        self._cut_into(2 * n, anchors)

    def _cut_into(self, number: int, anchors: Sequence[dict[str, float]]) -> None:
        """From now on there are so many: it is so when the notes say so."""
        now = tuple(anchors) if self.notes.anchors else ()
        self._remember(number=number, turn=self.notes.turn % number, anchors=now)
        for path in self.folder.glob("*-*.bin"):
            if not path.name.startswith(f"{number}-"):
                path.unlink(missing_ok=True)

    def _path(self, number: int, chunk: int) -> Path:
        return self.folder / f"{number}-{chunk}.bin"

    def _write(self, number: int, chunk: int, gradient: npt.NDArray[Any]) -> None:
        content = np.ascontiguousarray(gradient, self.dtype).tobytes()
        durable.write_file(self._path(number, chunk), content, "store.chunk")

    def _remember(self, **changes: Any) -> None:
        self.notes = replace(self.notes, **changes)
        content = json.dumps(asdict(self.notes)).encode()
        durable.write_file(self.folder / NOTES, content, "store.chunks")


def _together(anchors: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in anchors:
        for model, n in one.items():
            found[model] = found.get(model, 0.0) + n
    return found


def key_of(commit: Commit, me: int, held: Holdings) -> str:
    """Another one for other examples, or other shares of them."""
    parts = (commit.epoch, commit.members[me].manifest, commit.code)
    found = hashlib.sha256(repr(parts).encode())
    found.update(held.own.tobytes() + held.shares.tobytes())
    for sender, numbers in held.senders:
        found.update(repr(sender).encode() + numbers.tobytes())
    return found.hexdigest()


def clear(store: Path, *, but: str | None = None) -> None:
    """Delete what is remembered, but for chunks of what has this key."""
    folder = store / FOLDER
    notes = _notes(folder)
    if but is not None and notes is not None and notes.about.startswith(f"{but} "):
        return
    if folder.exists():
        (folder / NOTES).unlink(missing_ok=True)  # first: without it nothing counts
        shutil.rmtree(folder)


def _notes(folder: Path) -> Notes | None:
    """None if there are none, or if they are damaged: they are made anew."""
    try:
        found = Notes(**json.loads((folder / NOTES).read_bytes()))
        pace = None if found.pace is None else float(found.pace)
        anchors = tuple({str(x): float(n) for x, n in one.items()} for one in found.anchors)
        if not 0 <= int(found.turn) <= int(found.number) or not isinstance(found.about, str):
            return None
        if len(anchors) not in (0, int(found.number)):
            return None
        number, turn = int(found.number), int(found.turn)
        return replace(found, number=number, turn=turn, pace=pace, anchors=anchors)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
