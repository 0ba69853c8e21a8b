"""The fields of a commit as they are read: its members, and lists with an entry for each.

Every one is checked, since it comes from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedcommons.federate.protocol.records import (
    MOST_EXAMPLES,
    NAME,
    hexadecimal_of,
    integer_of,
)
from fedcommons.federate.protocol.refusals import MalformedRecord


@dataclass(frozen=True, slots=True)
class Member:
    """A site as it is listed in a commit."""

    site: str
    identity: str
    n_examples: int
    n_shareable: int
    manifest: str

    @property
    def n_private(self) -> int:
        return self.n_examples - self.n_shareable


def member_of(entry: object) -> Member:
    if not (isinstance(entry, list) and len(entry) == 5):
        raise MalformedRecord("commit: a member must have five fields")
    site, identity, n_examples, n_shareable, manifest = entry
    if not isinstance(site, str) or not NAME.fullmatch(site):
        raise MalformedRecord("commit: a site must have a valid name")
    n_examples = integer_of(n_examples, "commit: n_examples", high=MOST_EXAMPLES)
    return Member(
        site,
        hexadecimal_of(identity, 32, "commit: an identity"),
        n_examples,
        integer_of(n_shareable, "commit: n_shareable", high=n_examples),
        hexadecimal_of(manifest, 32, "commit: a manifest"),
    )


def of_length(value: list[Any], n: int, name: str) -> list[Any]:
    if len(value) != n:
        raise MalformedRecord(f"commit: {name} must have one entry for each member")
    return value


def pair_of(entry: object, n: int) -> tuple[int, int]:
    if not (isinstance(entry, list) and len(entry) == 2):
        raise MalformedRecord("commit: pairs must be pairs")
    sender, recipient = (integer_of(place, "commit: a pair", high=n - 1) for place in entry)
    if sender == recipient:
        raise MalformedRecord("commit: a pair must be of two sites")
    return sender, recipient


def numbers_of(entry: object, below: int, name: str = "withdrawn") -> tuple[int, ...]:
    if not isinstance(entry, list):
        raise MalformedRecord(f"commit: {name} must be lists")
    numbers = tuple(integer_of(number, f"commit: {name}", high=below - 1) for number in entry)
    if list(numbers) != sorted(set(numbers)):
        raise MalformedRecord(f"commit: {name} must be sorted, each once")
    return numbers


def signatures_of(value: list[Any]) -> tuple[str, ...]:
    found = tuple(
        entry if entry == "" else hexadecimal_of(entry, 64, "commit: signed") for entry in value
    )
    if not found or not found[-1]:
        raise MalformedRecord("commit: signed must end with a signature")
    return found


def without_last_empty(signed: Sequence[str]) -> tuple[str, ...]:
    last = max((i for i, one in enumerate(signed) if one), default=-1)
    return tuple(signed[: last + 1])


def floats_of(value: list[Any], n: int, name: str) -> tuple[float, ...] | None:
    if not value:
        return None
    of_length(value, n, name)
    if not all(isinstance(x, float) and abs(x) < 1e100 for x in value):
        raise MalformedRecord(f"commit: {name} must be numbers")
    if name == "straggler_prob" and not all(0 <= x < 1 for x in value):
        raise MalformedRecord("commit: straggler_prob must be in [0, 1)")
    return tuple(value)
