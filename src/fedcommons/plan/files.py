"""What users have on disk: a table of their sites, the labels of a placement's examples."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from fedcommons import checks, site_lines
from fedcommons.checks import FloatArray, IntArray
from fedcommons.errors import ArgumentError, DataError
from fedcommons.npz import read_npy
from fedcommons.plan.sites import C, P, Sites
from fedcommons.site_lines import SiteLines

TOTALS = ("total", "sum")


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
    """A CSV file, one line for each site: its name, `p`, `c` and a column for each class's count.

    Names, `p` and `c` may be left out; all other columns are classes. As spreadsheets write it
    (`site_lines`), and a column or last line `total` that has the sums is left out.
    `straggler_prob` and `shareable` stand for a column that is left out (.5 if not given).
    """
    lines = site_lines.read(path)
    where = {"p": lines.column("p"), "c": lines.column("c")}
    given = {"p": straggler_prob, "c": shareable}
    others = (lines.names_column, *where.values())
    classes = [k for k in range(len(lines.header)) if k not in others]
    totals = [k for k in classes if site_lines.plain_name(lines.header[k]) in TOTALS]
    classes = [k for k in classes if k not in totals]
    if len(classes) < 2:
        raise DataError(
            f"sites {path} must have a column for each class, at least two, got "
            f"{list(lines.header)}"
        )
    for name, column in where.items():
        if column is not None and given[name] is not None:
            raise ArgumentError(f"{name} must not be given twice: sites {path} has a column for it")
    lines, left_out = _without_total_line(lines, classes)
    counts = np.array([lines.numbers(k) for k in classes]).T
    _check_counts(lines, classes, counts)
    left_out += [_total_column(lines, k, counts) for k in totals]
    N = len(lines.rows)
    checks.straggler_prob(P if straggler_prob is None else straggler_prob, N)
    checks.proportions("shareable", C if shareable is None else shareable, N, "site")
    found: dict[str, npt.ArrayLike] = {}
    for name, default in (("p", P), ("c", C)):
        column, value = where[name], given[name]
        if column is not None:
            found[name] = _chances(lines, name, column)
        else:
            found[name] = default if value is None else value
    try:
        return Sites(
            counts,
            np.asarray(found["p"]),
            np.asarray(found["c"]),
            lines.names,
            tuple(lines.header[k] for k in classes),
            tuple(left_out),
            tuple(name for name in where if where[name] is None and given[name] is None),
        )
    except ArgumentError as error:
        raise DataError(f"sites {path}: {error}") from None


def _chances(lines: SiteLines, name: str, column: int) -> FloatArray:
    values = np.array(lines.numbers(column))
    wrong = ~((values >= 0) & ((values < 1) if name == "p" else (values <= 1)))
    for row in np.flatnonzero(wrong).tolist():
        rule = "straggler_prob must be in [0, 1)" if name == "p" else "c must be in [0, 1]"
        raise DataError(f"{lines.where(row)}: {rule}, got {values[row]:g}")
    return values


def _check_counts(lines: SiteLines, classes: list[int], counts: FloatArray) -> None:
    for row, place in np.argwhere((counts < 0) | (counts != np.rint(counts))).tolist():
        name, value = lines.header[classes[place]], counts[row, place]
        rule = "not be negative" if value < 0 else "be a whole number"
        raise DataError(f"{lines.where(row)}: {name} must {rule}, got {value:g}")


def _without_total_line(lines: SiteLines, classes: list[int]) -> tuple[SiteLines, list[str]]:
    """The lines without a last one that has the sums of the others."""
    last = len(lines.rows) - 1
    if last < 1 or site_lines.plain_name(lines.names[last]) not in TOTALS:
        return lines, []
    for k in classes:
        *counts, total = lines.numbers(k)
        if sum(counts) != total:
            raise DataError(
                f"{lines.where(last)}: {lines.header[k]} must be the sum of the lines above, "
                f"{sum(counts):g}, got {total:g}; a site of that name needs another"
            )
    words = f"the line {lines.names[last]!r}, which has the sums of the others"
    return lines.without(last), [words]


def _total_column(lines: SiteLines, column: int, counts: FloatArray) -> str:
    """Words that say that a column with the sums is left out; another one is refused."""
    name = lines.header[column]
    for row, total in enumerate(lines.numbers(column)):
        if total != counts[row].sum():
            raise DataError(
                f"{lines.where(row)}: {name} must be the sum of the classes, "
                f"{counts[row].sum():g}, got {total:g}; a class of that name needs another"
            )
    return f"the column {name!r}, which has the sums of the others"
