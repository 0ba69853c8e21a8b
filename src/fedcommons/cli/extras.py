"""What is not installed with fedcommons itself: say how to get it."""

from __future__ import annotations

from fedcommons.federate.transport.flower_versions import check_installed


def need_flower() -> None:
    """Raise, with the command that helps, unless there is a Flower that fits."""
    check_installed()
