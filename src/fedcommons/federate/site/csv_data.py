"""A site's data in a CSV file: feature columns, label columns and a column of marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedcommons.federate.site.own_data import SiteData


def read_csv_data(
    path: Path,
    stamp: str,
    *,
    label: str | Sequence[str],
    shareable: str,
    classes: Sequence[str] | None,
) -> SiteData:
    raise NotImplementedError
