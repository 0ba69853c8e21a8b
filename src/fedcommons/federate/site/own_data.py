"""A site's own examples: inputs that stay on the disk, labels, and what may be shared."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import DataError
from fedcommons.federate.protocol.example_schema import ExampleForm, layout_of
from fedcommons.federate.protocol.packing import DTYPES
from fedcommons.federate.site.file_rows import ArrayRows, FileRows, Rows
from fedcommons.federate.site.fingerprints import FINGERPRINT, fingerprints_of
from fedcommons.federate.site.spool import UNPACKED

BLOCK_BYTES = 16 << 20  # of inputs that are read at a time


@dataclass(frozen=True, slots=True)
class SiteData:
    """A site's examples.

    Attributes:
        x: inputs, (examples, ...).
        y: (examples,) labels.
        shareable: (examples,) what may leave the site. Everything is private unless marked.
        stamp: changes whenever the data file does; empty if there is no file.
        source: what messages call the data.
        layout: the type and shape of one example; empty if there are no examples to tell it from.
        columns: the digest of the features' names; empty if they have none.
        n_classes: all labels are below it, those of others too; None if it is not known.
    """

    x: Rows
    y: IntArray
    shareable: BoolArray
    stamp: str = ""
    source: str = "data"
    layout: str = ""
    columns: str = ""
    n_classes: int | None = None

    @classmethod
    def from_arrays(
        cls, x: npt.ArrayLike, y: npt.ArrayLike, shareable: npt.ArrayLike | None = None
    ) -> SiteData:
        """Examples in memory; without `shareable` all are private."""
        return cls.checked(ArrayRows(np.asarray(x)), y, shareable)

    @classmethod
    def checked(
        cls,
        x: Rows,
        y: npt.ArrayLike,
        shareable: npt.ArrayLike | None,
        *,
        stamp: str = "",
        source: str = "data",
        columns: str = "",
    ) -> SiteData:
        """Examples whose parts fit together; raise if they do not."""
        y = np.asarray(y)
        if len(x.shape) < 2 or 0 in x.shape[1:] or str(x.dtype) not in DTYPES:
            raise DataError(
                f"{source}: x must be numbers (examples, ...), got {x.dtype}, {x.shape}"
            )
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or len(y) != x.shape[0]:
            raise DataError(
                f"{source}: y must be one integer label for each of the {x.shape[0]} examples, "
                f"got {y.dtype}, shape {y.shape}"
            )
        if y.size and (y.min() < 0 or y.max() > checks.LARGEST):
            wrong = y.min() if y.min() < 0 else y.max()
            raise DataError(f"{source}: y must be labels from 0 to {checks.LARGEST}, got {wrong}")
        mask = np.zeros(len(y), np.bool_) if shareable is None else np.array(shareable)
        if mask.dtype != np.bool_ or mask.shape != y.shape:
            raise DataError(
                f"{source}: shareable must be boolean, one for each example, "
                f"got {mask.dtype}, shape {mask.shape}"
            )
        layout = layout_of(x.dtype, x.shape[1:])
        return cls(x, y.astype(np.int64), mask, stamp, source, layout, columns)

    @classmethod
    def none(cls) -> SiteData:
        """No examples, and no layout."""
        return cls(ArrayRows(np.empty((0, 1))), np.empty(0, np.int64), np.empty(0, np.bool_))

    def check_labels(self) -> None:
        """Raise if a label is not one of the classes; does nothing if their number is unknown."""
        if self.n_classes is not None and self.y.size and self.y.max() >= self.n_classes:
            row = int(self.y.argmax())
            raise DataError(
                f"{self.source}: y must be labels from 0 to {self.n_classes - 1}, got "
                f"{self.y[row]} in example {row}"
            )

    @property
    def n_examples(self) -> int:
        return len(self.y)

    @property
    def form(self) -> ExampleForm:
        """What every example must look like, those that others send too."""
        return ExampleForm(self.x.dtype, self.x.shape[1:], self.n_classes)

    def check_unpacked(self) -> None:
        """Raise if inputs were unpacked into a copy that was damaged since; remove that copy."""
        if isinstance(self.x, FileRows) and self.x.path.suffix == UNPACKED:
            try:
                with self.x.path.open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise DataError(f"{self.x.path} cannot be read: {error.strerror}") from None
            if not self.x.path.stem.endswith(found):
                self.x.path.unlink(missing_ok=True)
                raise DataError(
                    f"{self.source}: the unpacked copy of its inputs was damaged; the next message "
                    "unpacks it again"
                )

    def fingerprints(self, key: bytes) -> npt.NDArray[np.uint8]:
        """A fingerprint of every example, (examples, 16) bytes; raise if an input is not finite."""
        out = np.empty((self.n_examples, FINGERPRINT), np.uint8)
        step = max(1, BLOCK_BYTES // self.form.row_bytes)
        for start in range(0, self.n_examples, step):
            block = self.x.block(start, min(start + step, self.n_examples))
            if block.dtype.kind == "f" and not np.isfinite(block).all():
                flat = block.reshape(len(block), -1)
                row, column = np.argwhere(~np.isfinite(flat))[0]
                raise DataError(
                    f"{self.source}: x must be finite, got {flat[row, column]} in example "
                    f"{start + row}"
                )
            out[start : start + step] = fingerprints_of(block, self.y[start : start + step], key)
        return out
