"""The dataset record: examples and what is known of them, split into training and test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import IntArray
from fedcommons.errors import ArgumentError, DataError

CLASSES_OF_FEW = 1000  # labels below this are taken however few examples there are
LARGEST_INPUT = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Examples and targets. Arrays are kept as they came; `inputs` makes model inputs of them.

    Attributes:
        name: where they came from.
        x_train, x_test: (examples, ...) numbers, bytes in both splits or in neither; the test
            split may have no examples.
        y_train, y_test: (examples,) labels in {0, ..., L-1}; L is at most the number of examples
            or `CLASSES_OF_FEW`. Or what another loss takes (`fedcommons.tasks`): numbers,
            (examples,) or (examples, columns).
        sites: the names of the sites that the examples are from; empty if that is unknown.
        site_train, site_test: (examples,) the number of each example's site; None without sites,
            and of test examples where their sites are not known.
        columns: the names of the flat inputs; empty if they have none.
        encodings: what was made of labels, categories, missing values and scales, for JSON.
        strata_train: (examples,) groups that partitions go by instead of labels.
    """

    name: str
    x_train: npt.NDArray[Any]
    y_train: npt.NDArray[Any]
    x_test: npt.NDArray[Any]
    y_test: npt.NDArray[Any]
    sites: tuple[str, ...] = ()
    site_train: IntArray | None = None
    site_test: IntArray | None = None
    columns: tuple[str, ...] = ()
    encodings: Mapping[str, Any] = field(default_factory=dict)
    strata_train: IntArray | None = None

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            x = _inputs_checked(self.name, f"x_{split}", getattr(self, f"x_{split}"))
            y = _targets_checked(self.name, f"y_{split}", getattr(self, f"y_{split}"))
            if len(x) != len(y):
                raise DataError(
                    f"{self.name}: x_{split} and y_{split} must have the same length, "
                    f"got {len(x)} and {len(y)}"
                )
            object.__setattr__(self, f"x_{split}", x)
            object.__setattr__(self, f"y_{split}", y)
        if len(self.y_train) == 0:
            raise DataError(f"{self.name}: x_train must have examples, got none")
        if len(self.x_test) and self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise DataError(
                f"{self.name}: x_train and x_test must have examples of one shape, "
                f"got {self.x_train.shape[1:]} and {self.x_test.shape[1:]}"
            )
        if len(self.x_test) and (self.x_train.dtype == np.uint8) != (self.x_test.dtype == np.uint8):
            raise DataError(
                f"{self.name}: x_train and x_test must both be bytes (uint8), which are scaled to "
                f"[0, 1], or neither, got {self.x_train.dtype} and {self.x_test.dtype}"
            )
        if self.y_train.shape[1:] != self.y_test.shape[1:] or (
            _is_labels(self.y_train) != _is_labels(self.y_test) and len(self.y_test)
        ):
            raise DataError(
                f"{self.name}: y_train and y_test must be of one kind, got {self.y_train.dtype} of "
                f"shape {self.y_train.shape} and {self.y_test.dtype} of shape {self.y_test.shape}"
            )
        if self.strata_train is not None:
            strata = _labels_checked(self.name, "strata_train", self.strata_train)
            if len(strata) != len(self.y_train):
                raise DataError(
                    f"{self.name}: strata_train must have one entry for each of the "
                    f"{len(self.y_train)} training examples, got {len(strata)}"
                )
            object.__setattr__(self, "strata_train", strata)
        n_examples = len(self.y_train) + len(self.y_test)
        if self.has_labels and self.n_classes > max(n_examples, CLASSES_OF_FEW):
            raise DataError(
                f"{self.name}: labels must be numbers of classes, 0, 1, 2 and so on, below the "
                f"number of examples ({n_examples}) or {CLASSES_OF_FEW}, got {self.n_classes - 1}"
            )
        self._check_sites()

    def _check_sites(self) -> None:
        if bool(self.sites) != (self.site_train is not None):
            raise DataError(f"{self.name}: sites must come with site_train, and it with them")
        for split in ("train", "test"):
            numbers, length = getattr(self, f"site_{split}"), len(getattr(self, f"y_{split}"))
            if numbers is not None:
                found = checks.indices(
                    f"site_{split}", numbers, below=len(self.sites), length=length
                )
                object.__setattr__(self, f"site_{split}", found)

    def take(
        self, train: npt.NDArray[Any] | None = None, test: npt.NDArray[Any] | None = None
    ) -> Dataset:
        """The dataset with these training and test examples alone, by number or mask."""
        taken = {}
        for one in fields(self):
            rows = {"train": train, "test": test}.get(one.name.rpartition("_")[2])
            array = getattr(self, one.name)
            if rows is not None and array is not None:
                taken[one.name] = array[rows]
        return replace(self, **taken)

    def testing_on(self, held_out: npt.NDArray[np.bool_]) -> Dataset:
        """The dataset that is tested on these training examples, and trained on the others."""
        there = {
            one.name: array
            for one in fields(self)
            if one.name.endswith("_train") and (array := getattr(self, one.name)) is not None
        }
        names = {one.name for one in fields(self)}
        tested = {
            test: array[held_out]
            for name, array in there.items()
            if (test := name.replace("_train", "_test")) in names
        }
        return replace(self, **{name: array[~held_out] for name, array in there.items()}, **tested)

    @property
    def has_labels(self) -> bool:
        """Whether y are labels of classes: one integer for each example."""
        return _is_labels(self.y_train)

    @property
    def groups(self) -> IntArray:
        """What partitions tell training examples apart by: strata if there are any, else labels."""
        return self._labels if self.strata_train is None else self.strata_train

    @property
    def _labels(self) -> IntArray:
        if not self.has_labels:
            raise DataError(
                f"{self.name}: y must be integer labels of classes here, got {self.y_train.dtype} "
                f"of shape {self.y_train.shape}"
            )
        return self.y_train

    @property
    def n_classes(self) -> int:
        """L: the largest label plus 1."""
        _ = self._labels
        return int(max(self.y_train.max(), self.y_test.max(initial=0))) + 1

    def inputs(
        self,
        split: Literal["train", "test"],
        examples: npt.ArrayLike | None = None,
        *,
        dtype: npt.DTypeLike = np.float32,
    ) -> npt.NDArray[Any]:
        """Flat model inputs, shape (examples, features): all, or those with the given numbers.

        Bytes (uint8) are scaled to [0, 1]; other numbers stay as they are.
        """
        if split not in ("train", "test"):
            raise ArgumentError(f"split must be 'train' or 'test', got {split!r}")
        x = self.x_train if split == "train" else self.x_test
        if not np.issubdtype(np.dtype(dtype), np.floating):
            raise ArgumentError(f"dtype must be a floating type, got {np.dtype(dtype)}")
        if examples is not None:
            x = x[checks.indices("examples", examples, below=len(x))]
        flat = x.reshape(len(x), int(np.prod(x.shape[1:]))).astype(dtype)
        if x.dtype == np.uint8:
            flat /= np.asarray(255, dtype)
        return flat


def _inputs_checked(name: str, field: str, x: object) -> npt.NDArray[Any]:
    array = np.asarray(x)
    if array.ndim < 2:
        raise DataError(f"{name}: {field} must be (examples, ...), got shape {array.shape}")
    is_float = np.issubdtype(array.dtype, np.floating)
    if not (is_float or np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_):
        raise DataError(f"{name}: {field} must be real numbers, got dtype {array.dtype}")
    if is_float and not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array.reshape(len(array), -1)).all(axis=1)))
        raise DataError(f"{name}: {field} must be finite, got a missing value in example {row}")
    if is_float and np.abs(array).max(initial=0) > LARGEST_INPUT:
        raise DataError(
            f"{name}: {field} must be at most {LARGEST_INPUT:.2g} in size, as models compute in "
            f"float32, got {np.abs(array).max():g}"
        )
    return array


def _is_labels(y: npt.NDArray[Any]) -> bool:
    return y.ndim == 1 and np.issubdtype(y.dtype, np.integer)


def _targets_checked(name: str, field: str, y: object) -> npt.NDArray[Any]:
    """Labels if they are integers of one dimension, else finite numbers."""
    array = np.asarray(y)
    if _is_labels(array):
        return _labels_checked(name, field, array)
    if array.ndim not in (1, 2) or 0 in array.shape[1:]:
        raise DataError(
            f"{name}: {field} must be (examples,) or (examples, columns), got shape {array.shape}"
        )
    if np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_:
        return array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.floating):
        raise DataError(
            f"{name}: {field} must be integer labels or numbers, got dtype {array.dtype}"
        )
    finite = np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    if not finite.all():
        row = int(np.argmin(finite))
        raise DataError(f"{name}: {field} must be finite, got a missing value in example {row}")
    return array


def _labels_checked(name: str, field: str, y: object) -> IntArray:
    array = np.asarray(y)
    if array.ndim != 1:
        raise DataError(f"{name}: {field} must have one dimension, got shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{name}: {field} must be integer labels, got dtype {array.dtype}")
    if array.size and (array.min() < 0 or array.max() > checks.LARGEST):
        wrong = array.min() if array.min() < 0 else array.max()
        raise DataError(f"{name}: {field} must be labels >= 0, got {wrong}")
    return array.astype(np.int64)
