"""A site's own examples: inputs that stay on the disk, labels, and what may be shared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import DataError
from fedcommons.federate.protocol.example_schema import (
    ExampleForm,
    digest_of_columns,
    layout_of,
)
from fedcommons.federate.protocol.packing import DTYPES
from fedcommons.federate.site.file_rows import ArrayRows, FileRows, Rows
from fedcommons.federate.site.fingerprints import FINGERPRINT, fingerprints_of
from fedcommons.federate.site.grounds import Grounds
from fedcommons.federate.site.labels import checked_labels, class_names, numbered
from fedcommons.federate.site.spool import UNPACKED

BLOCK_BYTES = 16 << 20  # of inputs that are read at a time


@dataclass(frozen=True, slots=True)
class SiteData:
    """A site's examples.

    Attributes:
        x: inputs, (examples, ...).
        y: labels, (examples,) class numbers or (examples, ...) of any other kind.
        shareable: (examples,) what may leave the site. Everything is private unless marked.
        stamp: changes whenever the data file does; empty if there is no file.
        source: what messages call the data.
        layout: the type and shape of one example; empty if there are no examples to tell it from.
        features: their names; none if they have none.
        columns: the digest of these names; empty if there are none.
        n_classes: class numbers are below it, those of others too; None if it is not known.
        ground: on what ground each may be shared; None if that is not said of any.
    """

    x: Rows
    y: npt.NDArray[Any]
    shareable: BoolArray
    stamp: str = ""
    source: str = "data"
    layout: str = ""
    features: tuple[str, ...] = ()
    columns: str = ""
    n_classes: int | None = None
    ground: Grounds | None = None

    @classmethod
    def from_arrays(
        cls,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        shareable: npt.ArrayLike | None = None,
        *,
        classes: Sequence[str] | None = None,
        ground: Iterable[str | None] | None = None,
    ) -> SiteData:
        """Examples in memory; without `shareable` all are private.

        Labels are numbers of any shape: one integer each is a class number. Or they are names of
        `classes`, a list that all sites have in the same order. `ground` says on what ground each
        example may be shared; None or blank if that is not said of it.
        """
        rows = ArrayRows(np.asarray(x))
        return cls.checked(rows, y, shareable, classes=classes, ground=ground)

    @classmethod
    def checked(
        cls,
        x: Rows,
        y: npt.ArrayLike,
        shareable: npt.ArrayLike | None,
        *,
        stamp: str = "",
        source: str = "data",
        features: Sequence[str] = (),
        classes: Sequence[str] | None = None,
        ground: Iterable[str | None] | None = None,
    ) -> SiteData:
        """Examples whose parts fit together; raise if they do not."""
        names = None if classes is None else class_names(classes)
        if len(x.shape) < 2 or 0 in x.shape[1:] or str(x.dtype) not in DTYPES:
            raise DataError(
                f"{source}: x must be numbers (examples, ...), got {x.dtype}, {x.shape}"
            )
        labels = checked_labels(
            y if names is None else numbered(y, names, source), x.shape[0], source
        )
        mask = np.zeros(len(labels), np.bool_) if shareable is None else np.array(shareable)
        if mask.dtype != np.bool_ or mask.shape != labels.shape[:1]:
            raise DataError(
                f"{source}: shareable must be boolean, one for each example, "
                f"got {mask.dtype}, shape {mask.shape}"
            )
        form = ExampleForm(x.dtype, x.shape[1:], labels.dtype, labels.shape[1:])
        return cls(
            x,
            labels,
            mask,
            stamp,
            source,
            layout_of(form),
            tuple(features),
            digest_of_columns(features) if features else "",
            None if names is None else len(names),
            None if ground is None else Grounds.checked(ground, len(labels), source),
        )

    @classmethod
    def none(cls) -> SiteData:
        """No examples, and no layout."""
        return cls(ArrayRows(np.empty((0, 1))), np.empty(0, np.int64), np.empty(0, np.bool_))

    def check_labels(self) -> None:
        """Raise if a label is not one of the classes; does nothing if their number is unknown."""
        if self.n_classes is None or not self.y.size:
            return
        if not self.form.has_class_numbers:
            raise DataError(
                f"{self.source}: y must be class numbers if n_classes is given, got "
                f"{self.y.dtype}, shape {self.y.shape}: leave n_classes out for other targets"
            )
        if self.y.max() >= self.n_classes:
            row = int(self.y.argmax())
            raise DataError(
                f"{self.source}: y must be labels from 0 to {self.n_classes - 1}, got "
                f"{self.y[row]} in example {row}"
            )

    def grounds(self, rows: IntArray) -> Grounds:
        """On what ground each of these rows may be shared."""
        return Grounds.none(len(rows)) if self.ground is None else self.ground.take(rows)

    @property
    def n_examples(self) -> int:
        return len(self.y)

    @property
    def form(self) -> ExampleForm:
        """What every example must look like, those that others send too."""
        return ExampleForm(
            self.x.dtype, self.x.shape[1:], self.y.dtype, self.y.shape[1:], self.n_classes
        )

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
        for start, block in self.blocks():
            if block.dtype.kind == "f" and not np.isfinite(block).all():
                flat = block.reshape(len(block), -1)
                row, column = np.argwhere(~np.isfinite(flat))[0]
                raise DataError(
                    f"{self.source}: x must be finite, got {flat[row, column]} in example "
                    f"{start + row}"
                )
            rows = slice(start, start + len(block))
            out[rows] = fingerprints_of(block, self.y[rows], key)
        return out

    def blocks(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """The inputs in parts, and the row at which each begins."""
        step = max(1, BLOCK_BYTES // self.form.row_bytes)
        for start in range(0, self.n_examples, step):
            yield start, self.x.block(start, min(start + step, self.n_examples))
