"""Lifting a quarantine: the operator asks for it in a file, whether or not a run goes on.

The server holds its folder while it runs, and reads what was asked between rounds. A request names
the entry that it is about, so that one which was forgotten does not lift a later quarantine. The
commit comes first, then the list, then the request goes: whoever dies in between does it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.federation import ServerFederation
from fedcommons.federate.server.quarantine import Entry, Quarantine
from fedcommons.federate.server.state import ServerState
from fedcommons.json_file import read_json

logger = shown.logger(__name__)

REQUESTS = "lifts"  # a folder in the state-dir, a file for each site


def lift(folder: Path, name: str) -> tuple[Entry, bool]:
    """Ask for a site to take part again, by its name or the first digits of its key.

    Returns its entry, and whether it is off the list already: no run holds the folder.
    """
    entry = Quarantine(folder).find(name)
    durable.make_folder(folder / REQUESTS)
    path = folder / REQUESTS / f"{entry.identity}.json"
    content = {"identity": entry.identity, "since": entry.since, "why": entry.why}
    durable.write_file(path, json.dumps(content).encode(), "server.lift")
    try:
        state = ServerState(folder)
    except durable.FolderInUseError:
        return entry, False
    try:
        _take_up(folder, Quarantine(folder), state.commit, state.save_commit)
    finally:
        state.close()
    return entry, True


def lift_what_was_asked(federation: ServerFederation) -> list[str]:
    """Lift what the operator asked for since; the identities of these sites."""
    folder, quarantine = federation.state.folder, federation.quarantine
    found = _take_up(folder, quarantine, lambda: federation.commit_or_none, federation.record)
    for entry in found:
        logger.info(
            "%s (%s) is in quarantine no more: the operator says so", entry.site, entry.identity[:8]
        )
    return [entry.identity for entry in found]


def _take_up(
    folder: Path,
    quarantine: Quarantine,
    present: Callable[[], Commit | None],
    record: Callable[[Commit], None],
) -> list[Entry]:
    lifted = []
    for path in sorted((folder / REQUESTS).glob("*.json")):
        if (entry := _asked_for(path, quarantine)) is not None:
            commit = present()
            place = None if commit is None else commit.index(entry.identity)
            if commit is not None and place is not None and place in commit.quarantined:
                record(commit.lifted(place))
            quarantine.lift(entry)
            lifted.append(entry)
        durable.remove_file(path, "server.lifted")
    return lifted


def _asked_for(path: Path, quarantine: Quarantine) -> Entry | None:
    """The entry that a request is about; None if it is not there any more."""
    try:
        content = read_json(path, FederationError)
        entry = quarantine.entries.get(str(content["identity"]))
    except (FederationError, ValueError, TypeError, LookupError) as error:
        logger.warning("%s is damaged, and nothing is lifted by it: %s", path, error)
        return None
    is_it = (
        entry is not None and {"since": entry.since, "why": entry.why}.items() <= content.items()
    )
    return entry if is_it else None
