"""From a results table to pictures and a page; nothing here runs anything again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcommons.namespace import lazily

if TYPE_CHECKING:
    from fedcommons.figures.draw import draw_all
    from fedcommons.figures.report import write_report

__all__ = ["draw_all", "write_report"]

__getattr__ = lazily(
    __name__,
    {
        "draw_all": "draw",
        "write_report": "report",
    },
)


def __dir__() -> list[str]:
    return __all__
