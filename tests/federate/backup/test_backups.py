"""A backup is the folder as it was at one moment; what is restored goes on, or is refused."""

import hashlib
import io
import json
import shutil
import stat
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedcommons.errors import ArgumentError, FedcommonsError, FederationError
from fedcommons.federate.backup import backups, sealing, server_state
from fedcommons.federate.protocol.refusals import ExchangeNotApproved
from fedcommons.federate.server import checkpoints
from fedcommons.federate.site.given import NEXT, check_approved
from fedcommons.federate.site.policy import Policy
from fedcommons.federate.site.store import Store
from fedcommons.stragglers import Bernoulli
from tests.cli.command import run
from tests.federate.server.test_formats import unpacked
from tests.federate.site.test_store_upgrade import OLD
from tests.federate.tiny import Tiny, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")

SETTINGS = {"stragglers": Bernoulli(0.4), "straggler_prob": 0.4, "seed": 4, "estimator": "memory"}
PASSPHRASE = "correct horse battery"  # noqa: S105 (of these tests)


class Quick:
    """Instead of scrypt, which is slow on purpose."""

    def __init__(self, salt: bytes, *_: object) -> None:
        self.salt = salt

    def derive(self, passphrase: bytes) -> bytes:
        return (self.salt + passphrase + bytes(32))[:32]


@pytest.fixture(autouse=True)
def _quick(request, monkeypatch):
    if "scrypt" not in request.node.name:
        monkeypatch.setattr(sealing, "Scrypt", Quick)


def listing(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("[!.]*"))
        if path.is_file()
    }


def put_back(path: Path, folder: Path, passphrase: str | None = None) -> None:
    """As an operator does it: what was there goes elsewhere."""
    if folder.exists():
        shutil.move(folder, folder.with_name(f"{folder.name}-lost-{path.name}"))
    backups.restore(path, folder, passphrase)


def test_a_state_dir_and_stores_that_were_restored_reach_the_same_model(tiny):
    """All disks are lost after round 5; what was saved after round 2, sealed, goes on."""
    tiny.run(2, **SETTINGS)
    (tiny.folder / "a" / "policy.toml").write_text("min-sites = 2\n")
    for name in ("server", *tiny.names):
        made = backups.back_up(tiny.folder / name, tiny.folder / f"{name}.backup", PASSPHRASE)
        mode = (tiny.folder / f"{name}.backup").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
        if name == "server":
            assert list(made.about["rounds"].values()) == [2]
        else:
            assert made.about["site"] == name
    model = tiny.run(5, **SETTINGS)
    tiny.close()
    for name in ("server", *tiny.names):
        put_back(tiny.folder / f"{name}.backup", tiny.folder / name, PASSPHRASE)
    assert (tiny.folder / "a" / "policy.toml").read_text() == "min-sites = 2\n"
    again = tiny.run(5, **SETTINGS)
    np.testing.assert_array_equal(again, model)
    assert not list(tiny.folder.glob(".*.part"))


def test_what_was_withdrawn_after_the_backups_does_not_come_back(tmp_path, caplog):
    """Server, owner and a holder are as they were before; the others tell what was withdrawn."""
    five = Tiny(tmp_path, sizes=(4, 6, 5, 7, 4), copies=4)
    five.run(2)
    five.close()
    for name in ("server", "a", "b"):
        backups.back_up(five.folder / name, five.folder / f"{name}.backup")
    five.withdraw("b", 0, 1)
    five.run(3)
    five.close()
    assert [entry.examples for entry in five.events("a", "deleted")] == [1]
    for name in ("server", "a", "b"):
        put_back(five.folder / f"{name}.backup", five.folder / name)
    assert not five.events("a", "deleted")
    _, notes = rounds_up_to(4, five)
    assert outcomes(notes[-1]) == {
        "a": "answered", "b": "StoreIsOlder", **dict.fromkeys("cde", "answered")
    }  # fmt: skip
    assert "withdraw rows [0] of the data file again" in caplog.text
    assert [entry.examples for entry in five.events("a", "deleted")] == [1]
    five.withdraw("b", 0, 1)
    commit, notes = rounds_up_to(5, five)
    assert set(outcomes(notes[-1]).values()) == {"answered"}
    assert commit.order == (1, 1)


def rounds_up_to(n, federation):
    """The commit and the rounds of a run."""
    grid = federation.grid()
    with federation.shared(grid) as running:
        _, notes = train(running, grid, n)
        found = running.commit
    federation.close()
    return found, notes


def test_a_restored_site_needs_its_operators_word_for_another_exchange(tiny):
    """The backup may be from before an exchange in which everything was given away."""
    with Store(tiny.folder / "a", create=True).database.writing("store.test"):
        pass
    backups.back_up(tiny.folder / "a", tiny.folder / "a.backup")
    put_back(tiny.folder / "a.backup", tiny.folder / "a")
    with tiny.store("a") as store:
        assert store.restored
        assert [entry.event for entry in store.ledger.entries()] == ["restored"]
        with pytest.raises(ExchangeNotApproved, match="restored from a backup"):
            check_approved(Policy(), store.given, 1)
        store.given.approve(NEXT)
        check_approved(Policy(), store.given, 1)


def test_a_backup_that_is_made_while_rounds_end_is_that_of_one_round(tiny, monkeypatch):
    """A round ends whenever it can do most harm: between two files, the first few times."""
    tiny.run(1, **SETTINGS)
    rounds, copyfile = [1], shutil.copyfile

    def copy_and_go_on(source, target):
        copyfile(source, target)
        (training,) = tiny.state_dir.glob("training-*")
        (training / "now.json").write_text(f'"what is shown meanwhile: {target}"')
        if "checkpoint" in str(source) and len(rounds) < 3:
            rounds.append(rounds[-1] + 1)
            tiny.run(rounds[-1], **SETTINGS)

    monkeypatch.setattr(server_state.shutil, "copyfile", copy_and_go_on)
    monkeypatch.setattr(server_state, "PAUSE", 0)
    grid = tiny.grid()
    with tiny.shared(grid):  # the run that holds the lock
        pass
    made = backups.back_up(tiny.state_dir, tiny.folder / "server.backup")
    assert list(made.about["rounds"].values()) == [3] == rounds[-1:]
    backups.restore(tiny.folder / "server.backup", tiny.folder / "again")
    (path,) = (tiny.folder / "again").glob("*/checkpoint.npz")
    assert [note.round for note in checkpoints.read_checkpoint(path).history] == [0, 1, 2, 3]


def test_a_backup_can_be_made_while_a_run_holds_the_folder_and_a_site_its_store(tiny):
    with tiny.shared(tiny.grid()), tiny.store("a") as store, store.database.writing("store.test"):
        store.database.set("federation", b"not yet")
        for name in ("server", "a"):
            backups.back_up(tiny.folder / name, tiny.folder / f"{name}.backup")
    put_back(tiny.folder / "a.backup", tiny.folder / "other")
    with tiny.store("other") as store:
        assert store.federation == "hospitals"


def test_a_state_dir_that_goes_on_changing_is_refused_in_the_end(tiny, monkeypatch):
    tiny.run(1)
    monkeypatch.setattr(server_state, "PAUSE", 0)
    monkeypatch.setattr(server_state, "TRIES", 3)
    stamps = iter(range(100))
    monkeypatch.setattr(server_state, "_stamps", lambda _folder: {str(next(stamps)): (0, 0, 0)})
    monkeypatch.setattr(server_state, "_copy_files", lambda *_: None)
    with pytest.raises(FederationError, match="changed while it was copied, 3 times"):
        backups.back_up(tiny.state_dir, tiny.folder / "server.backup")
    assert not list(tiny.folder.glob("*.backup"))


@pytest.fixture
def saved(tmp_path):
    """The backups of a store, in the clear and sealed."""
    Store(tmp_path / "store", create=True).close()
    backups.back_up(tmp_path / "store", tmp_path / "clear")
    backups.back_up(tmp_path / "store", tmp_path / "sealed", PASSPHRASE)
    return tmp_path


def test_what_is_not_to_be_done_is_refused(saved):
    store, clear, sealed = saved / "store", saved / "clear", saved / "sealed"
    identity = json.loads(run("federate", "identity", store, "--json").stdout)["identity"]
    with pytest.raises(ArgumentError, match="must be new or empty"):
        backups.restore(clear, store)
    (saved / "link").symlink_to(saved / "elsewhere")
    with pytest.raises(ArgumentError, match="must be new or empty"):
        backups.restore(clear, saved / "link")
    with pytest.raises(ArgumentError, match="exists"):
        backups.back_up(store, clear)
    with pytest.raises(ArgumentError, match="must not lie in"):
        backups.back_up(store, store / "backup")
    with pytest.raises(ArgumentError, match="a site's store or a server's state-dir"):
        backups.back_up(saved, saved / "other")
    with pytest.raises(ArgumentError, match="at least 12 characters"):
        backups.back_up(store, saved / "other", "short")
    with pytest.raises(FederationError, match="must be of 'hospital-b'"):
        backups.restore(clear, saved / "new", expected="hospital-b")
    for passphrase, said in ((None, "is encrypted"), ("another passphrase", "passphrase is wrong")):
        with pytest.raises(FederationError, match=said):
            backups.restore(sealed, saved / "new", passphrase)
    assert backups.check(sealed, PASSPHRASE, expected=identity[:8]).about["identity"] == identity
    assert not (saved / "new").exists()
    (saved / "new").mkdir()
    backups.restore(sealed, saved / "new", PASSPHRASE)
    assert json.loads(run("federate", "identity", saved / "new", "--json").stdout) == {
        "identity": identity
    }
    assert not list(saved.glob(".*.part"))


def test_a_folder_of_an_earlier_version_is_upgraded_on_purpose_and_on_its_way(tmp_path):
    """By the command, and in a backup: that has the present version, the folder stays as it was."""
    (tmp_path / "store").mkdir(mode=0o700)
    shutil.copy(OLD, tmp_path / "store" / "store.sqlite3")
    federation = unpacked("state-dir-version-4.zip", tmp_path / "federation")
    for folder, before in ((tmp_path / "store", 2), (federation.state_dir, 4)):
        content = listing(folder)
        backups.back_up(folder, tmp_path / f"{folder.name}.backup")
        assert listing(folder) == content
        made = backups.check(tmp_path / f"{folder.name}.backup")
        kind = backups.KINDS[made.kind]
        assert made.format_version == kind.VERSION
        assert kind.version_of(folder) == before
        assert f"it was in version {before}" in run("federate", "upgrade", folder).stdout
        assert "the newest, and whole" in run("federate", "upgrade", folder).stdout
        assert kind.version_of(folder) == kind.VERSION
    federation.close()


def test_the_commands_say_what_a_backup_holds_and_what_a_restored_store_means(saved, tmp_path):
    word = tmp_path / "passphrase"
    word.write_text(f"{PASSPHRASE}\n")
    store = saved / "store"
    done = run("federate", "backup", store, tmp_path / "one")
    assert "holds private keys and data in the clear" in done.stderr
    done = run("federate", "backup", store, tmp_path / "two", "--passphrase-file", word)
    assert "warning" not in done.stderr
    done = run("federate", "restore", tmp_path / "two", "--check", "--passphrase-file", word)
    assert "is whole: the store of a site" in done.stdout
    for asks in (("backup", store, tmp_path / "three", "--encrypt"), ("restore", tmp_path / "two")):
        done = run("federate", *asks, *(["--check"] if "restore" in asks else []))
        assert (done.returncode, "give --passphrase-file FILE" in done.stderr) == (2, True)
    done = run("federate", "restore", tmp_path / "one", tmp_path / "again")
    assert done.returncode == 0
    for said in ("StoreIsOlder", "--as-offered", "federate approve", "no other copy"):
        assert said in done.stdout
    status = json.loads(run("federate", "status", tmp_path / "again", "--json").stdout)
    assert status["restored_from"] == backups.check(tmp_path / "one").made
    for arguments, code, said in (
        (("backup", store, tmp_path / "one"), 2, "exists"),
        (("restore", tmp_path / "one"), 2, "either a folder or --check"),
        (("restore", word, "--check"), 8, "is no whole backup"),
        (("restore", tmp_path / "none", "--check"), 8, "cannot be read"),
        (("restore", tmp_path / "one", tmp_path / "again"), 2, "must be new or empty"),
        (("upgrade", tmp_path), 2, "a site's store or a server's state-dir"),
    ):
        done = run("federate", *arguments)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize("name", ["clear", "sealed"])
def test_damage_anywhere_is_refused_and_leaves_nothing(saved, name):
    """Cut at 40 lengths, a bit turned at 40 places: padding of the tar alone may be changed."""
    path, passphrase = saved / name, PASSPHRASE if name == "sealed" else None
    content, rng = path.read_bytes(), np.random.default_rng(0)
    damaged = saved / "damaged"
    for n in [*rng.integers(0, len(content), 40).tolist(), len(content) - 10240, len(content) - 1]:
        damaged.write_bytes(content[:n])
        with pytest.raises(FedcommonsError):
            backups.restore(damaged, saved / "new", passphrase)
    unseen = 0
    for at in rng.integers(0, len(content), 40).tolist():
        damaged.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            backups.check(damaged, passphrase)
        except FedcommonsError:
            continue
        unseen += 1
        assert content[at] == 0  # padding
    assert unseen <= (0 if name == "sealed" else 10)
    assert not (saved / "new").exists()
    assert not list(saved.glob(".*.part"))


def test_a_key_is_made_by_scrypt(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        writer = sealing.SealedWriter(file, PASSPHRASE)
        writer.write(b"content")
        writer.close()
    with (tmp_path / "file").open("rb") as file:
        assert sealing.is_sealed(file)
        assert sealing.SealedReader(file, PASSPHRASE).read(100) == b"content"
    assert b"content" not in (tmp_path / "file").read_bytes()


def test_blocks_of_a_sealed_stream_cannot_be_moved_or_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(sealing, "BLOCK", 8)
    path = tmp_path / "file"
    with path.open("wb") as file:
        writer = sealing.SealedWriter(file, PASSPHRASE)
        for n in (3, 5, 8, 1, 7):  # three blocks exactly
            writer.write(bytes(n))
        writer.close()
    head = len(sealing.MAGIC) + 1 + sealing.SALT
    content = path.read_bytes()
    blocks = [content[k : k + 24] for k in range(head, len(content), 24)]
    assert list(map(len, blocks)) == [24, 24, 24]

    def opened(order):
        path.write_bytes(content[:head] + b"".join(blocks[k] for k in order))
        with path.open("rb") as file:
            return sealing.SealedReader(file, PASSPHRASE).read(100)

    assert opened([0, 1, 2]) == bytes(24)
    for order in ([0, 1], [0, 2], [1, 0, 2], [0, 1, 1, 2], [0, 1, 2, 2], [2]):
        with pytest.raises(FederationError, match="damaged"):
            opened(order)


def tar_with(path: Path, manifest: dict, members: list[tuple[str, bytes, bytes]]) -> None:
    """A tar of (name, type, content): what somebody else may have made."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        listed = json.dumps(manifest).encode()
        for name, kind, content in [("manifest.json", tarfile.REGTYPE, listed), *members]:
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, len(content)
            member.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            tar.addfile(member, io.BytesIO(content))


def test_an_archive_that_somebody_made_up_puts_nothing_anywhere(tmp_path):
    path, target = tmp_path / "backup", tmp_path / "folder" / "new"
    target.parent.mkdir()
    content = b"content"

    def manifest(*names, **changes):
        entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        return {
            "format": "fedcommons.backup", "version": 1, "kind": "store", "format_version": 6,
            "made": "2027-01-01T00:00:00+00:00", "by": "1", "about": {},
            "files": [{"name": name, **entry} for name in names], **changes,
        }  # fmt: skip

    file = tarfile.REGTYPE
    for name in ("../out", "/out", "a/../../out", "a//b", "./a", ".lock", "", "a\\b", "é", 7):
        tar_with(path, manifest(name), [(str(name), file, content)])
        with pytest.raises(FederationError, match="is no file of a backup"):
            backups.restore(path, target)
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
        tar_with(path, manifest("a"), [("a", kind, b"")])
        with pytest.raises(FederationError, match="there must be the file a"):
            backups.restore(path, target)
    a, b = ("a", file, content), ("b", file, content)
    for listed, members, said in (
        (manifest("a"), [], "a is missing"),
        (manifest("a", "b"), [b, a], "there must be the file a"),
        (manifest("a"), [a, b], "more files than it lists"),
        (manifest("a", "a"), [a, a], "listed twice"),
        (manifest("a"), [("a", file, b"another")], "is not what was saved"),
        (manifest("a"), [("a", file, b"longer content")], "another size"),
        (manifest("a"), [a], "is not a site's store"),
        (manifest("a", kind="cellar"), [a], "'cellar', which is unknown"),
        (manifest("a", version=2), [a], "version 2, this fedcommons reads up to version 1"),
        (manifest("a", format_version=99), [a], "format version 99, this fedcommons knows"),
        (manifest("a", format="other"), [a], "no backup of fedcommons"),
        (manifest("a", about=7), [a], "no whole backup"),
        ([], [a], "no whole backup"),
    ):
        tar_with(path, listed, members)
        with pytest.raises(FedcommonsError, match=said):
            backups.restore(path, target)
    assert list(target.parent.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["backup", "folder"]
