"""What is tracked: numbers by name, and of what."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class About:
    """What the events are of.

    Attributes:
        name: of the study or the federation.
        key: the same whenever the same study or training goes on, and for nothing else.
        settings: how it was run, as text by name.
    """

    name: str
    key: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def key_of(self, of: str) -> str:
        """The key of one of its parts."""
        if not of:
            return self.key
        return f"{self.key}-{hashlib.sha256(of.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Event:
    """Numbers of one moment. There is nothing else in it that could be private.

    Attributes:
        kind: what `step` counts: "round", or "run" of a study.
        step: its number.
        values: finite numbers by name; others are left out.
        of: whose they are, a site or a line of a study; empty if they are of all.
        at: when, in seconds since 1970.
    """

    kind: str
    step: int
    values: Mapping[str, float]
    of: str = ""
    at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        kept = {
            name: float(value)
            for name, value in self.values.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        object.__setattr__(self, "values", kept)
