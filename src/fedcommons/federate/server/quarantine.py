"""Sites that are left out until the operator says otherwise, and why.

Nobody's mistake ends a run for the others. Who is quarantined is not asked for answers and has no
part in an exchange; a commit says so to all members, so that the shares of the others add up. What
others hold of its shared examples still counts, unless it was set aside as a whole. The operator
sees the list in the log, in results and with `fedcommons federate quarantine`, which lifts it too
(`lifting`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.json_file import read_json

logger = shown.logger(__name__)

NAME = "quarantine.json"
QUARANTINED = "quarantined"  # what becomes of such a site in a round


@dataclass(frozen=True, slots=True)
class Offence:
    """What a site did.

    Attributes:
        why: in a few words, for the operator.
        set_aside: whether copies of its examples are not to count either.
        examples: how many examples it claimed, if that is what is held back.
    """

    why: str
    set_aside: bool = False
    examples: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A site in quarantine: its name and identity, what it did, and since when, in UTC."""

    site: str
    identity: str
    why: str
    since: str
    set_aside: bool = False
    examples: int | None = None


class Quarantine:
    """The list, in a file of the state-dir; and the claims of examples that were approved."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self.entries: dict[str, Entry] = {}  # by identity
        self.approved: dict[str, int] = {}  # by identity: up to so many examples
        try:
            content = read_json(self._path, FederationError)
            entries = [Entry(**entry) for entry in content["quarantined"]]
            approved = {str(one): int(n) for one, n in content["approved"].items()}
        except FileNotFoundError:
            return
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise FederationError(f"{self._path} is damaged: {error}") from None
        self.entries = {entry.identity: entry for entry in entries}
        self.approved = approved

    def __contains__(self, identity: str) -> bool:
        return identity in self.entries

    def put(self, identity: str, site: str, offence: Offence) -> None:
        """Leave a site out from now on; who is set aside once stays so."""
        known = self.entries.get(identity)
        if known is not None and (known.set_aside or not offence.set_aside):
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.entries[identity] = Entry(
            site, identity, offence.why, now, offence.set_aside, offence.examples
        )
        self._save()
        logger.error(
            "%s (%s) is quarantined: %s; the others go on, and `fedcommons federate quarantine` "
            "lifts it",
            *(site, identity[:8], offence.why),
        )

    def find(self, name: str) -> Entry:
        """A site on the list, by its name or the first digits of its key."""
        found = [
            entry
            for entry in self.entries.values()
            if entry.site == name or (len(name) >= 8 and entry.identity.startswith(name))
        ]
        if len(found) != 1:
            listed = ", ".join(f"{e.site} ({e.identity[:8]})" for e in self.entries.values())
            raise FederationError(
                f"lift must name one site in quarantine, or the first eight digits of its key, got "
                f"{name!r}; in quarantine: {listed or 'nobody'}"
            )
        (entry,) = found
        return entry

    def lift(self, entry: Entry) -> None:
        """Take a site off the list; what it claimed is approved."""
        del self.entries[entry.identity]
        if entry.examples is not None:
            self.approved[entry.identity] = entry.examples
        self._save()

    def listed(self) -> list[dict[str, Any]]:
        """The entries by name, as results have them."""
        found = sorted(self.entries.values(), key=lambda entry: (entry.site, entry.identity))
        return [
            {name: value for name, value in asdict(entry).items() if value is not None}
            for entry in found
        ]

    def _save(self) -> None:
        content = {
            "quarantined": [asdict(entry) for entry in self.entries.values()],
            "approved": self.approved,
        }
        durable.write_file(self._path, json.dumps(content).encode(), "server.quarantine")


def enforced(quarantine: Quarantine, commit: Commit) -> Commit:
    """The next commit, in which all on the list are quarantined; the same if they are."""
    for place, member in enumerate(commit.members):
        entry = quarantine.entries.get(member.identity)
        if entry is None or not commit.present[place]:
            continue
        if place not in (commit.set_aside if entry.set_aside else commit.quarantined):
            commit = commit.with_quarantine([place], set_aside=entry.set_aside)
    return commit


def with_offenders(
    quarantine: Quarantine, commit: Commit, offenders: Mapping[int, Offence]
) -> Commit:
    """The next commit, without the answers of these members, by place; they are on the list."""
    for place, offence in offenders.items():
        member = commit.members[place]
        quarantine.put(member.identity, member.site, offence)
    return enforced(quarantine, commit)


def names(entries: Iterable[Entry]) -> str:
    return ", ".join(sorted(entry.site for entry in entries))
