"""A site's own rows: how they are numbered for the others, and which may leave."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import shown
from fedcommons.checks import IntArray
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.protocol.refusals import DataChanged
from fedcommons.federate.site.fingerprints import fingerprints_of
from fedcommons.federate.site.manifests import Manifest
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.store import Store

logger = shown.logger(__name__)


class Shareable:
    """The examples that may leave a site: the only view of its data that the packing code has."""

    def __init__(self, data: SiteData, manifest: Manifest, key: bytes) -> None:
        self._data, self._manifest, self._key = data, manifest, key
        self._rows = manifest.share_rows
        if not data.shareable[self._rows].all():
            raise DataChanged("the manifest shares a row that is not marked as shareable")

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, numbers: IntArray) -> SharedExamples:
        """The examples with these share numbers; raise if they changed since they were numbered."""
        rows = self._rows[numbers]
        found = SharedExamples(numbers, self._data.y[rows], self._data.x.take(rows))
        expected = self._manifest.fingerprints[rows]
        if not np.array_equal(fingerprints_of(found.x, found.y, self._key), expected):
            self._data.check_unpacked()
            raise DataChanged("the data changed since the rows were numbered")
        return found


class NumberedRows:
    """The rows of a site's data, together with what its store says about them."""

    def __init__(self, store: Store, data: SiteData) -> None:
        self.store, self.data = store, data
        self._compared = b""  # the content of the manifest that the data were compared with

    @cached_property
    def _key(self) -> bytes:
        return self.store.keyring.fingerprint_key

    def number(self) -> None:
        """Number all rows that were not withdrawn; from now on these take part."""
        self.data.check_labels()
        self.data.check_unpacked()
        withdrawn = self.store.withdrawals.fingerprints()
        manifest = Manifest.of(self.data, self._key, withdrawn)
        known = self.store.manifests.newest()
        if known and (known.digest, known.stamp) == (manifest.digest, manifest.stamp):
            return
        absent = withdrawn - {f.tobytes() for f in manifest.fingerprints[~manifest.live]}
        if absent:
            logger.warning(
                "%d of the %d examples that were withdrawn are not in the data: if the data "
                "contain them with other values (scaled or rounded, say), withdraw them again",
                len(absent),
                len(withdrawn),
            )
        self.store.manifests.add(manifest)

    def newest(self) -> Manifest:
        """The newest manifest, whatever the data are now."""
        manifest = self.store.manifests.newest()
        if manifest is None:
            raise DataChanged("the site has not numbered its rows yet")
        return manifest

    def checked(self, digest: bytes) -> Manifest:
        """The manifest with this digest; raise if the data are not those that it numbered."""
        manifest = self.store.manifests.find(digest)
        if manifest is None:
            raise DataChanged("the site never numbered its rows like this")
        if self._compared != manifest.content:
            self.store.manifests.check_unchanged(manifest, self.data, self._key)
            self._compared = manifest.content
        return manifest

    def trained_on(self, manifest: Manifest) -> IntArray:
        """The rows that are trained on."""
        return np.flatnonzero(manifest.live & ~self.store.withdrawals.gone(manifest))

    def examples(self, manifest: Manifest) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Inputs and labels of the rows that are trained on."""
        self.data.check_unpacked()
        rows = self.trained_on(manifest)
        return self.data.x.take(rows), self.data.y[rows]

    def shareable(self, manifest: Manifest) -> Shareable:
        """What may leave; raise if any of it was withdrawn since it was numbered."""
        if self.store.withdrawals.gone(manifest)[manifest.share_rows].any():
            raise DataChanged("examples were withdrawn since the rows were numbered")
        return Shareable(self.data, manifest, self._key)
