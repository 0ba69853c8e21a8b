"""Versions of what the server keeps on disk, and how an older one becomes the present one.

To change a format, append one function to its `upgrades`: what it is given is as the version before
left it, what it returns is as the present code reads it. The number follows from the list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.json_file import read_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Format(Generic[T]):
    """A format with a number: `upgrades[v]` makes version v + 1 of version v.

    Upgrades of what is on disk may die at any point, and are then made again.
    """

    what: str
    upgrades: tuple[Callable[[T], T], ...]

    @property
    def version(self) -> int:
        """The present one, which is written."""
        return len(self.upgrades)

    def upgraded(self, content: T, found: int, where: Path) -> T:
        """The content in the present version; refused if it is from a later one."""
        if found > self.version:
            raise FederationError(
                f"{where}: its {self.what} format has version {found}, this fedcommons reads up to "
                f"version {self.version}: use the fedcommons that wrote it, or a newer one"
            )
        for upgrade in self.upgrades[found:]:
            content = upgrade(content)
        return content


@dataclass(frozen=True, slots=True)
class SavedTraining:
    """The content of a checkpoint file: notes in JSON, and arrays by name.

    `rounds` and `answers` (by the site's identity) are what older versions had in the file itself,
    and the present one has beside it.
    """

    notes: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    rounds: tuple[dict[str, Any], ...] = ()
    answers: dict[str, npt.NDArray[Any]] = field(default_factory=dict)


def _with_a_number(folder: Path) -> Path:
    """State-dir 0 -> 1: it has a number; nothing else differs."""
    return folder


def _without_epochs(folder: Path) -> Path:
    """State-dir 1 -> 2: a training goes on across exchanges, so no epoch is in its folder's name.

    Of the same training in several epochs the last goes on; those before it are left as they are.
    """
    newest: dict[str, tuple[int, Path]] = {}
    for path in folder.glob("epoch*-*"):
        if found := re.fullmatch(r"epoch(\d+)-(.+)", path.name):
            number, rest = int(found[1]), found[2]
            newest[rest] = max(newest.get(rest, (0, path)), (number, path))
    for rest, (_, path) in newest.items():
        if not (folder / f"training-{rest}").exists():
            path.rename(folder / f"training-{rest}")
    return folder


def _with_a_chain(folder: Path) -> Path:
    """State-dir 2 -> 3: commits name those that they follow; sites draw an exchange together.

    The newest commit is made anew with the names of all before it, for sites that were away. The
    record of an exchange that the server drew stays, under another name, for its receipts. Was it
    not committed, it is given up: it cannot be gone on with.
    """
    # Results are read without what a federation needs: cryptography, for one.
    from fedcommons.federate.protocol.commits import MOST_FOLLOWED
    from fedcommons.federate.server.commit_files import commit_name, order_of, read_commit

    paths = sorted((folder / "commits").glob("[0-9]*-*.json"), key=order_of)
    commits = [read_commit(path) for path in paths]
    if commits and not commits[-1].follows:
        names = tuple(commit.digest.hex() for commit in commits)
        newest = replace(commits[-1].anew(), follows=names[-MOST_FOLLOWED:])
        path = folder / "commits" / commit_name(newest.order)
        durable.write_file(path, newest.record, "server.commit")
    path, given_up = folder / "exchange.json", folder / "given-up.json"
    if not path.exists():
        return folder
    try:
        number = int(json.loads(read_json(path, FederationError)["epoch"])["number"])
    except (ValueError, TypeError, LookupError) as error:
        raise FederationError(f"{path} is damaged: {error}") from None
    if number > (commits[-1].number if commits else 0):
        durable.write_file(given_up, json.dumps(number).encode(), "server.given_up")
    with durable.naming(path, "renamed"):
        path.rename(folder / "exchange-version-2.json")
    return folder


def _with_quarantine(folder: Path) -> Path:
    """State-dir 3 -> 4: there may be a quarantine.json, and commits may name who is in it."""
    return folder


def _with_signatures(folder: Path) -> Path:
    """State-dir 4 -> 5: commits may have what owners signed of what they withdrew.

    Withdrawals from before are signed by their owners when these are next asked.
    """
    return folder


def _with_moments(saved: SavedTraining) -> SavedTraining:
    """Checkpoint 0 -> 1: it has the server optimizer's moments; there were none before."""
    moments = np.zeros((0, len(saved.arrays["model"])))
    return SavedTraining(saved.notes, {**saved.arrays, "moments": moments})


def _with_files_beside_it(saved: SavedTraining) -> SavedTraining:
    """Checkpoint 1 -> 2: the history and what is remembered of each site are in files beside it."""
    notes, arrays = dict(saved.notes), dict(saved.arrays)
    rounds, rows = tuple(notes.pop("history")), arrays.pop("memory", None)
    notes["history_bytes"] = 0
    notes["memory"] = None if rows is None else {}
    answers = {}
    if rows is not None:
        identities = [site["identity"] for site in notes["about"]["sites"]]
        if rows.shape != (len(identities), len(arrays["model"])):
            raise ValueError("the memory does not fit the model and the sites")
        pairs = zip(identities, rows, strict=True)
        answers = {identity: row for identity, row in pairs if row.any()}
    return SavedTraining(notes, arrays, rounds, answers)


def _with_metrics_of_sites(saved: SavedTraining) -> SavedTraining:
    """Checkpoint 2 -> 3: rounds of the history may have metrics of sites; none did before."""
    return saved


def _with_sizes(saved: SavedTraining) -> SavedTraining:
    """Checkpoint 3 -> 4: it has the sizes of each site's last answers, and rounds who was clipped.

    Nothing is known of sizes: the bound begins anew.
    """
    return replace(saved, notes={**saved.notes, "sizes": {}})


def _with_owed(saved: SavedTraining) -> SavedTraining:
    """Checkpoint 4 -> 5: it has the questions that sites have not answered; none was open before.

    Rounds may say how long answers took, and who was late.
    """
    return replace(saved, notes={**saved.notes, "owed": {}})


def _with_secants(saved: SavedTraining) -> SavedTraining:
    """Checkpoint 5 -> 6: it has what step control knows of sites; it knows nothing yet."""
    nothing: dict[str, Any] = {"values": {}, "anchors": {}, "models": {}}
    return replace(saved, notes={**saved.notes, "secants": nothing})


def _with_anchors(saved: SavedTraining) -> SavedTraining:
    """Checkpoint 6 -> 7: it has the anchors of what is remembered; no holder corrected before."""
    return replace(saved, notes={**saved.notes, "anchors": {}})


STATE_DIR = Format(
    "state-dir",
    upgrades=(_with_a_number, _without_epochs, _with_a_chain, _with_quarantine, _with_signatures),
)
CHECKPOINT = Format(
    "checkpoint",
    upgrades=(
        _with_moments,
        _with_files_beside_it,
        _with_metrics_of_sites,
        _with_sizes,
        _with_owed,
        _with_secants,
        _with_anchors,
    ),
)
