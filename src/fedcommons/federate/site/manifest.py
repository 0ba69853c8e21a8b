"""A manifest: how a site's rows were numbered for the others."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Manifest:
    """How the site's rows were numbered.

    Attributes:
        stamp: the source's stamp when it was last compared.
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
        """(rows,) the share number of each row, -1 where it has none."""
        numbers = np.full(len(self.live), -1, np.int64)
        numbers[self.share_rows] = np.arange(len(self.share_rows))
        return numbers

    def gone(self, withdrawn: Set[bytes]) -> BoolArray:
        """(rows,) the rows that took part and have one of these fingerprints."""
        return among(self.fingerprints, withdrawn) & self.live


def among(fingerprints: npt.NDArray[np.uint8], some: Set[bytes]) -> BoolArray:
    """(rows,) whether a row's fingerprint is one of these."""
    if not some:
        return np.zeros(len(fingerprints), np.bool_)
    return np.fromiter((f.tobytes() in some for f in fingerprints), np.bool_, len(fingerprints))
