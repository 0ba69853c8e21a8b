"""CSV files as people have them: what is not clear is refused with its line and column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedcommons.datasets.reading import SEPARATORS
from fedcommons.datasets.table import Column, Table
from fedcommons.errors import DataError
from fedcommons.unpacked import read_bytes

MISSING = frozenset(("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null"))
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
GROUPED = re.compile(r"[+-]?[0-9]{1,3}([,.'\u2019\u00a0\u202f ][0-9]{3})+([.,][0-9]+)?")
WITH_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+")


def read_table(
    path: Path, *, separator: str = ",", decimal: str = ".", text: Collection[str] = ()
) -> Table:
    """The table of a CSV file with a header; empty lines do not count.

    A column is numbers if all its values are, else text; those in `text` are text in any case. A
    first column without a name, as an index is written, is left out.
    """
    header, rows, lines, _ = fields(path, separator)
    unnamed = [k for k, name in enumerate(header) if not name]
    if unnamed and unnamed != [0]:
        raise DataError(f"{path} must name every column, got none for column {unnamed[-1] + 1}")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise DataError(f"{path} must have each column once, got {twice[0]!r} twice")
    columns = {}
    for k, name in enumerate(header):
        if name:
            values = [None if (cell := row[k]) in MISSING else cell for row in rows]
            columns[name] = _column(path, name, values, lines, decimal, name in text)
    return Table(path, columns, np.array(lines, np.int64), "line")


class Fields(NamedTuple):
    """What a file holds: the header, the rows, each row's line, and what stands between fields."""

    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    separator: str


def fields(path: Path, separator: str | None, *, each: str = "example") -> Fields:
    """The fields of a file with a header and a row for `each`; empty lines do not count.

    Without a `separator` it is the one that stands most often in the header.
    """
    content = read_bytes(path, DataError)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} must be text in UTF-8, got UTF-16: save it as CSV UTF-8")
    try:
        decoded = content.decode("utf-8-sig")  # spreadsheets may write a mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: must be text in UTF-8; save it as UTF-8") from None
    if separator is None:
        first = next((line for line in decoded.splitlines() if line.strip()), "")
        separator = max(SEPARATORS, key=first.count)
    reader = csv.reader(io.StringIO(decoded, newline=""), delimiter=separator)
    header: list[str] = []
    rows, lines = [], []
    try:
        for found in reader:
            row = [field.strip() for field in found]
            if not any(row):
                continue
            if not header:
                header = row
                _check_separator(path, header, separator)
            elif len(row) != len(header):
                raise DataError(
                    f"{path}, line {reader.line_num}: must have the header's {len(header)} fields, "
                    f"got {len(row)}; a value with {SEPARATORS[separator]} in it must be in quotes"
                )
            else:
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: cannot be read: {error}") from None
    if not rows:
        raise DataError(f"{path} must have a header and a row for each {each}, got no rows")
    return Fields(header, rows, lines, separator)


def _check_separator(path: Path, header: list[str], separator: str) -> None:
    """Refuse a header in one piece that another separator divides."""
    if len(header) > 1:
        return
    for other, name in SEPARATORS.items():
        if other != separator and other in header[0]:
            shown = "\\t" if other == "\t" else other
            raise DataError(
                f"{path} must have {SEPARATORS[separator]} between its fields, got {name}: "
                f'give separator = "{shown}"'
            )


def _column(
    path: Path, name: str, values: list[str | None], lines: list[int], decimal: str, as_text: bool
) -> Column:
    """Numbers if all values are, else text."""
    text = np.array(values, object)
    if as_text:
        return text
    pattern = NUMBER
    written = values
    if decimal == ",":
        written = [v and (v.replace(",", ".") if "." not in v else v + "!") for v in values]
    is_number = [value is None or pattern.fullmatch(value) is not None for value in written]
    there = sum(value is not None for value in values)
    if all(is_number):
        if there == len(values) and all(WHOLE.fullmatch(v) for v in written if v):
            return np.array(written, object).astype(np.int64)
        numbers = [np.nan if value is None else float(value) for value in written]
        return np.array(numbers, np.float64)
    others = [k for k, right in enumerate(is_number) if not right]
    first = others[0]
    where, value = f"{path}, line {lines[first]}, column {name!r}", values[first] or ""
    if all(looks_like_a_number(values[k] or "") for k in others):
        other = "," if decimal == "." else "."
        raise DataError(
            f"{where}: must be a number with a decimal {'point' if decimal == '.' else 'comma'} "
            f"and without thousands separators, got {value!r}; for decimal "
            f'{"commas" if other == "," else "points"} give decimal = "{other}"'
        )
    if 2 * (there - len(others)) >= there:
        raise DataError(
            f"{where}: must be a number as most of the column are, got {value!r}; mend it, leave "
            "the column out (leave_out), or say that it holds categories (categories)"
        )
    return text


def looks_like_a_number(value: str) -> bool:
    """Whether it is one, also with thousands separators or a decimal comma."""
    return any(p.fullmatch(value) for p in (GROUPED, WITH_COMMA, NUMBER))
