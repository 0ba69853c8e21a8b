"""What sharing buys, as one picture: cost against variance."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from fedcommons.errors import ResultsError
from fedcommons.figures import style
from fedcommons.plan import Option


def check_path(path: Path) -> None:
    """Refuse a picture that could not be written, before anything is computed for it."""
    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise ResultsError(f"{path} cannot be written: it must end in .{', .'.join(sorted(kinds))}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ResultsError(f"{path} cannot be written: not a file in a folder that may be written")


def draw_plan(options: Sequence[Option], chosen: Option | None, path: Path) -> None:
    """Every option as a point, the ones that nothing beats on a line, the chosen one marked."""
    with style.applied():
        figure = Figure(figsize=(style.COLUMN_WIDTH * 1.4, style.COLUMN_WIDTH))
        axes = figure.add_subplot()
        for k, copies in enumerate(sorted({option.copies for option in options if option.copies})):
            mine = [option for option in options if option.copies == copies]
            axes.plot(
                [option.cost for option in mine],
                [option.variance for option in mine],
                "o",
                markersize=3.5,
                color=style.COLOURS[k % len(style.COLOURS)],
                label=f"d = {copies:g}",
            )
        front = sorted((option for option in options if option.best), key=lambda o: o.cost)
        axes.plot(
            [option.cost for option in front],
            [option.variance for option in front],
            color=style.REFERENCE,
            linewidth=0.8,
            zorder=0,
        )
        if chosen is not None:
            axes.plot([chosen.cost], [chosen.variance], "o", markersize=9, mfc="none", color="k")
            axes.annotate(
                f"d = {chosen.copies:g}", (chosen.cost, chosen.variance), (8, 8),
                textcoords="offset points",
            )  # fmt: skip
        axes.set_xlabel("cost of sharing")
        axes.set_ylabel("variance relative to no sharing")
        axes.set_ylim(bottom=0)
        axes.legend()
        try:
            figure.savefig(path, bbox_inches="tight")
        except (OSError, ValueError) as error:
            raise ResultsError(f"{path} cannot be written: {error}") from None
