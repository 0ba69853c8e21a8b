"""Which versions of Flower are known to work, and what to say about one that does not."""

from __future__ import annotations

import re
from importlib import metadata

from fedcommons.errors import FederationError

# With these the tests of the federation pass. 1.39 and older hold cryptography below 47, which has
# no HPKE; what `flower_internals` uses is undocumented and may go with any release.
OLDEST, NEWEST = (1, 40), (1, 42)
BOUNDS = f">={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"

__all__ = ["BOUNDS", "NEWEST", "OLDEST", "check_installed", "does_not_fit"]


def check_installed() -> None:
    """Raise if Flower is missing or too old. A newer one is tried: it is likely to work."""
    found = installed()
    if found is None:
        raise FederationError("federate needs Flower: pip install 'fedcommons[flower]'")
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < OLDEST:
        raise does_not_fit("it is too old")


def does_not_fit(reason: str) -> FederationError:
    """What to say when the installed Flower lacks something that is needed."""
    return FederationError(
        f"Flower {installed()} does not work with fedcommons: {reason}. Versions {OLDEST[0]}."
        f"{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} are known to work; to get one: "
        f"pip install 'flwr{BOUNDS}'"
    )


def installed() -> str | None:
    try:
        return metadata.version("flwr")
    except metadata.PackageNotFoundError:
        return None
