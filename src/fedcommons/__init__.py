"""fedcommons: federated learning that keeps converging when clients drop out and their data are
lopsided, using only the examples that their owners agreed to share.

The modules follow the paper (arXiv 2404.03524v1): `partition`, `privacy` and `sharing` build a
`Placement`; `coding`, `stragglers` and `estimators` train on it; `theory` predicts what it buys.
"""

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
from fedcommons.errors import ArgumentError, DataError, FedcommonsError, PlacementFileError
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
