"""What sharing buys, as one picture: cost against variance."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fedcommons.errors import ResultsError
from fedcommons.figures import style
from fedcommons.plan import Option

OFFSETS = [  # in points, of a label from its option: the nearest first
    (far * x, far * y)
    for far in (6, 12, 20, 30, 42, 56, 72)
    for x, y in ((1, 0.5), (-1, -0.7), (0.3, 1), (-0.3, -1), (1, -0.5), (-1, -0.3))
]


def check_path(path: Path) -> None:
    """Refuse a picture that could not be written, before anything is computed for it."""
    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise ResultsError(f"{path} cannot be written: it must end in .{', .'.join(sorted(kinds))}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ResultsError(f"{path} cannot be written: not a file in a folder that may be written")


def draw_plan(options: Sequence[Option], chosen: Option | None, path: Path) -> None:
    """Every option as a point; the ones that nothing beats on a line, with their c and d.

    The chosen one has a ring.
    """
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
        axes.set_xlabel("cost of sharing")
        axes.set_ylabel("variance relative to no sharing")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper right")
        named = {(round(o.cost, 9), round(o.variance, 9)): o for o in front}
        _label(figure, axes, list(named.values()), options, chosen)
        try:
            figure.savefig(path, bbox_inches="tight")
        except (OSError, ValueError) as error:
            raise ResultsError(f"{path} cannot be written: {error}") from None


def _label(
    figure: Figure,
    axes: Axes,
    front: Sequence[Option],
    options: Sequence[Option],
    chosen: Option | None,
) -> None:
    """Write c and d beside each, where no label hides another, a point or the legend.

    The chosen one is labelled first; one for which there is no room stays without.
    """
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    points = [axes.transData.transform((o.cost, o.variance)) for o in front]
    dots = [axes.transData.transform((o.cost, o.variance)) for o in options]
    taken = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in dots]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        n = max(2, int(np.hypot(x1 - x0, y1 - y0) / 4))
        line = zip(np.linspace(x0, x1, n)[1:-1], np.linspace(y0, y1, n)[1:-1], strict=True)
        taken += [Bbox.from_bounds(x - 1, y - 1, 2, 2) for x, y in line]
    if (legend := axes.get_legend()) is not None:
        taken.append(legend.get_window_extent(renderer))
    frame = axes.get_window_extent(renderer)
    for option in sorted(front, key=lambda o: o != chosen):
        words = f"c = {option.proportion:.3g}, d = {option.copies:g}"
        text = axes.annotate(
            words, (option.cost, option.variance), (0, 0), textcoords="offset points",
            fontsize="x-small",
            fontweight="bold" if option == chosen else "normal",
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": style.REFERENCE},
        )  # fmt: skip
        for x, y in OFFSETS:
            text.set_position((x, y))
            text.set_horizontalalignment("left" if x >= 0 else "right")
            text.update_positions(renderer)
            box = Text.get_window_extent(text, renderer)  # without its line to the point
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0
            if inside and box.y1 <= frame.y1 and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
        else:
            text.remove()
