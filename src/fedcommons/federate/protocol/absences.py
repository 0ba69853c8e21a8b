"""What a question says of absent owners, and an answer of its own anchors, where holders correct.

An anchor is the digest of a model, with the number of the owner's examples that were last computed
at it; "" stands for those that never were.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcommons.federate.protocol.refusals import AnswerRefused

ANCHORS, SIZES = "own-anchors", "own-anchor-examples"
MOST_ANCHORS = 4096
DIGEST = re.compile(r"([0-9a-f]{64})?")

Anchors = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Absences:
    """Who is asked in a round, and who is not.

    Attributes:
        asked: places in the roster.
        anchors: of each absent owner of which an answer is remembered, by place.
        needed: the anchors of all members' remembered answers: models that sites should keep.
    """

    asked: Sequence[int]
    anchors: Mapping[int, Anchors]
    needed: Sequence[str]

    def fields(self) -> dict[str, Any]:
        each = [(i, x, n) for i, one in self.anchors.items() for x, n in one.items()]
        return {
            "correct": True,
            "asked": list(self.asked),
            "absent": [i for i, _, _ in each],
            "anchors": [x for _, x, _ in each],
            "anchor-examples": [n for _, _, n in each],
            "needed-models": list(self.needed),
        }

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Absences | None:
        """None if the question asks for no corrections."""
        if not request.get("correct"):
            return None
        found: dict[int, dict[str, float]] = {}
        columns = (request[name] for name in ("absent", "anchors", "anchor-examples"))
        for place, anchor, n in zip(*columns, strict=True):
            found.setdefault(int(place), {})[str(anchor)] = _size(n)
        asked = [int(place) for place in request["asked"]]
        return cls(asked, found, [str(one) for one in request["needed-models"]])


def of_anchors(anchors: Anchors) -> dict[str, Any]:
    """The fields of an answer."""
    some = {x: float(n) for x, n in anchors.items() if n > 0}
    return {ANCHORS: list(some), SIZES: list(some.values())}


def anchors_of(fields: Mapping[str, Any]) -> dict[str, float]:
    """What an answer says, or refused."""
    names, sizes = list(fields[ANCHORS]), list(fields[SIZES])
    if not len(names) == len(sizes) == len(set(names)) <= MOST_ANCHORS:
        raise AnswerRefused("malformed")
    if not all(isinstance(name, str) and DIGEST.fullmatch(name) for name in names):
        raise AnswerRefused("malformed")
    return dict(zip(names, map(_size, sizes), strict=True))


def _size(n: object) -> float:
    if not isinstance(n, int | float) or not 0 < n < math.inf:
        raise AnswerRefused("malformed")
    return float(n)
