"""Labels that are words: the names of classes, numbered in sorted order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.errors import DataError

Names = npt.NDArray[Any]


def numbered(
    train: Names, test: Names, refuse: Callable[[int, str], DataError]
) -> tuple[list[str], IntArray, IntArray]:
    """The names, and the number of each example's: train, test.

    `refuse` makes the error of a test example whose name no training example has.
    """
    values = sorted(set(train.tolist()))
    numbers = {value: k for k, value in enumerate(values)}
    for row, value in enumerate(test.tolist()):
        if value not in numbers:
            raise refuse(row, str(value))
    coded = (np.array([numbers[v] for v in part.tolist()], np.int64) for part in (train, test))
    return [str(value) for value in values], next(coded), next(coded)
