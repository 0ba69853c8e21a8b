"""Studies without a network: many draws at once, from named random streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcommons.namespace import lazily

if TYPE_CHECKING:
    from fedcommons.simulate.curves import Curve
    from fedcommons.simulate.folder import Folder
    from fedcommons.simulate.runner import run_study
    from fedcommons.simulate.studies import Study, load, paper, parse

__all__ = ["Curve", "Folder", "Study", "load", "paper", "parse", "run_study"]

__getattr__ = lazily(
    __name__,
    {
        "Curve": "curves",
        "Folder": "folder",
        "Study": "studies",
        "load": "studies",
        "paper": "studies",
        "parse": "studies",
        "run_study": "runner",
    },
)


def __dir__() -> list[str]:
    return __all__
