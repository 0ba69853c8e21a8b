"""The files of commits in a state-dir, one for each: 00001-00000.json, epoch and serial."""

from __future__ import annotations

from pathlib import Path

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import Refusal


def commit_name(order: tuple[int, int]) -> str:
    """The name of a commit's file."""
    number, serial = order
    return f"{number:05d}-{serial:05d}.json"


def order_of(path: Path) -> tuple[int, int]:
    number, serial = path.stem.split("-")
    return int(number), int(serial)


def read_commit(path: Path) -> Commit:
    try:
        return Commit.decode(path.read_bytes())
    except (OSError, Refusal) as error:
        raise FederationError(f"{path} is damaged: {error}") from None
