"""CSV files with a line for each site, as spreadsheets write them.

What separates fields (a comma, a semicolon, a tab or a bar) and whether decimals are points or
commas is found out; what could be read in two ways is refused with its line and site.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from fedcommons import checks
from fedcommons.datasets import csv_file
from fedcommons.errors import DataError

T = TypeVar("T")
NAMES = ("site", "client", "hospital", "clinic", "centre", "center", "institution", "name")
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+")  # or a number with three decimals


@dataclass(frozen=True, slots=True, eq=False)
class SiteLines:
    """The lines of a file.

    Attributes:
        path: of the file.
        header: the columns' names as they are written.
        rows: the fields of each line.
        places: the number of each line.
        names: of the sites: from a column called `site`, or another of `NAMES`, or from the first
            column if none of its values is a number; else "site 1" and so on.
        names_column: where they stand, or None.
        decimal: "." or ",".
    """

    path: Path
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    places: tuple[int, ...]
    names: tuple[str, ...]
    names_column: int | None
    decimal: str

    def column(self, *names: str) -> int | None:
        """Where a column of one of these names is, in whatever letters; None without any."""
        found = [k for k, name in enumerate(self.header) if plain_name(name) in names]
        if len(found) > 1:
            both = " and ".join(repr(self.header[k]) for k in found)
            raise DataError(f"{self.path} must have one of {', '.join(names)}, got {both}")
        return found[0] if found else None

    def where(self, row: int) -> str:
        """A line's place, for a message."""
        return f"{self.path}, line {self.places[row]} ({self.names[row]})"

    def number(self, row: int, column: int) -> float:
        """The number in a field."""
        cell = self.rows[row][column]
        written = cell.replace(",", ".") if self.decimal == "," and "." not in cell else cell
        if csv_file.NUMBER.fullmatch(written):
            return float(written)
        what = f"{self.where(row)}: {self.header[column]} must be a number"
        if csv_file.looks_like_a_number(cell):
            mark = "point" if self.decimal == "." else "comma, as others in the file"
            what += f" without thousands separators and with a decimal {mark}"
        raise DataError(f"{what}, got {cell!r}")

    def numbers(self, column: int) -> list[float]:
        """A column's numbers."""
        return [self.number(row, column) for row in range(len(self.rows))]

    def without(self, row: int) -> SiteLines:
        """The lines but one."""

        def rest(values: tuple[T, ...]) -> tuple[T, ...]:
            return values[:row] + values[row + 1 :]

        return replace(self, rows=rest(self.rows), places=rest(self.places), names=rest(self.names))


def read(path: str | os.PathLike[str], what: str = "sites") -> SiteLines:
    """The lines of a file; `what` is what the argument is called."""
    path = checks.path(what, path)
    header, rows, places, separator = csv_file.fields(path, None, each="site")
    plain = [plain_name(name) for name in header]
    for k, name in enumerate(header):
        if name in header[:k]:
            raise DataError(f"{path} must have each column once, got {name!r} twice")
        if not name:
            raise DataError(f"{path} must name every column, got none for column {k + 1}")
    column = _names_column(path, plain, rows)
    cells = [
        (place, name, cell)
        for place, row in zip(places, rows, strict=True)
        for k, (name, cell) in enumerate(zip(header, row, strict=True))
        if k != column
    ]
    decimal = _decimal(path, cells)
    if separator != ",":
        _refuse_thousands(path, cells)
    names = tuple(
        (row[column] if column is not None else "") or f"site {k}" for k, row in enumerate(rows, 1)
    )
    for name, times in Counter(names).items():
        if times > 1:
            raise DataError(f"{path} must have each site once, got {name!r} {times} times")
    fields = tuple(map(tuple, rows))
    return SiteLines(path, tuple(header), fields, tuple(places), names, column, decimal)


def plain_name(name: str) -> str:
    """A column's name in small letters and without hyphens and spaces: "Link seconds"."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _names_column(path: Path, plain: list[str], rows: list[list[str]]) -> int | None:
    if "site" in plain:
        return plain.index("site")
    found = [k for k, name in enumerate(plain) if name in NAMES]
    if len(found) > 1:
        raise DataError(
            f"{path} must have one column of sites' names, got {plain[found[0]]!r} and "
            f"{plain[found[1]]!r}: call one of them 'site', or leave one out"
        )
    if found:
        return found[0]
    first = [row[0] for row in rows]
    return None if any(not c or csv_file.looks_like_a_number(c) for c in first) else 0


def _decimal(path: Path, cells: list[tuple[int, str, str]]) -> str:
    """ "," if some number has a decimal comma; refused if others have points then."""
    comma = next((cell for cell in cells if csv_file.WITH_COMMA.fullmatch(cell[2])), None)
    point = next((c for c in cells if "." in c[2] and csv_file.NUMBER.fullmatch(c[2])), None)
    if comma and point:
        raise DataError(
            f"{path} must have one kind of decimals, got {comma[2]!r} in line {comma[0]} and "
            f"{point[2]!r} in line {point[0]}"
        )
    return "," if comma else "."


def _refuse_thousands(path: Path, cells: list[tuple[int, str, str]]) -> None:
    """Where a point may be a decimal one or between thousands, as in 1.250, nothing is guessed."""
    for line, name, cell in cells:
        if THOUSANDS.fullmatch(cell):
            raise DataError(
                f"{path}, line {line}: {name} must be clear, got {cell!r}, which may be "
                f"{cell.replace('.', '')} or {cell.rstrip('0')}: write the one that it is"
            )


__all__ = ["SiteLines", "plain_name", "read"]


def __dir__() -> list[str]:
    return __all__
