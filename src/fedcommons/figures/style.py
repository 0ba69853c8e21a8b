"""How the figures look: sizes for a paper's column, colours that everybody can tell apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from fedcommons import shown
from fedcommons.checks import FloatArray
from fedcommons.figures.markup import Markup, packaged

# Okabe and Ito's palette, darkest first, without its yellow (too light for lines).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
ON_DARK = ("#4AA8E8", "#FF8548", "#2FC79A", "#E79CC8", "#F2B52E", "#9BD6FA", "#FFFFFF")
FULL_WIDTH, COLUMN_WIDTH = 7.16, 3.5  # inches: IEEE's two columns and one
LABEL_GAP = 0.085  # of the axes' height
LONGEST_LABEL = 30
DASHES = ("-", ":", "-.", "--")
REFERENCE, REFERENCE_ON_DARK = "#555555", "#A9B0B8"  # of what others are compared with

RC: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedcommons",  # the same table gives the same file
    "mathtext.fontset": "dejavusans",
}


@contextlib.contextmanager
def applied() -> Iterator[None]:
    rc: Any = RC
    with mpl.rc_context(rc):
        yield


def colour(label: str, labels: list[str]) -> str:
    """The colour of a line: by its place among the labels; a reference is not there, and grey."""
    if label not in labels:
        return REFERENCE
    return COLOURS[labels.index(label) % len(COLOURS)]


def dash(label: str, labels: list[str]) -> str:
    """The dash of a line: where colours come again, another; references are dashed."""
    if label not in labels:
        return "--"
    return DASHES[labels.index(label) // len(COLOURS) % len(DASHES)]


def words(text: str) -> str:
    """Text for a picture: what could be mathematics or a control character is neither."""
    return shown.plain(text).replace("$", r"\$")


def page_css() -> Markup:
    """page.css with the palette as its custom properties, for light and for dark screens."""

    def properties(colours: tuple[str, ...], reference: str) -> str:
        series = "".join(f"--series-{k}: {colour}; " for k, colour in enumerate(colours))
        return f":root {{ {series}--series-count: {len(colours)}; --reference: {reference}; }}"

    light, dark = properties(COLOURS, REFERENCE), properties(ON_DARK, REFERENCE_ON_DARK)
    css = packaged("page.css")
    return Markup(f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{css}")


def crowded(labels: list[str]) -> bool:
    """Whether labels need a legend: beside the lines there is room for a few short ones."""
    return len(labels) > len(COLOURS) + 1 or max(map(len, labels)) > LONGEST_LABEL


def band(
    axes: Axes,
    x: npt.ArrayLike,
    mean: FloatArray,
    half: FloatArray,
    colour: str,
    *,
    log: bool = False,
    **line: Any,
) -> None:
    """A line with its 95 % band; on a log axis the band is that of the logarithm."""
    if log:
        mean = np.where(mean > 0, mean, np.nan)  # 0 has no place on a log axis
        factor = np.exp(half / mean)
        low, high = mean / factor, mean * factor
    else:
        low, high = mean - half, mean + half
    axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(x, mean, color=colour, **line)


def label_ends(axes: Axes, ends: list[tuple[str, float, str]]) -> None:
    """Write each label beside the axes at its line's last value, apart from its neighbours."""
    transform = axes.transData + axes.transAxes.inverted()
    heights = [float(transform.transform((axes.get_xlim()[1], y))[1]) for _, y, _ in ends]
    order = np.argsort(heights, kind="stable")
    places = np.array(heights)[order]
    for _ in range(500):  # push neighbours apart until they fit
        gaps = np.diff(places)
        push = np.maximum(LABEL_GAP - gaps, 0) / 2
        if not (push > 1e-6).any():
            break
        places[:-1] -= push
        places[1:] += push
    places -= max(0.0, places[-1] - 1)
    places += max(0.0, -places[0])
    for k, y in zip(order, places, strict=True):
        label, _, line_colour = ends[k]
        axes.annotate(
            label,
            (1.02, y),
            xycoords="axes fraction",
            color=line_colour,
            fontsize=6.5,
            va="center",
            annotation_clip=False,
        )
