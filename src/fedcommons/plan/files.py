"""What users have on disk: a table of their sites, the labels of a placement's examples."""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import IntArray
from fedcommons.errors import ArgumentError, DataError
from fedcommons.npz import read_npy
from fedcommons.plan.sites import C, P, Sites

RESERVED = ("site", "p", "c")


def read_labels(
    path: str | os.PathLike[str], *, n_examples: int | None = None, n_classes: int | None = None
) -> IntArray:
    """The class of each example, in order: a .npy file of integers, or a line of text for each.

    Lines that are not all integers are names of classes, which are numbered in sorted order. With
    `n_classes` integers are the classes of a dataset, else those that occur are numbered anew.
    """
    path = checks.path("labels", path)
    try:
        if path.suffix == ".npy":
            found = read_npy(path, DataError)
        else:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
            names = np.array([line.strip() for line in lines if line.strip()])
            if all(name.isdecimal() for name in names):
                found = names.astype(np.int64)
            else:
                found = np.unique(names, return_inverse=True)[1]
    except (OSError, EOFError, ValueError, OverflowError) as error:
        raise DataError(f"labels {path} cannot be read: {error}") from None
    try:
        labels = checks.labels(found, n_classes)[0]
        checks.same_length("labels", labels, n_examples)
    except ArgumentError as error:
        raise DataError(f"labels {path}: {error}") from None
    if n_classes is not None:
        return labels
    occurring, renumbered = np.unique(labels, return_inverse=True)
    if len(occurring) < 2:
        raise DataError(f"labels {path} must be of at least two classes, got {len(occurring)}")
    return renumbered


def read_sites(
    path: str | os.PathLike[str],
    *,
    straggler_prob: npt.ArrayLike | None = None,
    shareable: npt.ArrayLike | None = None,
) -> Sites:
    """A CSV file, one line for each site: `site`, `p`, `c` and a column for each class's count.

    `site`, `p` and `c`, in small or capital letters, may be left out; all other columns are
    classes. `straggler_prob` and `shareable` stand for a column that is left out (.5 if not given).
    """
    path = checks.path("sites", path)
    header, lines = _read_table(path)
    columns = {name.lower(): k for k, name in enumerate(header) if name.lower() in RESERVED}
    classes = [k for k, name in enumerate(header) if name.lower() not in RESERVED]
    if len(classes) < 2:
        raise DataError(
            f"sites {path} must have a column for each class, at least two, got {header}"
        )

    def number(line: int, fields: list[str], column: int) -> float:
        try:
            return float(fields[column])
        except ValueError:
            raise DataError(
                f"sites {path}, line {line}: {header[column]} must be a number, "
                f"got {fields[column]!r}"
            ) from None

    def column(name: str, given: npt.ArrayLike | None, default: float) -> npt.ArrayLike:
        if name not in columns:
            return default if given is None else given
        if given is not None:
            raise ArgumentError(f"{name} must not be given twice: sites {path} has a column for it")
        return np.array([number(*line, columns[name]) for line in lines])

    names = tuple(
        (fields[columns["site"]] if "site" in columns else "") or f"site {k}"
        for k, (_, fields) in enumerate(lines, start=1)
    )
    for name, times in Counter(names).items():
        if times > 1:
            raise DataError(f"sites {path} must have each site once, got {name!r} {times} times")
    N = len(lines)
    checks.straggler_prob(P if straggler_prob is None else straggler_prob, N)
    checks.proportions("shareable", C if shareable is None else shareable, N, "site")
    p, c = column("p", straggler_prob, P), column("c", shareable, C)
    try:
        return Sites(
            np.array([[number(*line, k) for k in classes] for line in lines]),
            np.asarray(p),
            np.asarray(c),
            names,
            tuple(header[k] for k in classes),
        )
    except ArgumentError as error:
        raise DataError(f"sites {path}: {error}") from None


def _read_table(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and the fields of each line with its number; empty lines do not count."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets may write a mark
            reader = csv.reader(file)
            rows = [
                (reader.line_num, [field.strip() for field in fields])
                for fields in reader
                if any(field.strip() for field in fields)
            ]
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"sites {path} cannot be read: {error}") from None
    if len(rows) < 2:
        raise DataError(f"sites {path} must have a header and a line for each site, got none")
    header = rows[0][1]
    known = [name.lower() if name.lower() in RESERVED else name for name in header]
    twice = [name for name in known if known.count(name) > 1]
    if twice:
        raise DataError(f"sites {path} must have each column once, got {twice[0]!r} twice")
    for line, fields in rows[1:]:
        if len(fields) != len(header):
            raise DataError(
                f"sites {path}, line {line}: must have the header's {len(header)} fields, "
                f"got {len(fields)}"
            )
    return header, rows[1:]
