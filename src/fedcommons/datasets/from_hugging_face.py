"""Hugging Face's datasets, whole or in the parts that Flower's partitioners make of them.

Each function looks at the objects that it is given; it imports and downloads nothing. Both come
with `pip install 'fedcommons[datasets]'`. Columns of numbers and words are read as those of a
table's file are; images and vectors stay arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons.datasets import scaling, sites, tables
from fedcommons.datasets.dataset import Dataset
from fedcommons.datasets.from_arrays import stacked
from fedcommons.datasets.reading import Reading, from_rules, refuse_rules_of_tables
from fedcommons.datasets.table import Column, Table
from fedcommons.errors import ArgumentError, DataError

Columns = dict[str, list[Any]]  # by name, the values in the dataset's order
OF_ARGUMENTS = ("label", "site_column", "leave_out", "separator", "decimal")


def from_huggingface(
    train: Any,
    test: Any = None,
    *,
    label: str = "label",
    inputs: str | Sequence[str] | None = None,
    site: str | None = None,
    name: str = "huggingface",
    seed: int = 0,
    **rules: Any,
) -> Dataset:
    """Hugging Face `datasets.Dataset`s: training examples, and test examples if there are any.

    Args:
        train, test: `datasets.Dataset`s; or in place of the first a `DatasetDict` with "train" and
            "test".
        label: the column of labels; names of classes are kept.
        inputs: a column of images or vectors of one shape, or several of numbers and words; by
            default all that have no other role.
        site: the column that names each example's site.
        seed: what `test_part` draws from.
        rules: `scale`; and of `Reading`, for columns of numbers and words, `missing`, `categories`,
            `test_part`, `split_column` and `strata_column`.
    """
    if isinstance(train, Mapping):
        if test is not None:
            raise ArgumentError("test must not be given beside a DatasetDict")
        train, test = _split_of(train, "train"), train.get("test")
    reading = _reading(label, site or "", rules)
    columns = _chosen(train, inputs, reading)
    of_test = None if test is None else _columns([test], columns)
    return _dataset(name, _columns([train], columns), of_test, reading, train, seed)


def from_partitions(
    parts: Sequence[Any],
    test: Any = None,
    *,
    label: str = "label",
    inputs: str | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    name: str = "partitions",
    seed: int = 0,
    **rules: Any,
) -> Dataset:
    """The parts of a partitioned dataset, each a Hugging Face dataset, as sites.

    For a partitioner of `flwr-datasets` that has its dataset:
    `from_partitions([partitioner.load_partition(k) for k in range(partitioner.num_partitions)])`;
    for a `FederatedDataset`, `federated.load_partition(k)`, with `federated.load_split("test")` as
    `test`.

    Args:
        parts: at least two, each with examples.
        test: test examples of all together, whose sites are not known then; or a list of those of
            each site.
        names: of the sites; by default their numbers.
        label, inputs, seed, rules: as of `from_huggingface`.
    """
    if len(parts) < 2:
        raise ArgumentError(f"parts must be at least two, got {len(parts)}")
    called = [str(k) for k in range(len(parts))] if names is None else [str(n) for n in names]
    if len(called) != len(parts) or len(set(called)) < len(called):
        raise ArgumentError(f"names must be {len(parts)} different ones, got {called}")
    for site, part in zip(called, parts, strict=True):
        if not len(part):
            raise DataError(f"{name}: part {site} must have examples, got none")
    tests = list(test) if isinstance(test, list | tuple) else [] if test is None else [test]
    if len(tests) not in (0, 1, len(parts)):
        raise ArgumentError(f"test must be one dataset, or {len(parts)}, got {len(tests)}")
    part_of = "part"
    while part_of in parts[0].column_names:
        part_of += "_"
    columns = _chosen(parts[0], inputs, _reading(label, "", rules))
    train, of_test = (_columns(some, columns) for some in (parts, tests))
    # Sites are put in the order of their names: numbers of one length stay in theirs.
    train[part_of] = [f"{k:09d}" for k, part in enumerate(parts) for _ in range(len(part))]
    of_test[part_of] = [f"{k:09d}" for k, part in enumerate(tests) for _ in range(len(part))]
    reading = _reading(label, part_of, rules)
    found = _dataset(name, train, of_test if tests else None, reading, parts[0], seed)
    site_test = None if len(tests) == 1 else found.site_test
    return replace(found, sites=tuple(called), site_test=site_test)


def _split_of(splits: Mapping[str, Any], split: str) -> Any:
    if split not in splits:
        raise DataError(f"a DatasetDict must have the split {split!r}, got {list(splits)}")
    return splits[split]


def _reading(label: str, site_column: str, rules: Mapping[str, Any]) -> Reading:
    for rule in OF_ARGUMENTS:
        if rule in rules:
            raise ArgumentError(f"{rule} must be left out here, got {rules[rule]!r}")
    return from_rules({**rules, "label": label, "site_column": site_column})


def _chosen(dataset: Any, inputs: str | Sequence[str] | None, reading: Reading) -> list[str]:
    """The columns that are read, checked: inputs, and those with a role."""
    known = list(dataset.column_names)
    roles = (reading.site_column, reading.split_column, reading.strata_column)
    others = [*reading.labels, *filter(None, roles)]
    if inputs is None:
        columns = [column for column in known if column not in others]
    else:
        columns = [inputs] if isinstance(inputs, str) else list(inputs)
    for column in [*others, *columns]:
        if column not in known:
            raise DataError(f"the dataset must have the column {column!r}, got {known}")
    if not columns:
        raise DataError(f"the dataset must have columns of inputs beside {others}, got {known}")
    return [*columns, *others]


def _columns(datasets: Sequence[Any], columns: Sequence[str]) -> Columns:
    """The columns of datasets one after another; names in place of a `ClassLabel`'s numbers."""
    return {
        column: list(chain.from_iterable(_values(one, column) for one in datasets))
        for column in columns
    }


def _values(dataset: Any, column: str) -> list[Any]:
    if column not in dataset.column_names:
        raise DataError(
            f"the dataset must have the column {column!r}, got {list(dataset.column_names)}"
        )
    found = [np.asarray(value) for value in dataset[column]]
    return [value.item() if value.ndim == 0 else value for value in found]


def _dataset(
    name: str, train: Columns, test: Columns | None, reading: Reading, like: Any, seed: int
) -> Dataset:
    roles = {reading.site_column, reading.split_column, reading.strata_column, *reading.labels}
    inputs = [column for column in train if column not in roles]
    names = {c: tuple(n) for c in train if (n := _class_names(like, c))}
    both = (train,) if test is None else (train, test)
    if not any(isinstance(v, np.ndarray) for some in both for c in some.values() for v in c):
        made = [_table(name, some, names, reading) for some in both]
        second = made[1] if test is not None else None
        found = tables.dataset(name, made[0], second, reading, seed=seed)
    else:
        refuse_rules_of_tables(replace(reading, label="label", site_column=""), name)
        found = _of_arrays(name, both, inputs, reading)
    of_label = names.get(reading.labels[0])
    if of_label:
        column = {"column": reading.labels[0], "values": list(of_label)}
        found = replace(found, encodings={**found.encodings, "label": column})
    return scaling.standardised(found) if reading.scale == "standard" else found


def _table(
    name: str, columns: Columns, names: Mapping[str, Sequence[str]], reading: Reading
) -> Table:
    """A table of numbers and words; a `ClassLabel`'s numbers are names but for labels."""
    found = {}
    for column, values in columns.items():
        if column in names and column not in reading.labels:
            of = names[column]
            values = [of[v] if v is not None and 0 <= v < len(of) else None for v in values]
        found[column] = _as_column(name, column, values)
    return Table(Path(name), found, np.arange(len(next(iter(columns.values())))), "example")


def _as_column(name: str, column: str, values: Sequence[Any]) -> Column:
    if any(isinstance(value, str) for value in values):
        return np.array(
            [str(value) if value not in (None, "") else None for value in values], object
        )
    found = np.array([np.nan if value is None else value for value in values])
    if found.dtype.kind not in "iufb":
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise DataError(
            f"{name}: column {column!r} must hold numbers or words, got {', '.join(kinds)}"
        )
    return found


def _of_arrays(
    name: str, splits: Sequence[Columns], inputs: Sequence[str], reading: Reading
) -> Dataset:
    """Of images, of vectors, or with several labels for each example."""
    made: dict[str, Any] = {}
    for split, columns in zip(("train", "test"), splits, strict=False):
        found = [stacked(columns[column], f"column {column!r}") for column in inputs]
        for column, array in zip(inputs, found, strict=True):
            if array.ndim != 1 and len(inputs) > 1:
                raise DataError(
                    f"column {column!r} must hold numbers beside other inputs, got shape "
                    f"{array.shape}"
                )
        x = found[0] if len(inputs) == 1 and found[0].ndim > 1 else np.column_stack(found)
        [label] = reading.labels
        made |= {f"x_{split}": x, f"y_{split}": stacked(columns[label], f"column {label!r}")}
    if len(splits) == 1:
        made |= {"x_test": made["x_train"][:0], "y_test": made["y_train"][:0]}
    if reading.site_column:
        of = [np.array(c[reading.site_column]) for c in splits]
        of += [of[0][:0]] * (2 - len(splits))
        numbered = sites.numbered(f"{name}: column {reading.site_column!r}", *of)
        made |= dict(zip(("sites", "site_train", "site_test"), numbered, strict=True))
    return Dataset(name, **made, columns=tuple(inputs) if len(inputs) > 1 else ())


def _class_names(dataset: Any, column: str) -> Sequence[str]:
    """The names of a `ClassLabel`."""
    return getattr(getattr(dataset, "features", {}).get(column), "names", None) or ()
