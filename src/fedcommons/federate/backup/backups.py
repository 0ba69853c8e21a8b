"""Making a backup of a folder, and a folder of a backup.

Both are whole or not there. What is copied is read as a whole before it counts, and so is what is
restored, which is refused unless this fedcommons can go on with it.
"""

from __future__ import annotations

import contextlib
import datetime
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcommons import __version__
from fedcommons.errors import ArgumentError, FedcommonsError, FederationError
from fedcommons.federate.backup import archive, server_state, site_store
from fedcommons.federate.backup.archive import Manifest
from fedcommons.federate.backup.sealing import check_passphrase
from fedcommons.federate.protocol import durable

KINDS: dict[str, Any] = {kind.KIND: kind for kind in (site_store, server_state)}


def back_up(folder: Path, path: Path, passphrase: str | None = None) -> Manifest:
    """Write a new file with all that a site's store or a server's state-dir needs to go on."""
    kind = _kind_of(folder)
    if passphrase is not None:
        check_passphrase(passphrase)
    if path.exists():
        raise ArgumentError(f"file must be a new one, but {path} exists")
    if path.absolute().parent.is_relative_to(folder.absolute()):
        raise ArgumentError(f"file must not lie in the folder that is saved, got {path}")
    with _folder_beside(path) as copy:
        with _as_if_in(copy, folder):
            about = kind.copy(folder, copy)
        made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        files = archive.entries_of(copy)
        manifest = Manifest(kind.KIND, kind.VERSION, made, __version__, about, files)
        archive.write(path, copy, manifest, passphrase)
    return manifest


def check(path: Path, passphrase: str | None = None, *, expected: str = "") -> Manifest:
    """Read all of a backup; refused if it is damaged, of something else, or from the future."""
    manifest = archive.read(path, passphrase, None)
    _check_kind(path, manifest, expected)
    return manifest


def restore(
    path: Path, folder: Path, passphrase: str | None = None, *, expected: str = ""
) -> Manifest:
    """Make a folder of a backup; it must not exist yet, or be empty.

    `expected` is what the backup must be of: the site's name, the beginning of its key, or the
    federation.
    """
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise ArgumentError(
            f"folder must be new or empty, got {folder}: move what is there elsewhere"
        )
    with _folder_beside(folder) as copy:
        manifest = archive.read(path, passphrase, copy)
        kind = _check_kind(path, manifest, expected)
        with _as_if_in(copy, path):
            found = kind.about(copy)
            if any(found[key] != manifest.about[key] for key in found.keys() & manifest.about):
                raise FederationError(f"{path} is not of what it says it is of")
            if kind is site_store:
                site_store.note_restored(copy, manifest.made, manifest.digest)
        with durable.naming(folder, "written"):
            copy.replace(folder)
            durable.sync_folder(folder.parent)
    return manifest


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A folder that was upgraded: its kind, the version that it had and has, what it is of."""

    kind: str
    before: int
    now: int
    about: dict[str, Any]


def upgrade(folder: Path) -> Upgraded:
    """Bring a store or a state-dir into the present format, and read all of it."""
    kind = _kind_of(folder)
    before = kind.version_of(folder)
    return Upgraded(kind.KIND, before, kind.VERSION, kind.about(folder))


def _kind_of(folder: Path) -> Any:
    kind = next((kind for kind in KINDS.values() if kind.is_one(folder)), None)
    if kind is None:
        raise ArgumentError(f"folder must be a site's store or a server's state-dir, got {folder}")
    return kind


def _check_kind(path: Path, manifest: Manifest, expected: str) -> Any:
    kind = KINDS.get(manifest.kind)
    if kind is None:
        raise FederationError(f"{path} is a backup of a {manifest.kind!r}, which is unknown here")
    if manifest.format_version > kind.VERSION:
        raise FederationError(
            f"{path} is of a {kind.KIND} in format version {manifest.format_version}, this "
            f"fedcommons knows versions up to {kind.VERSION}: use fedcommons {manifest.by} or newer"
        )
    about = manifest.about
    identity = str(about.get("identity") or "")
    if (
        expected
        and expected not in (about.get("site"), about.get("federation"))
        and not (len(expected) >= 8 and identity.startswith(expected))
    ):
        raise FederationError(
            f"{path} must be of {expected!r}, got site {about.get('site')!r}, key "
            f"{identity[:16]!r}, federation {about.get('federation')!r}"
        )
    return kind


@contextlib.contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """A folder for private data on the same disk, which is gone afterwards unless it was moved.

    What a store deletes is overwritten, so nothing of a copy may be left on the disk either.
    """
    with durable.naming(path, "written"):
        path.absolute().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.absolute().parent)
    try:
        yield Path(name)
    finally:
        if site_store.is_one(Path(name)):
            for copied in Path(name).rglob("*"):
                if copied.is_file():
                    durable.overwrite(copied)
        shutil.rmtree(name, ignore_errors=True)


@contextlib.contextmanager
def _as_if_in(copy: Path, named: Path) -> Iterator[None]:
    """Errors about a copy name what it is a copy of."""
    try:
        yield
    except FedcommonsError as error:
        raise type(error)(str(error).replace(str(copy), str(named))) from None
