"""How a data file is to be read: which column is what, how examples are split, how inputs look."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcommons import checks
from fedcommons.errors import ArgumentError

MISSING_RULES = ("refuse", "drop", "mean")
SCALES = ("none", "standard")
SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
OF_TABLES = (  # rules that have no use beside arrays and images
    "label",
    "site_column",
    "split_column",
    "strata_column",
    "categories",
    "leave_out",
    "missing",
    "separator",
    "decimal",
)
COLUMNS = ("site_column", "split_column", "strata_column")
LISTS = ("categories", "leave_out")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file does not say of itself.

    Attributes:
        label: the column of the labels of a table; several, for what needs more than one number.
        site_column: the column that names each row's site; empty without sites.
        split_column: the column that says "train" or "test".
        strata_column: the column of groups that partitions go by instead of labels.
        test_part: the proportion of the examples that is drawn for testing, of each site and label.
        categories: columns of numbers that are names of categories; text always is.
        leave_out: columns that are no inputs.
        missing: what becomes of missing values: "refuse"; "drop" their rows; or "mean", the mean of
            the training rows.
        scale: "standard" brings each input to mean 0 and standard deviation 1 over the training
            examples of all sites together; "none" leaves them.
        separator, decimal: what stands between the fields of a CSV file, and in its numbers.
    """

    label: str | tuple[str, ...] = "label"
    site_column: str = ""
    split_column: str = ""
    strata_column: str = ""
    test_part: float | None = None
    categories: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    missing: str = "refuse"
    scale: str = "none"
    separator: str = ","
    decimal: str = "."

    def __post_init__(self) -> None:
        if isinstance(self.label, list):
            object.__setattr__(self, "label", tuple(self.label))
        for label in self.labels:
            if not isinstance(label, str) or not label:
                raise ArgumentError(f"label must be a column's name, got {label!r}")
        for name in COLUMNS:
            if not isinstance(getattr(self, name), str):
                raise ArgumentError(f"{name} must be a column's name, got {getattr(self, name)!r}")
        if not self.labels:
            raise ArgumentError("label must be a column's name, or several, got none")
        for name in LISTS:
            value = getattr(self, name)
            if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
                raise ArgumentError(f"{name} must be a list of columns' names, got {value!r}")
            object.__setattr__(self, name, tuple(value))
        for name, known in (
            ("missing", MISSING_RULES),
            ("scale", SCALES),
            ("separator", tuple(SEPARATORS)),
            ("decimal", (".", ",")),
        ):
            if getattr(self, name) not in known:
                words = ", ".join(map(repr, known))
                raise ArgumentError(f"{name} must be one of {words}, got {getattr(self, name)!r}")
        if self.test_part is not None:
            part = checks.real("test_part", self.test_part, low=0, high=1)
            if not 0 < part < 1:
                raise ArgumentError(f"test_part must be above 0 and below 1, got {part:g}")
            if self.split_column:
                raise ArgumentError("test_part and split_column must not be given both")
        self._check_columns()

    def _check_columns(self) -> None:
        roles = [(label, "label") for label in self.labels]
        roles += [(getattr(self, name), name) for name in COLUMNS]
        roles += [(column, name) for name in LISTS for column in getattr(self, name)]
        known: dict[str, str] = {}
        for column, role in roles:
            if column and column in known:
                raise ArgumentError(f"{role} and {known[column]} must differ, got {column!r} twice")
            known[column] = role

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of the labels: one, or several."""
        return self.label if isinstance(self.label, tuple) else (self.label,)

    def given(self) -> dict[str, Any]:
        """The rules that are not as they are by default."""
        return {
            one.name: getattr(self, one.name)
            for one in dataclasses.fields(self)
            if getattr(self, one.name) != one.default
        }


def from_rules(rules: Mapping[str, Any]) -> Reading:
    """The reading of these rules, by their names."""
    known = [one.name for one in dataclasses.fields(Reading)]
    for name in rules:
        if name not in known:
            raise ArgumentError(f"rules of reading must be among {', '.join(known)}, got {name!r}")
    return Reading(**rules)


def refuse_rules_of_tables(reading: Reading, path: object) -> None:
    """Refuse rules that have no use for what is no table."""
    for name in reading.given():
        if name in OF_TABLES:
            raise ArgumentError(f"{name} must go with a table, .csv or .parquet, got {path}")
