"""From a table to a dataset: labels, sites, the split, missing values, categories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons.checks import BoolArray, IntArray
from fedcommons.datasets import class_names, csv_file, parquet_table, sites, splits
from fedcommons.datasets.dataset import Dataset
from fedcommons.datasets.reading import Reading
from fedcommons.datasets.table import SHOWN, Column, Table, as_text, is_text
from fedcommons.errors import ArgumentError, DataError

SUFFIXES = (".parquet", ".csv")
MOST_CATEGORIES = 100  # of a column: more are names of rows, most likely
SPLITS = ("train", "test")


def load(
    name: str, path: Path, test: Path | None, reading: Reading, *, seed: int, numbers: bool = False
) -> Dataset:
    """The dataset of a table's file, or of two files."""
    second = None if test is None else _read(test, reading)
    return dataset(name, _read(path, reading), second, reading, seed=seed, numbers=numbers)


def dataset(
    name: str,
    table: Table,
    test: Table | None,
    reading: Reading,
    *,
    seed: int,
    numbers: bool = False,
) -> Dataset:
    """The dataset of a table, or of two; with `numbers`, labels are numbers and no classes."""
    for one in (table, test):
        if one is not None:
            _check_columns(one, reading)
    if not _features(table, reading):
        raise DataError(f"{table.path} must have feature columns (any), got {list(table.columns)}")
    n_rows = len(table)
    if test is None:
        return _dataset(name, _split(table, reading, seed), reading, n_rows, numbers=numbers)
    if reading.split_column or reading.test_part is not None:
        rule = "split_column" if reading.split_column else "test_part"
        raise ArgumentError(f"{rule} must go with one table, got one of test examples, too")
    second = _alike(table, test)
    parts = (_whole_rows(table, reading), _whole_rows(second, reading))
    return _dataset(name, parts, reading, n_rows + len(second), numbers=numbers)


def _read(path: Path, reading: Reading) -> Table:
    if not path.exists():
        raise DataError(f"dataset {path} does not exist")
    if path.suffix == ".csv":
        of_rows = (reading.site_column, reading.split_column, reading.strata_column)
        names = {*of_rows, *reading.categories, *reading.leave_out}
        table = csv_file.read_table(
            path, separator=reading.separator, decimal=reading.decimal, text=names
        )
    else:
        for rule in ("separator", "decimal"):
            if rule in reading.given():
                raise ArgumentError(f"{rule} must go with a .csv file, got {path}")
        table = parquet_table.read_table(path, leave_out=reading.leave_out)
    return table


def _check_columns(table: Table, reading: Reading) -> None:
    table.check_has(reading.labels, "label column")
    table.check_has(filter(None, [reading.site_column]), "site_column")
    table.check_has(filter(None, [reading.split_column]), "split_column")
    table.check_has(filter(None, [reading.strata_column]), "strata_column")
    table.check_has(reading.categories, "column of categories")
    table.check_has(reading.leave_out, "column to leave out")


def _features(table: Table, reading: Reading) -> list[str]:
    """The columns that are inputs, in the file's order."""
    of_rows = (reading.site_column, reading.split_column, reading.strata_column)
    others = {*reading.labels, *of_rows, *reading.leave_out}
    return [name for name in table.columns if name not in others]


def _alike(table: Table, test: Table) -> Table:
    """The test file's table in the training file's order of columns."""
    unknown = [name for name in test.columns if name not in table.columns]
    if unknown:
        raise DataError(
            f"{test.path} must have the training file's columns alone, got also {unknown}"
        )
    absent = [name for name in table.columns if name not in test.columns]
    if absent:
        raise DataError(
            f"{test.path} must have feature columns {absent}, got {list(test.columns)[:SHOWN]}"
        )
    columns = {name: test.columns[name] for name in table.columns}
    for name, column in columns.items():
        if is_text(column) != is_text(table.columns[name]):
            columns[name] = as_text(column)
            table.columns[name] = as_text(table.columns[name])
    return Table(test.path, columns, test.places, test.place)


def _whole_rows(table: Table, reading: Reading) -> Table:
    """The rows that are used: without those that miss a value, if these are to be dropped."""
    of_rows = (reading.site_column, reading.split_column, reading.strata_column)
    needed = [n for n in (*reading.labels, *of_rows) if n]
    gaps = np.zeros(len(table), np.bool_)
    for name in [*needed, *_features(table, reading)]:
        missing = table.missing(name)
        if not missing.any():
            continue
        if reading.missing == "refuse" or (reading.missing == "mean" and name in needed):
            advice = '; give missing = "drop" to leave its rows out'
            if reading.missing == "refuse" and name not in needed:
                advice += ', or "mean"'
            raise DataError(
                f"{table.path}: column {name!r} must have no missing values, "
                f"got {int(missing.sum())}, the first in {table.place} "
                f"{table.places[missing.argmax()]}{advice}"
            )
        if reading.missing == "drop":
            gaps |= missing
    if gaps.all():
        raise DataError(f"{table.path} must have rows without missing values, got none")
    return table.at(~gaps) if gaps.any() else table


def _split(table: Table, reading: Reading, seed: int) -> tuple[Table, Table]:
    """The training and the test rows of one file."""
    table = _whole_rows(table, reading)
    if reading.split_column:
        test = _said(table, reading.split_column)
    elif reading.test_part is not None:
        site = np.zeros(len(table), np.int64)
        if reading.site_column:
            site = _codes(table.columns[reading.site_column])
        test = splits.drawn(reading.test_part, site, _strata(table, reading), seed=seed)
        if not test.any():
            raise DataError(
                f"test_part must leave test examples, got {reading.test_part:g} of {len(table)}"
            )
    else:
        test = np.zeros(len(table), np.bool_)
    return table.at(~test), table.at(test)


def _said(table: Table, column: str) -> BoolArray:
    """Where the split column says test."""
    said = [str(value).lower() for value in as_text(table.columns[column])]
    for row, value in enumerate(said):
        if value not in SPLITS:
            raise DataError(
                f"{table.where(row)}: column {column!r} must say train or test, got {value!r}"
            )
    for split in SPLITS:
        if split not in said:
            raise DataError(f"{table.path}: column {column!r} must say {split} somewhere")
    return np.array([value == "test" for value in said], np.bool_)


def _codes(column: Column) -> IntArray:
    values = as_text(column).astype(np.str_)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _strata(table: Table, reading: Reading) -> IntArray:
    """What a drawn split is spread over: labels, unless they are numbers with fractions."""
    label = table.columns[reading.labels[-1]]  # of a time and an event, the event
    if label.dtype.kind == "f" and (label != np.rint(label)).any():
        return np.zeros(len(table), np.int64)
    return _codes(label)


def _dataset(
    name: str, parts: tuple[Table, Table], reading: Reading, n_rows: int, *, numbers: bool
) -> Dataset:
    """The dataset of the training and the test rows, of so many that there were."""
    train, test = parts
    if not len(train):
        raise DataError(f"{train.path} must have training rows, got none")
    encodings: dict[str, Any] = {}
    notes: list[str] = []
    if numbers or len(reading.labels) > 1:
        y_train, y_test = (_numbers(part, reading.labels) for part in parts)
    else:
        y_train, y_test = _labels(parts, reading.labels[0], encodings)
    there: dict[str, Any] = {}
    if reading.site_column:
        columns = (as_text(part.columns[reading.site_column]).astype(np.str_) for part in parts)
        names, site_train, site_test = sites.numbered(
            f"{train.path}: column {reading.site_column!r}", *columns
        )
        there = {"sites": names, "site_train": site_train, "site_test": site_test}
    if reading.strata_column:
        there["strata_train"] = _codes(train.columns[reading.strata_column])
    inputs = list(_inputs(parts, reading, encodings, notes))
    x_train, x_test = (np.column_stack([columns[k] for _, columns in inputs]) for k in (0, 1))
    if reading.missing == "drop" and (dropped := n_rows - len(train) - len(test)):
        notes.append(f"{dropped} rows with missing values were left out")
        encodings["dropped"] = dropped
    if notes:
        encodings["notes"] = notes
    return Dataset(
        name,
        x_train,
        y_train,
        x_test,
        y_test,
        columns=tuple(column for column, _ in inputs),
        encodings=encodings,
        **there,
    )


def _numbers(table: Table, names: tuple[str, ...]) -> Column:
    """Columns of targets as the numbers that they are: (rows,), or (rows, columns) of several."""
    for name in names:
        if is_text(table.columns[name]):
            raise DataError(
                f"{table.path}: column {name!r} must hold numbers for this loss, got text such as "
                f"{str(table.columns[name][0])!r}"
            )
    found = np.column_stack([table.columns[name].astype(np.float64) for name in names])
    return found[:, 0] if len(names) == 1 else found


def _labels(
    parts: tuple[Table, Table], name: str, encodings: dict[str, Any]
) -> tuple[Column, Column]:
    """Labels as numbers: those that are text are numbered in sorted order."""
    train, test = (part.columns[name] for part in parts)
    if not is_text(train):
        known = np.unique(train)
        for row in np.flatnonzero(~np.isin(test, known))[:1] if train.dtype.kind in "iub" else ():
            raise _refused_label(parts[1], int(row), name, test[row])
        return train, test
    values, y_train, y_test = class_names.numbered(
        train, test, lambda row, value: _refused_label(parts[1], row, name, value)
    )
    encodings["label"] = {"column": name, "values": values}
    return y_train, y_test


def _refused_label(table: Table, row: int, name: str, value: object) -> DataError:
    return DataError(
        f"{table.where(row)}: column {name!r} must have labels that training rows have, too, got "
        f"{str(value)!r}"
    )


def _inputs(
    parts: tuple[Table, Table], reading: Reading, encodings: dict[str, Any], notes: list[str]
) -> Iterator[tuple[str, tuple[Column, Column]]]:
    """The inputs, (name, (train, test)): a category is a column of 0 and 1 for each of its values.

    The values are those of the training rows; a row with another, or without one, has zeros.
    """
    for name in _features(parts[0], reading):
        train, test = (part.columns[name] for part in parts)
        if is_text(train) or name in reading.categories:
            train, test = as_text(train), as_text(test)
            values = _sorted({value for value in train if value is not None})
            if len(values) > MOST_CATEGORIES:
                raise DataError(
                    f"{parts[0].path}: column {name!r} must have at most {MOST_CATEGORIES} "
                    f"categories, got {len(values)}: leave it out (leave_out)?"
                )
            others = _sorted({v for v in test if v is not None} - set(values))
            if others:
                notes.append(
                    f"column {name!r}: {', '.join(map(repr, others[:SHOWN]))} occurs among test "
                    "rows alone, and counts as none of its categories"
                )
            encodings.setdefault("categories", {})[name] = values
            for value in values:
                yield f"{name}={value}", ((train == value) * 1.0, (test == value) * 1.0)
        else:
            yield name, _filled(parts, name, encodings)


def _sorted(values: set[str]) -> list[str]:
    """By size if all are numbers, else by alphabet."""
    if all(csv_file.NUMBER.fullmatch(value) for value in values):
        return sorted(values, key=lambda value: (float(value), value))
    return sorted(values)


def _filled(
    parts: tuple[Table, Table], name: str, encodings: dict[str, Any]
) -> tuple[Column, Column]:
    """A column of numbers with the training rows' mean where values are missing."""
    train, test = (part.columns[name] for part in parts)
    gaps = [part.missing(name) for part in parts]
    if not any(gap.any() for gap in gaps):
        return train, test
    if gaps[0].all():
        raise DataError(f"{parts[0].path}: column {name!r} must have a value in a training row")
    mean = float(train[~gaps[0]].mean())
    encodings.setdefault("means", {})[name] = mean
    return np.where(gaps[0], mean, train), np.where(gaps[1], mean, test)
