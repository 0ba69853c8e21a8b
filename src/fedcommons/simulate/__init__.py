"""Studies without a network: many runs of many settings at once.

import fedcommons as fc

study = fc.simulate.study("mine", grid={"partition": "iid", "p": [0.3, 0.7]}, rounds=20, runs=5)
found = fc.simulate.run(study)
found.curves.to_pandas()  # accuracy and second moment, round by round, with standard errors
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcommons.simulate.curves import Curve
    from fedcommons.simulate.running import Results, run, study
    from fedcommons.simulate.studies import Study

__all__ = ["Curve", "Results", "Study", "run", "study"]

_HOME = {"Curve": "curves", "Study": "studies"}  # the others are of `running`


# Loaded when they are used: the parts of this room import each other through it.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME.get(name, 'running')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
