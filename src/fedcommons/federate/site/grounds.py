"""On what ground each example may be shared: a consent or a licence, in its owner's own words.

Grounds stay at the site: nothing is learnt from them, they are in no fingerprint, and nobody is
sent any. The site's store keeps those of what was given to others, as they were then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import shown
from fedcommons.checks import BoolArray, IntArray
from fedcommons.errors import DataError
from fedcommons.federate.protocol.refusals import GroundMissing

LONGEST = 200  # characters
NONE = ""  # the first of all names


@dataclass(frozen=True, slots=True, eq=False)
class Grounds:
    """The ground of each example.

    Attributes:
        names: the different ones; the first is empty, for examples without any.
        numbers: (examples,) which of them an example has.
    """

    names: tuple[str, ...]
    numbers: npt.NDArray[np.int32]

    @classmethod
    def none(cls, n: int) -> Grounds:
        return cls((NONE,), np.zeros(n, np.int32))

    @classmethod
    def checked(cls, values: Iterable[Any], n: int, source: str) -> Grounds:
        """The grounds of n examples; None or blank for an example without any."""
        if isinstance(values, np.ndarray) and (values.dtype.kind not in "UO" or values.ndim != 1):
            raise DataError(
                f"{source}: ground must be text, one for each example, got {values.dtype}, "
                f"shape {values.shape}"
            )
        found: dict[str, int] = {NONE: 0}
        numbers = [
            found.setdefault(_checked(value, row, source), len(found))
            for row, value in enumerate(values)
        ]
        if len(numbers) != n:
            raise DataError(f"{source}: ground must be one for each of {n} examples, got "
                            f"{len(numbers)}")  # fmt: skip
        return cls(tuple(found), np.array(numbers, np.int32))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: int) -> str:
        return self.names[self.numbers[row]]

    def take(self, rows: IntArray) -> Grounds:
        return Grounds(self.names, self.numbers[rows])

    @property
    def stated(self) -> BoolArray:
        """(examples,) which of them have one."""
        return np.asarray(self.numbers != 0)

    def pack(self) -> tuple[str, bytes]:
        """As a store keeps them; names that no example has are left out."""
        used, numbers = np.unique(np.append(self.numbers, 0), return_inverse=True)
        names = [self.names[number] for number in used]
        return json.dumps(names), numbers[:-1].astype("<i4").tobytes()

    @classmethod
    def unpack(cls, names: str, numbers: bytes) -> Grounds:
        return cls(tuple(json.loads(names)), np.frombuffer(numbers, "<i4").astype(np.int32))


def _checked(value: object, row: int, source: str) -> str:
    where = f"{source}: ground must be"
    if value is None:
        return NONE
    if not isinstance(value, str):
        raise DataError(f"{where} text, got {value!r} in example {row}")
    text = value.strip()
    if len(text) > LONGEST:
        raise DataError(
            f"{where} at most {LONGEST} characters, got {len(text)} in example {row}: give a short "
            "name or number of the consent or the licence"
        )
    if shown.plain(text) != text:
        raise DataError(
            f"{where} without characters that cannot be seen, got {text!r} in example {row}"
        )
    return text


def check_grounds(required: bool, grounds: Grounds, rows: IntArray) -> None:
    """Refuse to share rows without a ground, if the policy wants one; `grounds` are of `rows`."""
    if required and not grounds.stated.all():
        first = rows[np.flatnonzero(~grounds.stated)[0]]
        raise GroundMissing(
            f"{np.count_nonzero(~grounds.stated)} rows may be shared and have no ground, the first "
            f"of them row {first}; require-ground is true"
        )
