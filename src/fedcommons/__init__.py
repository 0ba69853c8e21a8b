"""fedcommons: federated learning that keeps converging when clients drop out and their data are
lopsided, using only the examples that their owners agreed to share.

The modules follow the paper (arXiv 2404.03524v1): `partition`, `privacy` and `sharing` build a
`Placement`; `coding`, `stragglers` and `estimators` train on it; `theory` predicts what it buys.
`plan` finds how much to share, `simulate` runs studies, `claims` judges the paper's, `figures`
draws them. `flower` and `federate` are for a real federation, on Flower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedcommons.errors import (
    ArgumentError,
    DataError,
    FedcommonsError,
    FederationError,
    PlacementFileError,
    ResultsError,
    StoreError,
    StudyError,
    UnsupportedSystemError,
)
from fedcommons.namespace import lazily

if TYPE_CHECKING:
    from fedcommons import (
        asking,
        claims,
        coding,
        corrections,
        datasets,
        deadlines,
        decoding,
        delays,
        estimators,
        federate,
        figures,
        flower,
        methods,
        metrics,
        optimizers,
        partition,
        plan,
        policies,
        privacy,
        reliability,
        schedule,
        sharing,
        simulate,
        stragglers,
        tasks,
        theory,
        work,
    )
    from fedcommons.placement import Placement

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "DataError",
    "FedcommonsError",
    "FederationError",
    "Placement",
    "PlacementFileError",
    "ResultsError",
    "StoreError",
    "StudyError",
    "UnsupportedSystemError",
    "asking",
    "claims",
    "coding",
    "corrections",
    "datasets",
    "deadlines",
    "decoding",
    "delays",
    "estimators",
    "federate",
    "figures",
    "flower",
    "methods",
    "metrics",
    "optimizers",
    "partition",
    "plan",
    "policies",
    "privacy",
    "reliability",
    "schedule",
    "sharing",
    "simulate",
    "stragglers",
    "tasks",
    "theory",
    "work",
]

_import = lazily(
    __name__, {name: "" for name in __all__ if name.islower()} | {"Placement": "placement"}
)


# Modules are imported when they are used: a deployed client is a new process for every message.
def __getattr__(name: str) -> Any:
    try:
        return _import(name)
    except ModuleNotFoundError as error:
        if name == "flower" and str(error.name).split(".")[0] == "flwr":
            message = "fedcommons.flower needs Flower: pip install 'fedcommons[flower]'"
            raise ModuleNotFoundError(message, name="flwr") from None
        raise


def __dir__() -> list[str]:
    return __all__
