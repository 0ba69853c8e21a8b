"""A site's own rows: how they are numbered, what was withdrawn since, and which may leave."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import StoreError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.packing import Examples
from fedcommons.federate.protocol.refusals import DataChanged, StoreIsOlder
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.site.fingerprints import fingerprints_of
from fedcommons.federate.site.manifest import Manifest, among
from fedcommons.federate.site.own_data import SPOOL, SiteData, data_behind
from fedcommons.federate.site.store import Store

logger = logging.getLogger(__name__)


class Shareable:
    """The examples that may leave a site: the only view of its data that the packing code has."""

    def __init__(self, data: SiteData, manifest: Manifest, key: bytes) -> None:
        self._data, self._manifest, self._key = data, manifest, key
        self._rows = manifest.share_rows
        if not data.shareable[self._rows].all():
            raise DataChanged("the manifest shares a row that is not marked as shareable")

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, numbers: IntArray) -> Examples:
        """The examples with these share numbers, if they are those that were numbered."""
        rows = self._rows[numbers]
        found = Examples(numbers, self._data.y[rows], self._data.x.take(rows))
        expected = self._manifest.fingerprints[rows]
        if not np.array_equal(fingerprints_of(found.x, found.y, self._key), expected):
            self._data.check_unpacked()
            raise DataChanged("the data changed since the rows were numbered")
        return found


def withdraw(store: Store, rows: IntArray, *, as_offered: bool = False) -> int:
    """Take rows of the site's data file back for good; how many contents that are.

    They go by their numbers, so the file must be the one that was numbered. Without a file there
    are no other numbers that could be meant, nor if they are said to be those of the file
    `as_offered`, whatever it is now.
    """
    manifest = store.manifest()
    data = data_behind(manifest.stamp, spool=store.folder / SPOOL) if manifest else None
    if manifest and data and not as_offered:
        try:
            OwnRows(store, data).checked(manifest.digest)
        except DataChanged:
            raise StoreError(
                f"rows must be those of the file that was offered, but {data.source} changed "
                "since: put it back, or take part in a new exchange first; --as-offered goes by "
                "the numbers of the file as it was"
            ) from None
    return store.withdraw(rows)


class OwnRows:
    """The rows of a site's data, beside what its store says of them."""

    def __init__(self, store: Store, data: SiteData) -> None:
        self.store, self.data = store, data
        self._compared = b""

    @cached_property
    def _key(self) -> bytes:
        return self.store.identity.secret("fingerprints")

    def number(self) -> None:
        """Number the rows that take part from now on: all but those that were withdrawn."""
        self.data.check_labels()
        self.data.check_unpacked()
        fingerprints, content = self._fingerprints()
        withdrawn = self.store.withdrawn_fingerprints()
        live = ~among(fingerprints, withdrawn)
        digest = hashlib.sha256(content + live.tobytes()).digest()
        known = self.store.manifest()
        if known is None or (known.digest, known.stamp) != (digest, self.data.stamp):
            absent = withdrawn - {f.tobytes() for f in fingerprints[~live]}
            if absent:
                logger.warning(
                    "%d of the %d contents that were withdrawn are not in the data: if they are "
                    "there with other values (scaled, say, or rounded), withdraw them again",
                    len(absent),
                    len(withdrawn),
                )
            self.store.number_rows(
                Manifest(self.data.stamp, content, digest, live, self.data.shareable, fingerprints)
            )

    def _fingerprints(self) -> tuple[npt.NDArray[np.uint8], bytes]:
        """The fingerprint of every row, and the digest of all of them and of the marks."""
        found = self.data.fingerprints(self._key)
        whole = hashlib.sha256(repr((str(self.data.x.dtype), self.data.x.shape)).encode())
        whole.update(found.reshape(-1).data)
        whole.update(self.data.shareable.data)
        return found, whole.digest()

    def manifest(self, digest: bytes | None = None) -> Manifest:
        """The manifest with this digest, or the newest."""
        manifest = self.store.manifest(digest)
        if manifest is None:
            raise DataChanged("the site has not numbered its rows so")
        return manifest

    def checked(self, digest: bytes | None = None) -> Manifest:
        """The manifest with this digest, or the newest, if the data are those that it numbered."""
        manifest = self.manifest(digest)
        stamp = self.data.stamp
        if (stamp and manifest.stamp == stamp) or self._compared == manifest.content:
            return manifest
        if self._fingerprints()[1] != manifest.content:
            raise DataChanged("the data are not those that the site offered")
        self._compared = manifest.content
        if stamp:  # the same data in a file that was touched: compare them once
            manifest = replace(manifest, stamp=stamp)
            self.store.stamp(manifest)
        return manifest

    def withdrawn(self, manifest: Manifest) -> Withdrawn:
        """What was withdrawn since the rows were numbered."""
        gone = self._gone(manifest)
        numbers = np.flatnonzero(gone[manifest.share_rows])
        return Withdrawn(tuple(numbers.tolist()), int(gone.sum()) - len(numbers))

    def check_remembers(self, commit: Commit, me: int | None) -> None:
        """A commit that knows of more withdrawals is newer than the store: a backup, perhaps."""
        if me is None or not (commit.withdrawn[me] or commit.withdrawn_private[me]):
            return
        manifest = self.store.manifest(bytes.fromhex(commit.members[me].manifest))
        if manifest is None:
            logger.error(
                "this store is older than the exchange of epoch %d, of which examples were "
                "withdrawn: put a newer copy of it in place, or take these examples out of the "
                "data file and begin with a new store",
                commit.number,
            )
            self.store.note_older_than(commit.record)
            raise StoreIsOlder("the store does not know what the site withdrew from")
        found = self.withdrawn(manifest)
        forgotten = sorted(set(commit.withdrawn[me]) - set(found.numbers))
        n_private = commit.withdrawn_private[me] - found.n_private
        if forgotten or n_private > 0:
            logger.error(
                "this store does not know of examples that were withdrawn: rows %s of the data "
                "file as it was offered, and %d that were not shared; withdraw them again",
                manifest.share_rows[forgotten].tolist(),
                max(n_private, 0),
            )
            self.store.note_older_than(commit.record)  # also if others go on without this site
            raise StoreIsOlder("the store does not know of all that the site withdrew")

    def trained_on(self, manifest: Manifest) -> IntArray:
        """The rows that are trained on."""
        return np.flatnonzero(manifest.live & ~self._gone(manifest))

    def examples(self, manifest: Manifest) -> tuple[npt.NDArray[Any], IntArray]:
        """Inputs and labels of the rows that are trained on."""
        self.data.check_unpacked()
        rows = self.trained_on(manifest)
        return self.data.x.take(rows), self.data.y[rows]

    def shareable(self, manifest: Manifest) -> Shareable:
        """What may leave, if nothing of it was withdrawn since it was numbered."""
        if self._gone(manifest)[manifest.share_rows].any():
            raise DataChanged("examples were withdrawn since the rows were numbered")
        return Shareable(self.data, manifest, self._key)

    def _gone(self, manifest: Manifest) -> BoolArray:
        return manifest.gone(self.store.withdrawn_fingerprints())
