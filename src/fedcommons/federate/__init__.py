"""A real federation: the exchange of sealed examples, the sites' stores, and coded training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcommons.namespace import lazily

if TYPE_CHECKING:
    from fedcommons.federate.apps.local_run import run_app
    from fedcommons.federate.apps.new_app import write_app
    from fedcommons.federate.site.store import Store

__all__ = ["Store", "run_app", "write_app"]

__getattr__ = lazily(
    __name__,
    {
        "Store": "site.store",
        "run_app": "apps.local_run",
        "write_app": "apps.new_app",
    },
)


def __dir__() -> list[str]:
    return __all__
