"""Records decoded once in a process: they may be large, and come with every message."""

from __future__ import annotations

from functools import lru_cache

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.records import Epoch


@lru_cache(maxsize=8)
def decoded_epoch(record: bytes) -> Epoch:
    return Epoch.decode(record)


@lru_cache(maxsize=8)
def decoded_commit(record: bytes) -> Commit:
    return Commit.decode(record)
