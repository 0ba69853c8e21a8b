"""Reading a site's data file."""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from fedcommons import checks
from fedcommons.errors import DataError
from fedcommons.federate.site.csv_data import read_csv_data
from fedcommons.federate.site.file_rows import version_of
from fedcommons.federate.site.labels import class_names
from fedcommons.federate.site.npz_data import read_npz_data
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.parquet_data import read_parquet_data


def load_site_data(
    path: str | os.PathLike[str],
    *,
    spool: Path,
    label: str | Sequence[str] = "label",
    shareable: str = "shareable",
    ground: str = "ground",
    classes: Sequence[str] | None = None,
    separator: str = ",",
    decimal: str = ".",
) -> SiteData:
    """Read a site's data file.

    - `.npz`: the arrays x, y and, unless all is private, a boolean `shareable`.
    - `.parquet`, `.csv`: feature columns, the column `label` and, unless all is private, a boolean
      column `shareable`. Features go by their position: all sites have the same, in the same
      order. A label may consist of several columns, `label = "time,event"`.

    An array or a text column `ground` may say on what ground each example may be shared: a consent
    or a licence. It is no feature, and never leaves the site.

    Labels that are words are names of `classes`, which all sites have in the same order. A CSV file
    has `separator` between its fields, and `decimal` in its numbers.
    Inputs are read from the file when they are needed. If the file's format does not allow that,
    they are unpacked once into the folder `spool`, so that memory stays bounded.
    """
    path = checks.path("data", path)
    try:
        version = version_of(path.stat())
    except OSError as error:
        raise DataError(f"data {path} cannot be read: {error.strerror}") from None
    label = label if isinstance(label, str) else tuple(label)
    if classes is not None:
        classes = class_names(classes)
    columns: tuple[object, ...] = (label, shareable)
    if (classes, separator, decimal) != (None, ",", "."):  # left out, as before there were any
        columns += (classes, separator, decimal)
    if ground != "ground":
        columns = (label, shareable, classes, separator, decimal, ground)
    stamp = repr((str(path.resolve()), version, *columns))
    unpacked = spool / hashlib.sha256(stamp.encode()).hexdigest()[:32]
    if path.suffix == ".npz":
        return read_npz_data(path, unpacked, stamp, classes=classes)
    if path.suffix == ".parquet":
        return read_parquet_data(
            path, unpacked, stamp, label=label, shareable=shareable, ground=ground, classes=classes
        )
    if path.suffix == ".csv":
        return read_csv_data(
            path,
            stamp,
            label=label,
            shareable=shareable,
            ground=ground,
            classes=classes,
            separator=separator,
            decimal=decimal,
        )
    raise DataError(f"data must be .npz, .parquet or .csv, got {path}")


def data_behind(stamp: str, *, spool: Path) -> SiteData | None:
    """What the file named by a stamp contains now; None if there is no such file."""
    if not stamp:
        return None
    path, _, label, shareable, *more = ast.literal_eval(stamp)
    if not Path(path).exists():
        return None
    classes, separator, decimal, *named = more or (None, ",", ".")
    ground = named[0] if named else "ground"
    return load_site_data(
        path,
        spool=spool,
        label=label,
        shareable=shareable,
        ground=ground,
        classes=classes,
        separator=separator,
        decimal=decimal,
    )
