"""Studies without a network: many runs of many settings at once.

import fedcommons as fc

study = fc.simulate.study("mine", grid={"partition": "iid", "p": [0.3, 0.7]}, rounds=20, runs=5)
found = fc.simulate.run(study)
found.curves  # accuracy and second moment, round by round, with standard errors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcommons.namespace import lazily

if TYPE_CHECKING:
    from fedcommons.simulate.curves import Curve
    from fedcommons.simulate.definition import Study
    from fedcommons.simulate.folder import Folder
    from fedcommons.simulate.running import Results, run, study
    from fedcommons.simulate.studies import load, paper

__all__ = ["Curve", "Folder", "Results", "Study", "load", "paper", "run", "study"]

__getattr__ = lazily(
    __name__,
    {
        "Curve": "curves",
        "Folder": "folder",
        "Results": "running",
        "Study": "definition",
        "load": "studies",
        "paper": "studies",
        "run": "running",
        "study": "running",
    },
)


def __dir__() -> list[str]:
    return __all__
