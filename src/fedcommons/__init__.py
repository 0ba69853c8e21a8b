"""fedcommons: federated learning that keeps converging when clients drop out and their data are
lopsided, using only the examples that their owners agreed to share.

The modules follow the paper (arXiv 2404.03524v1): `partition`, `privacy` and `sharing` build a
`Placement`; `coding`, `stragglers` and `estimators` train on it; `theory` predicts what it buys.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedcommons.errors import ArgumentError, DataError, FedcommonsError, PlacementFileError

if TYPE_CHECKING:
    from fedcommons import (
        coding,
        datasets,
        estimators,
        partition,
        privacy,
        reliability,
        sharing,
        stragglers,
        tasks,
        theory,
    )
    from fedcommons.placement import Placement

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "DataError",
    "FedcommonsError",
    "Placement",
    "PlacementFileError",
    "coding",
    "datasets",
    "estimators",
    "partition",
    "privacy",
    "reliability",
    "sharing",
    "stragglers",
    "tasks",
    "theory",
]


# Modules are imported when they are used: a deployed client is a new process for every message.
def __getattr__(name: str) -> Any:
    if name == "Placement":
        return importlib.import_module("fedcommons.placement").Placement
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"fedcommons.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
