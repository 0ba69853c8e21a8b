"""A store of an earlier version is upgraded, whatever kills it; one of a later version is refused.

`store-version-2.sqlite3` is what `stores.fill` wrote when version 2 was current. It stays as it is:
what was true of it then is written down in `WRITTEN`.
"""

import os
import shutil
import signal
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcommons.errors import StoreError
from fedcommons.federate.protocol import durable
from fedcommons.federate.site import store_format, store_upgrade, store_upgrades
from fedcommons.federate.site.database import FILE, row_digest
from fedcommons.federate.site.store import Store
from tests.federate.site.stores import EPOCH, SENDERS, commit_of, everything, forked

NOW = store_format.VERSION
OLD = Path(__file__).with_name("store-version-2.sqlite3")
WRITTEN = {
    "identity": "8e7c0ab9bed3fc6d05d3719e26fcba87c175b89e335fcd8a64c0557da05639a3",
    "federation": "hospitals",
    "commit": commit_of(withdrawn=((1,), (), ())).digest,
    "received": [(SENDERS[0], 7), (SENDERS[1], 8)],
    "withdrawn": 2,
    "events": [
        *["received"] * 4, "sent", "sent", "deleted", "commit", "receipt", "withdrawn",
    ],
}  # fmt: skip


def what_was_written(store: Store) -> dict[str, object]:
    return {
        "identity": store.identity.name,
        "federation": store.federation,
        "commit": store.commit_record()[0],
        "received": store.received.counts(),
        "withdrawn": len(store.withdrawals.fingerprints()),
        "events": [entry.event for entry in store.ledger.entries()],
    }


@pytest.fixture
def old(tmp_path):
    """The folder of a store of version 2."""
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    shutil.copy(OLD, folder / FILE)
    return folder


def rename_peers(run: store_upgrades.Run) -> None:
    """An upgrade that changes a table and writes the rows that it holds anew."""
    run("ALTER TABLE peers ADD COLUMN since INTEGER")
    rows = run("SELECT site, identity FROM peers")
    run("DROP TABLE peers")
    run("CREATE TABLE peers (site TEXT PRIMARY KEY, identity TEXT NOT NULL, seal BLOB NOT NULL)")
    for site, identity in rows:
        run(
            "INSERT INTO peers VALUES (?, ?, ?)",
            (f"new {site}", identity, row_digest("peers", f"new {site}", identity)),
        )


def note_upgrade(run: store_upgrades.Run) -> None:
    """An upgrade that adds something."""
    run("CREATE TABLE later (what TEXT)")
    run("INSERT INTO later VALUES ('upgraded')")


@pytest.fixture
def two_versions_later(monkeypatch):
    later = {**store_upgrades.UPGRADES, NOW: rename_peers, NOW + 1: note_upgrade}
    monkeypatch.setattr(store_format, "VERSION", NOW + 2)
    monkeypatch.setattr(store_upgrades, "VERSION", NOW + 2)
    monkeypatch.setattr(store_upgrades, "UPGRADES", later)


def check_upgraded(folder: Path) -> None:
    store = Store(folder)
    store.check()
    assert store.database.version == NOW + 2
    assert what_was_written(store) == WRITTEN
    assert set(store.keyring.trusted_peers()) == {"new s0", "new s1", "new s2"}
    assert store.database.run("SELECT * FROM later") == [("upgraded",)]
    store.close()
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_a_store_of_version_2_opens_as_it_was_written(old):
    store = Store(old)
    everything(store)
    assert what_was_written(store) == WRITTEN
    assert sum(len(part) for part in store.received.chunks(EPOCH, SENDERS[0])) == 7
    assert set(store.keyring.trusted_peers()) == {"s0", "s1", "s2"}
    store.close()


def test_every_version_has_an_upgrade_up_to_the_newest():
    assert sorted(store_upgrades.UPGRADES) == list(range(2, store_format.VERSION))


@pytest.mark.usefixtures("two_versions_later")
def test_a_store_is_upgraded_from_version_to_version(old):
    check_upgraded(old)
    check_upgraded(old)


@pytest.mark.usefixtures("two_versions_later")
def test_a_copy_is_kept_until_the_upgrade_has_succeeded(old, monkeypatch):
    """It is a store of the earlier version, which only its owner may read."""
    seen = []

    def look(point: str) -> None:
        if point == "store.upgraded:after":
            (backup,) = store_upgrade.backups(old)
            with sqlite3.connect(backup) as db:
                ((version,),) = db.execute("PRAGMA user_version")
            db.close()
            seen.append((version, backup.name, stat.S_IMODE(backup.stat().st_mode)))

    monkeypatch.setattr(durable, "reached", look)
    Store(old).close()
    assert seen == [(2, f"{FILE}.version-2", 0o600)] * NOW


def fail(run: store_upgrades.Run) -> None:
    run("DROP TABLE peers")
    raise ValueError("the tables are not as expected")


def test_a_failed_upgrade_leaves_the_store_and_a_copy(old, monkeypatch):
    monkeypatch.setattr(store_upgrades, "UPGRADES", {**store_upgrades.UPGRADES, 2: fail})
    with pytest.raises(
        StoreError, match="from format version 2 to 3, and is unchanged: the tables"
    ):
        Store(old)
    assert [path.name for path in store_upgrade.backups(old)] == [f"{FILE}.version-2"]
    monkeypatch.undo()
    store = Store(old)  # by the fedcommons before
    assert what_was_written(store) == WRITTEN
    store.close()


def test_a_copy_is_not_discarded_while_the_upgraded_store_is_damaged(old, monkeypatch):
    """An upgrade that forgets the seals of the rows that it changes, for one."""
    real = store_upgrades.UPGRADES[2]

    def forgetful(run: store_upgrades.Run) -> None:
        real(run)
        run("UPDATE peers SET site = 'x' || site")

    later = {**store_upgrades.UPGRADES, 2: forgetful}
    monkeypatch.setattr(store_upgrades, "UPGRADES", later)
    for _ in range(2):
        with pytest.raises(StoreError, match="damaged: a row of peers"):
            Store(old)
    (backup,) = store_upgrade.backups(old)
    monkeypatch.undo()
    backup.replace(old / FILE)
    store = Store(old)
    assert what_was_written(store) == WRITTEN
    store.close()


# Killed


def die_at(wanted: str, nth: int) -> Callable[[str], None]:
    passed = []

    def reached(point: str) -> None:
        if point == wanted:
            passed.append(point)
            if len(passed) == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


@pytest.mark.usefixtures("two_versions_later")
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_killed_upgrade_is_gone_on_with(old, side, nth):
    child = forked()
    if child == 0:
        durable.reached = die_at(f"store.upgraded:{side}", nth)
        Store(old)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert [path.name for path in store_upgrade.backups(old)] == [f"{FILE}.version-2"]
    check_upgraded(old)


@pytest.mark.usefixtures("two_versions_later")
def test_processes_that_open_an_old_store_together_upgrade_it_once(old):
    children = []
    for _ in range(6):
        child = forked()
        if child == 0:
            code = 1
            try:
                Store(old).close()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    check_upgraded(old)


def test_a_discarded_copy_is_overwritten(tmp_path):
    backup = tmp_path / f"{FILE}.version-2"
    shutil.copy(OLD, backup)
    other_name = tmp_path / "same file"
    other_name.hardlink_to(backup)
    store_upgrade.discard_backups(tmp_path)
    assert not backup.exists()
    assert not any(other_name.read_bytes())


# Refused


def test_a_store_of_a_later_version_is_refused_with_both_versions_and_what_to_do(old):
    with sqlite3.connect(old / FILE) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = (old / FILE).read_bytes()
    with pytest.raises(
        StoreError,
        match=rf"version 99.* up to {store_format.VERSION}: .*install that one or a newer",
    ):
        Store(old)
    assert (old / FILE).read_bytes() == before


def test_a_store_that_is_too_old_to_be_upgraded_is_refused(old):
    with sqlite3.connect(old / FILE) as db:
        db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(
        StoreError, match=rf"version 1, .* cannot upgrade to version {store_format.VERSION}"
    ):
        Store(old)
