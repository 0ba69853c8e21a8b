"""Data that are in memory already, as other libraries have them: nothing is downloaded here.

Each function looks at the objects that it is given and imports nothing. Hugging Face's `datasets`
and Flower's `flwr-datasets` come with `pip install 'fedcommons[datasets]'`, torch with
`fedcommons[torch]`. `datasets.save` writes what comes out as a file that studies read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.datasets import sites as natural
from fedcommons.datasets.dataset import Dataset
from fedcommons.errors import ArgumentError, DataError

Array = npt.NDArray[Any]


def from_huggingface(
    train: Any,
    test: Any = None,
    *,
    label: str = "label",
    inputs: str | Sequence[str] | None = None,
    site: str | None = None,
    name: str = "huggingface",
) -> Dataset:
    """Hugging Face `datasets.Dataset`s: training examples, and test examples if there are any.

    Args:
        train, test: `datasets.Dataset`s; or in place of the first a `DatasetDict` with "train" and
            "test".
        label: the column of labels; a `ClassLabel`'s names are kept.
        inputs: a column of images or vectors of one shape, or several of numbers; by default all
            but `label` and `site`.
        site: the column that names each example's site.
    """
    if isinstance(train, Mapping):
        if test is not None:
            raise ArgumentError("test must not be given beside a DatasetDict")
        train, test = _split_of(train, "train"), train.get("test")
    columns = _chosen(train, label, inputs, site)
    x_train, y_train = _rows(train, columns, label)
    x_test, y_test = (x_train[:0], y_train[:0]) if test is None else _rows(test, columns, label)
    there: dict[str, Any] = {}
    if site is not None:
        of_test = _column(train, site)[:0] if test is None else _column(test, site)
        numbered = natural.numbered(f"{name}: column {site!r}", _column(train, site), of_test)
        there = dict(zip(("sites", "site_train", "site_test"), numbered, strict=True))
    return Dataset(
        name,
        x_train,
        y_train,
        x_test,
        y_test,
        columns=tuple(columns) if len(columns) > 1 else (),
        encodings=_class_names(train, label),
        **there,
    )


def from_partitions(
    parts: Sequence[Any],
    test: Any = None,
    *,
    label: str = "label",
    inputs: str | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    name: str = "partitions",
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
    """
    if len(parts) < 2:
        raise ArgumentError(f"parts must be at least two, got {len(parts)}")
    called = [str(k) for k in range(len(parts))] if names is None else [str(n) for n in names]
    if len(called) != len(parts) or len(set(called)) < len(called):
        raise ArgumentError(f"names must be {len(parts)} different ones, got {called}")
    for site, part in zip(called, parts, strict=True):
        if not len(part):
            raise DataError(f"{name}: part {site} must have examples, got none")
    columns = _chosen(parts[0], label, inputs, None)
    rows = [_rows(part, columns, label) for part in parts]
    x, y = (np.concatenate([row[k] for row in rows]) for k in (0, 1))
    tests = test if isinstance(test, list | tuple) else [] if test is None else [test]
    site_test = None
    if len(tests) != 1:
        if tests and len(tests) != len(parts):
            raise ArgumentError(f"test must be one dataset, or {len(parts)}, got {len(tests)}")
        site_test = np.repeat(np.arange(len(tests)), [len(part) for part in tests])
    of_test = [(x[:0], y[:0]), *(_rows(part, columns, label) for part in tests if len(part))]
    x_test, y_test = (np.concatenate([row[k] for row in of_test]) for k in (0, 1))
    return Dataset(
        name,
        x,
        y,
        x_test,
        y_test,
        sites=tuple(called),
        site_train=np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        site_test=site_test,
        columns=tuple(columns) if len(columns) > 1 else (),
        encodings=_class_names(parts[0], label),
    )


def from_torch(train: Any, test: Any = None, *, name: str = "torch") -> Dataset:
    """Torch `Dataset`s with a length, whose items are (input, label)."""
    x, y = _items(train, f"{name}: train")
    x_test, y_test = (x[:0], y[:0]) if test is None else _items(test, f"{name}: test")
    return Dataset(name, x, y, x_test, y_test)


def _items(dataset: Any, where: str) -> tuple[Array, Array]:
    try:
        items = [dataset[k] for k in range(len(dataset))]
        pairs = [(np.asarray(x), np.asarray(y)) for x, y in items]
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} must have a length and items (input, label): {error}") from None
    if not pairs:
        raise DataError(f"{where} must have examples, got none")
    x = _alike([x for x, _ in pairs], f"{where}: inputs")
    return x if x.ndim > 1 else x[:, None], _alike([y for _, y in pairs], f"{where}: labels")


def _split_of(splits: Mapping[str, Any], split: str) -> Any:
    if split not in splits:
        raise DataError(f"a DatasetDict must have the split {split!r}, got {list(splits)}")
    return splits[split]


def _chosen(
    dataset: Any, label: str, inputs: str | Sequence[str] | None, site: str | None
) -> list[str]:
    """The columns of inputs, checked."""
    known = list(dataset.column_names)
    if inputs is None:
        columns = [column for column in known if column not in (label, site)]
    else:
        columns = [inputs] if isinstance(inputs, str) else list(inputs)
    for column in [label, *columns, *([] if site is None else [site])]:
        if column not in known:
            raise DataError(f"the dataset must have the column {column!r}, got {known}")
    if not columns:
        raise DataError(f"the dataset must have columns of inputs beside {label!r}, got {known}")
    return columns


def _rows(dataset: Any, columns: Sequence[str], label: str) -> tuple[Array, Array]:
    """Inputs, with a column for each of several, and labels."""
    found = [_column(dataset, column) for column in columns]
    if len(found) == 1:
        x = found[0] if found[0].ndim > 1 else found[0][:, None]
    else:
        for column, array in zip(columns, found, strict=True):
            if array.ndim != 1:
                raise DataError(
                    f"column {column!r} must hold numbers beside other inputs, "
                    f"got shape {array.shape}"
                )
        x = np.column_stack(found)
    return x, _column(dataset, label)


def _column(dataset: Any, column: str) -> Array:
    """A column's values in the dataset's order: images and lists as arrays of one shape."""
    return _alike([np.asarray(value) for value in dataset[column]], f"column {column!r}")


def _alike(values: Sequence[Array], where: str) -> Array:
    shapes = {value.shape for value in values}
    if len(shapes) > 1:
        raise DataError(f"{where} must be of one shape, got {sorted(shapes)[:3]}")
    try:
        return np.stack(values) if values else np.empty(0)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} must be of one kind: {error}") from None


def _class_names(dataset: Any, label: str) -> dict[str, Any]:
    """The names of a `ClassLabel`, as an encoding."""
    names = getattr(getattr(dataset, "features", {}).get(label), "names", None)
    return {"label": {"column": label, "values": list(names)}} if names else {}
