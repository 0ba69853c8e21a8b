"""Brings a store of an earlier version up to date, and keeps a copy until that has succeeded."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from fedcommons import shown
from fedcommons.errors import StoreError
from fedcommons.federate.protocol import durable
from fedcommons.federate.site import store_format, store_upgrades
from fedcommons.federate.site.database import FILE, Database

logger = shown.logger(__name__)


def upgrade(database: Database) -> None:
    """Go from version to version, each in one transaction, until the store has the newest.

    Several processes may do this at once, and each may be killed: whoever opens the store next goes
    on. A failed upgrade leaves the store as it was.
    """
    while (version := database.version) < store_format.VERSION:
        try:
            with database.writing("store.upgraded"):
                if database.version == version:  # else another process was faster
                    _make_backup(database, version)
                    store_upgrades.UPGRADES[version](database.run)
                    database.run(f"PRAGMA user_version = {version + 1}")
        except Exception as error:
            raise StoreError(
                f"store {database.folder} could not be upgraded from format version {version} to "
                f"{version + 1}, and is unchanged: {error}"
            ) from error
        logger.info("store %s is upgraded to format version %d", database.folder, version + 1)


def backups(folder: Path) -> list[Path]:
    """The copies of a store from before its upgrade."""
    return sorted(folder.glob(f"{FILE}.version-*"))


def discard_backups(folder: Path) -> None:
    """Overwrite and remove them: they contain keys and examples."""
    for path in [*backups(folder), *folder.glob(f"{FILE}.*.part")]:
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            durable.overwrite(path)
            path.unlink()


def _make_backup(database: Database, version: int) -> None:
    """Copy the store to a file beside it, whole or not at all, unless there is a copy already.

    Call it inside a transaction, before anything is changed: it copies what is committed.
    """
    folder = database.folder
    if backups(folder):
        return
    descriptor, name = tempfile.mkstemp(prefix=f"{FILE}.", suffix=".part", dir=folder)
    os.close(descriptor)  # mkstemp makes a file that only its owner may read
    part = Path(name)
    try:
        database.copy_to(part)
        durable.move_into_place(part, folder / f"{FILE}.version-{version}")
    finally:
        part.unlink(missing_ok=True)
