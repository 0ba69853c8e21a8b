"""What a site takes back of what it brought into a federation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What a site took back: share numbers, and how many of its unshared examples."""

    numbers: tuple[int, ...]
    n_private: int
