"""What an operator sees of a federation, read from the server's folder while a run goes on.

Nothing is locked or written, so that looking disturbs nobody.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server import history, live_round
from fedcommons.federate.server.commit_files import order_of, read_commit
from fedcommons.federate.server.happenings import Happening, happenings
from fedcommons.federate.server.quarantine import Entry, Quarantine
from fedcommons.federate.server.round_notes import RoundNote, SiteNote
from fedcommons.json_file import read_json

SIMULATED = "simulation"  # where a run in one process keeps what it has, in its state-dir


@dataclass(frozen=True, slots=True)
class SiteView:
    """A site as it looks over all rounds.

    Attributes:
        asked, on_time, late: in how many rounds it was asked, answered in time, and had a late
            answer that counts.
        last_late_by: by how many seconds its last late answer was late.
        straggler_prob: as it was used for the last round.
        quarantined: why, if it is.
        notes: of the rounds, the last one last; `seconds` of each are how long its answer took.
        measured: what it measured of the model last, by name.
    """

    site: str
    examples: int
    present: bool
    asked: int
    on_time: int
    late: int
    last_late_by: float | None
    straggler_prob: float | None
    quarantined: str
    notes: Sequence[SiteNote]
    measured: dict[str, float]


@dataclass(frozen=True, slots=True)
class Overview:
    """A federation at one moment.

    Attributes:
        training: the folder of the training that was written last; None if there is none yet.
        metric: the first of those that are measured; None if none is.
        live: the round that goes on, as `live_round` writes it; empty if nothing was written.
        happenings: all of them, the newest last.
        seconds_since: how long ago the server wrote something.
    """

    federation: str
    training: str | None
    metric: str | None
    notes: Sequence[RoundNote]
    sites: Sequence[SiteView]
    live: dict[str, Any]
    happenings: Sequence[Happening]
    seconds_since: float | None

    @property
    def round(self) -> int:
        return self.notes[-1].round if self.notes else 0

    @property
    def is_over(self) -> bool:
        """Whether the run has ended as it should."""
        return bool(self.live.get("is_over"))


@dataclass(slots=True)
class Watcher:
    """Looks at a server's folder again and again; the history is read on where it was."""

    state_dir: Path
    _history: Path | None = None
    _notes: list[RoundNote] = field(default_factory=list)
    _read: bytes = b""  # the end of what was read, to notice that it was written anew
    _length: int = 0
    _commits: dict[Path, Commit] = field(default_factory=dict)

    @classmethod
    def of(cls, state_dir: Path) -> Watcher:
        for folder in (state_dir, state_dir / SIMULATED):
            if (folder / "format.json").exists():
                return cls(folder)
        raise ArgumentError(f"state-dir must be a server's folder, got {state_dir}")

    def look(self) -> Overview:
        folder = self._training()
        notes = [] if folder is None else self._read_history(folder / history.NAME)
        commits = self._read_commits()
        live = {} if folder is None else _live(folder / live_round.NAME)
        quarantine = Quarantine(self.state_dir)
        written = [] if folder is None else [_modified(folder / history.NAME)]
        written += [_modified(path) for path in self._commits]
        written.append(live.get("written", 0.0))
        newest = max(written, default=0.0)
        return Overview(
            commits[-1].federation if commits else "",
            None if folder is None else folder.name,
            _metric(notes),
            tuple(notes),
            _views(commits[-1], notes, quarantine) if commits else (),
            live,
            happenings(commits, notes),
            max(time.time() - newest, 0.0) if newest else None,
        )

    def _training(self) -> Path | None:
        paths = list(self.state_dir.glob(f"training-*/{history.NAME}"))
        paths += self.state_dir.glob(f"training-*/{live_round.NAME}")
        return max(paths, key=_modified).parent if paths else None

    def _read_history(self, path: Path) -> list[RoundNote]:
        """The notes so far; a last line that is being written is left for the next time."""
        if path != self._history:
            self._history = path
            self._forget()
        try:
            with path.open("rb") as file:
                file.seek(self._length - len(self._read))
                if file.read(len(self._read)) != self._read:  # a run that died wrote more
                    self._forget()
                    file.seek(0)
                content = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FederationError(f"{path} cannot be read: {error}") from None
        whole = content[: content.rfind(b"\n") + 1]
        try:
            self._notes += [RoundNote.from_json(json.loads(one)) for one in whole.splitlines()]
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise FederationError(f"{path} is damaged: {error}") from None
        self._length += len(whole)
        self._read = (self._read + whole)[-256:]
        return self._notes

    def _forget(self) -> None:
        self._notes, self._read, self._length = [], b"", 0

    def _read_commits(self) -> list[Commit]:
        paths = sorted((self.state_dir / "commits").glob("[0-9]*-*.json"), key=order_of)
        self._commits = {path: self._commits.get(path) or read_commit(path) for path in paths}
        return list(self._commits.values())


def _views(
    commit: Commit, notes: Sequence[RoundNote], quarantine: Quarantine
) -> tuple[SiteView, ...]:
    by_site: dict[str, list[SiteNote]] = {}
    measured: dict[str, dict[str, float]] = {}
    for note in notes:
        for of_site in note.sites:
            by_site.setdefault(of_site.site, []).append(of_site)
        for found in (note.training, note.evaluation):
            for site, numbers in found.by_site.items():
                measured.setdefault(site, {}).update(numbers)
    found_views = []
    for place, member in enumerate(commit.members):
        of_it = by_site.get(member.site, [])
        late = [one.late_by for one in of_it if one.asked_in is not None]
        entry: Entry | None = quarantine.entries.get(member.identity)
        found_views.append(
            SiteView(
                member.site,
                member.n_examples,
                commit.present[place],
                sum(one.asked for one in of_it),
                sum(one.answered for one in of_it),
                sum(one.late_counts for one in of_it),
                late[-1] if late else None,
                of_it[-1].straggler_prob if of_it else None,
                entry.why if entry else "",
                tuple(of_it),
                measured.get(member.site, {}),
            )
        )
    return tuple(found_views)


def _metric(notes: Sequence[RoundNote]) -> str | None:
    """The first metric of evaluations, else the first of all that are measured."""
    for name in ("evaluation", "training"):
        for note in notes:
            if found := getattr(note, name).pooled:
                return str(next(iter(found)))
    return None


def _live(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path, FederationError)
    except (FileNotFoundError, FederationError):  # it is there for show
        return {}
    try:
        numbers = {name: float(found[name]) for name in ("round", "began", "deadline", "written")}
        sites = {str(site): dict(of_it) for site, of_it in found["sites"].items()}
        ended = found["ended"] and float(found["ended"])
    except (LookupError, TypeError, ValueError, AttributeError):
        return {}
    is_over = bool(found.get("is_over"))
    return {**numbers, "round": int(numbers["round"]), "ended": ended, "is_over": is_over,
            "sites": sites}  # fmt: skip


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
