"""What is not installed with fedcommons itself: say how to get it."""

from __future__ import annotations

from importlib.util import find_spec

from fedcommons.errors import FederationError


def need_flower() -> None:
    if find_spec("flwr") is None:
        raise FederationError("federate needs Flower: pip install 'fedcommons[flower]'")
