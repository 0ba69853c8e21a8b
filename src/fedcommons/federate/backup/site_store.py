"""What a backup of a site's store holds: its database, its policy and what it remembers of chunks.

Inputs that were unpacked are made again from the data file; keys of SuperNodes and pinned keys are
not in the store.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.site import chunk_memory, policy, store_format
from fedcommons.federate.site.database import FILE, Database
from fedcommons.federate.site.status import names_of
from fedcommons.federate.site.store import Store

KIND, VERSION = "store", store_format.VERSION


def is_one(folder: Path) -> bool:
    return (folder / FILE).exists()


def copy(folder: Path, target: Path) -> dict[str, Any]:
    """Copy a store as it is at one moment, whoever uses it meanwhile; what it is of.

    The copy is in the present format and read as a whole. What is remembered of chunks is copied
    after the database: where that went on meanwhile, it counts for nothing.
    """
    with contextlib.closing(Database(folder)) as database:
        database.copy_to(target / FILE)
    with durable.naming(target, "written"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(folder / policy.FILE, target / policy.FILE)
        for path in (folder / chunk_memory.FOLDER).glob("[!.]*"):
            (target / chunk_memory.FOLDER).mkdir(exist_ok=True, mode=0o700)
            with contextlib.suppress(FileNotFoundError):  # it was replaced
                shutil.copyfile(path, target / chunk_memory.FOLDER / path.name)
    return about(target)


def version_of(folder: Path) -> int:
    with contextlib.closing(Database(folder)) as database:
        return database.version


def about(folder: Path) -> dict[str, Any]:
    """What a store is of, read as a whole; damage raises an error."""
    with contextlib.closing(Store(folder)) as store:
        store.check()
        policy.read_policy(folder)
        record = store.commit_record()[1]
        commit = Commit.decode(record) if record else None
        own = [identity.name for identity in store.keyring.identities]
        names = names_of(store)
        gone = store.withdrawals
        return {
            "site": next((names[name] for name in own if name in names), None),
            "identity": own[-1],
            "federation": store.federation,
            "commit": list(commit.order) if commit else None,
            "withdrawn": "everything" if gone.everything else len(gone.fingerprints()),
            "exchanges": store.given.n_exchanges,
        }


def note_restored(folder: Path, made: str, digest: bytes) -> None:
    """From now on the store knows that it may be older than what it took part in."""
    with contextlib.closing(Store(folder)) as store:
        store.note_restored(made, digest)
