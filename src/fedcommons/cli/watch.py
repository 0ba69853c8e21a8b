"""`fedcommons watch`: a study that is running, with its curves so far."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedcommons.checks import FloatArray
from fedcommons.cli import screen, terminal
from fedcommons.cli.live_view import follow
from fedcommons.errors import ArgumentError
from fedcommons.figures import captions
from fedcommons.figures.captions import OF_METRICS
from fedcommons.simulate.definition import Figure
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.so_far import SoFar

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 30  # characters of a curve


def watch(
    folder: Annotated[Path, typer.Argument(help="The results folder of a study that is running.")],
    figure: Annotated[
        str | None, typer.Option(help="The figure whose lines are shown; by default the first.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what there is, and end.")] = False,
) -> None:
    """Watch a running study: how far it is, and what every line has reached so far.

    It only reads, and ends with the study; in a pipe it looks once. ± is half of a 95 % interval of
    the finished runs.

    Example: fedcommons watch results/mine
    """
    seen = SoFar.of(Folder(folder))
    shown = _figure(seen, figure)
    follow(lambda: _picture(seen, shown), lambda: seen.look() >= seen.study.runs, once=once)


def _figure(seen: SoFar, name: str | None) -> Figure:
    """The figure of this name, or the first that compares models."""
    offered = {f.name: f for f in seen.study.figures if f.kind in OF_METRICS}
    if name is None:
        return next(iter(offered.values()), seen.study.figures[0])
    if name not in offered:
        raise ArgumentError(f"figure must be one of {', '.join(offered)}, got {name}")
    return offered[name]


def _picture(seen: SoFar, figure: Figure) -> Group:
    """How many runs are finished, and a row for each line of the figure."""
    done, runs = seen.look(), seen.study.runs
    head = screen.words(f"{seen.study.name}: {done} of {terminal.count(runs, 'run')}")
    if not done:
        return Group(head, Text("No run is finished yet."))
    main = seen.study.measured[0]
    mean, half = seen.means()
    place = {curve: k for k, curve in enumerate(seen.study.curves)}
    lines = sorted(
        zip(captions.labels(figure), figure.lines, strict=True),
        key=lambda pair: pair[1].curve.straggler_prob,
    )
    drawn = mean[[place[line.curve] for _, line in lines]]
    table = Table(title=screen.words(figure.title), title_justify="left")
    table.add_column("p", justify="right")
    table.add_column("line", overflow="fold")
    table.add_column("course", no_wrap=True)
    table.add_column(main.title.removeprefix("test "), justify="right", no_wrap=True)
    for (label, line), values in zip(lines, drawn, strict=True):
        spread = half[place[line.curve]]
        last = int(np.flatnonzero(np.isfinite(values))[-1]) if np.isfinite(values).any() else None
        reached = "diverged"
        if last is not None:
            reached = main.with_half(float(values[last]), float(spread[last]))
        p = f"{line.curve.straggler_prob:g}"
        table.add_row(p, screen.words(label), curve_of(values, drawn), reached)
    others = [f.name for f in seen.study.figures if f.kind in OF_METRICS and f is not figure]
    note = f"Other figures: --figure {', '.join(others)}" if others else ""
    return Group(head, table, *([screen.words(note)] if note else []))


def curve_of(values: FloatArray, everything: FloatArray) -> str:
    """A curve as a row of bars, on the scale of all that are drawn."""
    points = values[np.linspace(0, len(values) - 1, min(WIDTH, len(values))).round().astype(int)]
    there = everything[np.isfinite(everything)]
    if not len(there):
        return ""
    low, span = there.min(), max(float(np.ptp(there)), 1e-12)
    levels = np.nan_to_num((points - low) / span) * (len(BARS) - 1)
    return "".join(
        BARS[round(float(level))] if np.isfinite(point) else " "
        for point, level in zip(points, levels, strict=True)
    )
