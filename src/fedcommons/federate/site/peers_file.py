"""The file of pinned keys: a TOML file with the names of sites and their public keys.

[peers] has the key of each site, and [replaced] maps the keys that it replaced to its name. A
replaced key is good for what was begun under it, and for nothing else.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from fedcommons.federate.protocol.refusals import MalformedRecord, PeersNotPinned

KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PinnedKeys:
    """The keys of peers by name, and the names of peers by the keys that they replaced."""

    keys: dict[str, str]
    replaced: dict[str, str] = field(default_factory=dict)


def read_peers(path: Path) -> PinnedKeys:
    """Read a file of pinned keys."""
    try:
        return pinned_in(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise PeersNotPinned(f"peers {path} cannot be read: {type(error).__name__}") from None


def pinned_in(text: str, path: Path) -> PinnedKeys:
    try:
        content = tomllib.loads(text)
        peers, replaced = content["peers"], content.get("replaced", {})
    except (ValueError, KeyError) as error:
        raise PeersNotPinned(f"peers {path} cannot be read: {type(error).__name__}") from None
    if not isinstance(peers, dict) or not isinstance(replaced, dict):
        raise MalformedRecord(f"peers {path} must map names to keys")
    for site, key in [*peers.items(), *((site, key) for key, site in replaced.items())]:
        if not isinstance(key, str) or not KEY.fullmatch(key):
            raise MalformedRecord(f"peers {path}: the key of {site} must be 64 hexadecimal digits")
    return PinnedKeys(peers, replaced)
