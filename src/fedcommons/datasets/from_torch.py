"""Torch's datasets: they are looked at, torch is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.datasets.dataset import Dataset
from fedcommons.datasets.from_arrays import stacked
from fedcommons.errors import DataError

Array = npt.NDArray[Any]


def from_torch(train: Any, test: Any = None, *, name: str = "torch") -> Dataset:
    """Torch `Dataset`s with a length, whose items are (input, label).

    An item may also be a mapping of two, the label last.
    """
    x, y = _items(train, f"{name}: train")
    x_test, y_test = (x[:0], y[:0]) if test is None else _items(test, f"{name}: test")
    return Dataset(name, x, y, x_test, y_test)


def _items(dataset: Any, where: str) -> tuple[Array, Array]:
    try:
        items = [_pair(dataset[k]) for k in range(len(dataset))]
        pairs = [(np.asarray(x), np.asarray(y)) for x, y in items]
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} must have a length and items (input, label): {error}") from None
    if not pairs:
        raise DataError(f"{where} must have examples, got none")
    x = stacked([x for x, _ in pairs], f"{where}: inputs")
    return x if x.ndim > 1 else x[:, None], stacked([y for _, y in pairs], f"{where}: labels")


def _pair(item: Any) -> Any:
    return item.values() if isinstance(item, Mapping) else item
