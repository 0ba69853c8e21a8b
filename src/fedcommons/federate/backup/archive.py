"""The file of a backup: a tar with a manifest of digests in front, sealed if there is a passphrase.

Nothing of it is believed. It must hold exactly the files that its manifest lists, in that order,
each a plain file with a plain name, its size and its digest; and end where it should.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

from fedcommons.errors import FederationError
from fedcommons.federate.backup.sealing import SealedReader, SealedWriter, is_sealed
from fedcommons.federate.protocol import durable

FORMAT, VERSION = "fedcommons.backup", 1
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 64 << 20
LONGEST_NAME = 400
PIECE = 1 << 20


class Stream(Protocol):
    def read(self, n: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a backup: its path in there, its size, its SHA-256."""

    name: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        if not is_plain_name(self.name) or type(self.size) is not int or self.size < 0:
            raise ValueError(f"{self.name!r} is no file of a backup")
        if len(bytes.fromhex(self.sha256)) != hashlib.sha256().digest_size:
            raise ValueError(f"the digest of {self.name!r}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup is of.

    Attributes:
        kind: "store" or "state-dir".
        format_version: the version of that format.
        made: when, as in 2027-01-31T12:00:00+00:00.
        by: the version of fedcommons.
        about: what it is of, for people: the site, its key, the federation, commit, round.
        files: all files, in their order.
    """

    kind: str
    format_version: int
    made: str
    by: str
    about: dict[str, Any]
    files: tuple[Entry, ...]

    def encode(self) -> bytes:
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        fields = json.loads(content)
        if fields.pop("format") != FORMAT:
            raise ValueError("it is no backup of fedcommons")
        version = int(fields.pop("version"))
        if version > VERSION:
            raise FederationError(
                f"the backup's format has version {version}, this fedcommons reads up to version "
                f"{VERSION}: use the fedcommons that made it, or a newer one"
            )
        files = tuple(Entry(**entry) for entry in fields.pop("files"))
        if len({entry.name for entry in files}) != len(files):
            raise ValueError("a file is listed twice")
        found = cls(**fields, files=files)
        if not isinstance(found.about, dict) or type(found.format_version) is not int:
            raise ValueError("what it is of")
        return found

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.encode()).digest()


def is_plain_name(name: object) -> bool:
    """Whether this is a path below a folder that means the same everywhere."""
    if not isinstance(name, str) or not name.isascii() or not 0 < len(name) <= LONGEST_NAME:
        return False
    parts = PurePosixPath(name).parts
    return "/".join(parts) == name and all(
        part.isprintable() and part[0] != "." and not set(part) & set('/\\:*?"<>|')
        for part in parts
    )


def entries_of(folder: Path) -> tuple[Entry, ...]:
    """All files of a folder that this process made, but for locks."""
    files = (path for path in folder.rglob("[!.]*") if path.is_file())
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    return tuple(
        Entry(name, (folder / name).stat().st_size, _digest(folder / name)) for name in names
    )


def write(path: Path, folder: Path, manifest: Manifest, passphrase: str | None) -> None:
    """Write the files of a folder that the manifest lists; only the owner may read the result."""

    def content(file: IO[bytes]) -> None:
        out = file if passphrase is None else SealedWriter(file, passphrase)
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as tar:  # type: ignore[call-overload]
            listed = manifest.encode()
            tar.addfile(_member(MANIFEST, len(listed)), io.BytesIO(listed))
            for entry in manifest.files:
                with (folder / entry.name).open("rb") as source:
                    tar.addfile(_member(entry.name, entry.size), source)
        if isinstance(out, SealedWriter):
            out.close()

    durable.write_file(path, content, "backup")


def read(path: Path, passphrase: str | None, folder: Path | None) -> Manifest:
    """Check all of a backup, and put its files into a new folder if there is one."""
    with _damage_named(path), path.open("rb") as file:
        source: Stream = file
        if is_sealed(file):
            if passphrase is None:
                raise FederationError("the backup is encrypted: its passphrase is needed")
            source = SealedReader(file, passphrase)
        counted = _Counted(source)
        with tarfile.open(fileobj=counted, mode="r|") as tar:  # type: ignore[call-overload]
            listed = _next(tar, MANIFEST)
            if listed.size > LARGEST_MANIFEST:
                raise ValueError("its manifest is too long")
            manifest = Manifest.decode(_content(tar, listed).read())
            for entry in manifest.files:
                member = _next(tar, entry.name)
                if member.size != entry.size:
                    raise ValueError(f"{entry.name} has another size than it should have")
                _take(_content(tar, member), entry, folder)
            if tar.next() is not None:
                raise ValueError("it has more files than it lists")
        while counted.read(PIECE):
            pass
        if counted.n != _size(listed.size, manifest):
            raise ValueError("its end is missing")
    return manifest


class _Counted:
    """Counts the bytes that are read."""

    def __init__(self, source: Stream) -> None:
        self._source, self.n = source, 0

    def read(self, n: int) -> bytes:
        found = self._source.read(n)
        self.n += len(found)
        return found


def _next(tar: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """The next member, which must be the plain file of this name."""
    member = tar.next()
    if member is None:
        raise ValueError(f"{name} is missing")
    if member.type != tarfile.REGTYPE or member.name != name:
        raise ValueError(f"there must be the file {name}, got {member.name!r}")
    return member


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    found = tar.extractfile(member)
    if found is None:
        raise ValueError(f"{member.name} is no file")
    return found


def _take(content: IO[bytes], entry: Entry, folder: Path | None) -> None:
    """Check a file's digest; in a folder it is made anew, and only its owner may read it."""
    whole = hashlib.sha256()
    with contextlib.ExitStack() as stack:
        out: IO[bytes] | None = None
        if folder is not None:
            target = folder / entry.name
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            out = stack.enter_context(os.fdopen(os.open(target, flags, 0o600), "wb"))
        while piece := content.read(PIECE):
            whole.update(piece)
            if out is not None:
                out.write(piece)
        if out is not None:
            out.flush()
            os.fsync(out.fileno())
    if whole.hexdigest() != entry.sha256:
        raise ValueError(f"{entry.name} is not what was saved")


def _member(name: str, size: int) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.size, found.mode = size, 0o600
    return found


def _size(of_manifest: int, manifest: Manifest) -> int:
    """How many bytes the tar has: a head for each file, its blocks, and the end."""
    block, record = tarfile.BLOCKSIZE, tarfile.RECORDSIZE
    sizes = [of_manifest, *(entry.size for entry in manifest.files)]
    # A name that is too long for a head is a file before it, with a zero at its end.
    sizes += [len(e.name) + 1 for e in manifest.files if len(e.name) > tarfile.LENGTH_NAME]
    n = sum(block + -(-size // block) * block for size in sizes) + 2 * block
    return -(-n // record) * record


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except FederationError as error:
        raise FederationError(f"{path}: {error}") from None
    except OSError as error:
        raise FederationError(f"{path} cannot be read: {error.strerror or error}") from None
    except (
        tarfile.TarError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        EOFError,
        OverflowError,
        RecursionError,
    ) as error:
        raise FederationError(f"{path} is no whole backup: {error}") from None
