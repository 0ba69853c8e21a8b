"""How far a training is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from flwr.app import ArrayRecord

from fedcommons.checks import FloatArray
from fedcommons.reliability import Reliability

SEEN = ("missed", "rounds", "run")  # what is kept of who answered


@dataclass(slots=True)
class State:
    """Where a training is: what a checkpoint holds.

    `commit` is the order of the last commit, `initial` a digest of the model before round 1.
    """

    round: int
    model: ArrayRecord
    memory: FloatArray | None
    reliability: Reliability
    commit: tuple[int, int]
    initial: str
    warmed: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


def reliability_of(n_sites: int, saved: dict[str, Any]) -> Reliability:
    """What a checkpoint says of the sites."""
    return replace(Reliability.start(n_sites), **{name: saved[name] for name in SEEN})


def digest_of(vector: FloatArray) -> str:
    """A digest of a model's values."""
    return hashlib.sha256(vector.tobytes()).hexdigest()
