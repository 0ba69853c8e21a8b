"""What a site withdrew: how it says so to the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What a site took back: share numbers, and how many of its unshared examples."""

    numbers: tuple[int, ...]
    n_private: int
