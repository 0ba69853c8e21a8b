"""Manifests: how a site's rows were numbered for the others, and which numberings it keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray, IntArray
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import DataChanged
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.own_data import SiteData


@dataclass(frozen=True, slots=True)
class Manifest:
    """How the site's rows were numbered.

    Attributes:
        stamp: the data's stamp when they were last compared.
        content: the digest of the data: all fingerprints and marks.
        digest: of the content and of which rows take part.
        live: (rows,) those that were not withdrawn when they were numbered.
        shareable: (rows,) those that may be shared.
        fingerprints: (rows, 16) bytes.
    """

    stamp: str
    content: bytes
    digest: bytes
    live: BoolArray
    shareable: BoolArray
    fingerprints: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, data: SiteData, key: bytes, withdrawn: Set[bytes]) -> Manifest:
        """Number all rows of the data but those that were withdrawn."""
        fingerprints = data.fingerprints(key)
        content = _content_digest(data, fingerprints)
        live = ~among(fingerprints, withdrawn)
        digest = hashlib.sha256(content + live.tobytes()).digest()
        return cls(data.stamp, content, digest, live, data.shareable, fingerprints)

    @property
    def rows(self) -> IntArray:
        """The rows that take part."""
        return np.flatnonzero(self.live)

    @property
    def share_rows(self) -> IntArray:
        """The row of each share number."""
        return np.flatnonzero(self.live & self.shareable)

    @property
    def share_numbers(self) -> IntArray:
        """(rows,) the share number of each row, -1 if it has none."""
        numbers = np.full(len(self.live), -1, np.int64)
        numbers[self.share_rows] = np.arange(len(self.share_rows))
        return numbers

    def for_place(self, commit: Commit, me: int) -> Manifest:
        """The numbering as the commit has it for this site.

        A site that joined after the exchange shares nothing until the next one.
        """
        if not commit.has_joined(me):
            return self
        return replace(self, shareable=np.zeros_like(self.shareable))

    def describes(self, data: SiteData, key: bytes) -> bool:
        """Whether these data have the content that was numbered; reads all of them."""
        return _content_digest(data, data.fingerprints(key)) == self.content


def _content_digest(data: SiteData, fingerprints: npt.NDArray[np.uint8]) -> bytes:
    """The digest of all fingerprints and marks."""
    about: tuple[object, ...] = (str(data.x.dtype), data.x.shape)
    if not data.form.has_class_numbers:
        about += (str(data.y.dtype), data.y.shape[1:])
    whole = hashlib.sha256(repr(about).encode())
    whole.update(fingerprints.reshape(-1).data)
    whole.update(data.shareable.data)
    return whole.digest()


def among(fingerprints: npt.NDArray[np.uint8], some: Set[bytes]) -> BoolArray:
    """(rows,) whether a row's fingerprint is one of these."""
    if not some:
        return np.zeros(len(fingerprints), np.bool_)
    return np.fromiter((f.tobytes() in some for f in fingerprints), np.bool_, len(fingerprints))


class Manifests:
    """The manifests in a store: the newest, and those before it until a commit replaces them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self) -> Manifest | None:
        rows = self._rows()
        return _manifest(rows[-1]) if rows else None

    def find(self, digest: bytes) -> Manifest | None:
        """The manifest with this digest."""
        for row in self._rows():
            if row[3] == digest:
                return _manifest(row)
        return None

    def add(self, manifest: Manifest) -> None:
        """Keep a manifest as the newest."""
        with self._database.writing("store.manifest"):
            newest = max((row[0] for row in self._rows()), default=0)
            self._database.run("DELETE FROM manifest WHERE digest = ?", (manifest.digest,))
            self._put(newest + 1, manifest)

    def check_unchanged(self, manifest: Manifest, data: SiteData, key: bytes) -> None:
        """Compare the data with a manifest; raise if they are not those that it numbered.

        If only the stamp differs (the file was touched), the new stamp is remembered, so that the
        data need not be compared again.
        """
        if data.stamp and manifest.stamp == data.stamp:
            return
        if not manifest.describes(data, key):
            raise DataChanged("the data are not those that the site offered")
        if data.stamp:
            self._restamp(replace(manifest, stamp=data.stamp))

    def _restamp(self, manifest: Manifest) -> None:
        with self._database.writing("store.manifest"):
            for number, _, _, digest, *_ in self._rows():
                if digest == manifest.digest:
                    self._put(number, manifest)

    def drop_before(self, digest: bytes) -> None:
        """Forget the manifests before this one, inside a transaction."""
        for row in self._rows():
            if row[3] == digest:
                self._database.run("DELETE FROM manifest WHERE id < ?", (row[0],))

    def _rows(self) -> list[tuple[Any, ...]]:
        """The rows of all manifests, the newest last."""
        return sorted(self._database.rows("manifest"), key=lambda row: row[0])

    def _put(self, number: int, manifest: Manifest) -> None:
        self._database.put(
            "manifest",
            number,
            manifest.stamp,
            manifest.content,
            manifest.digest,
            manifest.live.tobytes(),
            manifest.shareable.tobytes(),
            manifest.fingerprints.tobytes(),
        )


def _manifest(row: tuple[Any, ...]) -> Manifest:
    _, stamp, content, digest, live, shareable, fingerprints = row
    return Manifest(
        stamp,
        content,
        digest,
        np.frombuffer(live, np.bool_),
        np.frombuffer(shareable, np.bool_),
        np.frombuffer(fingerprints, np.uint8).reshape(-1, 16),
    )
