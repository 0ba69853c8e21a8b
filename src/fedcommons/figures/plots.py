"""One function for each kind of figure: series in, picture out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import MaxNLocator

from fedcommons.checks import FloatArray
from fedcommons.figures import style
from fedcommons.figures.series import Series, panels
from fedcommons.simulate.studies import Figure

matplotlib.use("Agg")


def curves(figure: Figure, series: list[Series]) -> Picture:
    """Accuracy above, second moment of the estimate below, a column for each p."""
    everything = series
    series = [s for s in series if np.isfinite(s.mean("accuracy")).any()]
    if not series:
        return _nothing_left(figure, everything)
    by_p = panels(series)
    labels = list(dict.fromkeys(s.label for s in series))
    crowded = style.crowded(labels)
    height = 4.0 + (0.16 * -(-len(labels) // 2) if crowded else 0)
    picture = Picture(figsize=(style.FULL_WIDTH, height), layout="constrained")
    axes = picture.subplots(2, len(by_p), sharex=True, sharey="row", squeeze=False)
    last = len(series[0].mean("accuracy")) - 1
    for (top, bottom), (p, group) in zip(axes.T, by_p.items(), strict=True):
        for s in sorted(group, key=lambda s: s.label in style.REFERENCES):  # references on top
            rounds = np.isfinite(s.mean("second_moment"))
            for panel, name, log, x in (
                (top, "accuracy", False, np.arange(last + 1)),
                (bottom, "second_moment", True, np.flatnonzero(rounds)),
            ):
                style.band(
                    panel,
                    x,
                    s.mean(name)[x],
                    s.half_width(name)[x],
                    style.colour(s.label, labels),
                    log=log,
                    linestyle=style.dash(s.label, labels),
                )
        top.set_title(f"p = {p:g}")
        top.set_xlim(0, last)
        bottom.set_xlabel("communication round")
        bottom.set_yscale("log")
        bottom.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    lowest = min(np.nanmin(s.mean("accuracy")[min(3, last) :]) for s in series)
    axes[0, 0].set_ylim(bottom=max(0.0, np.floor(lowest * 20) / 20 - 0.02))
    axes[0, 0].set_ylabel("test accuracy")
    axes[1, 0].set_ylabel(r"second moment $|\hat g|^2$")
    _footer(picture, figure, everything)
    if crowded:
        lines = [
            axes[0, 0].plot([], [], color=style.colour(label, labels), label=label,
                            linestyle=style.dash(label, labels))[0]
            for label in labels
        ]  # fmt: skip
        picture.legend(handles=lines, loc="outside upper center", ncols=2)
        return picture
    picture.draw_without_rendering()  # the labels' places depend on the final axes
    for panel, name, at in (
        (axes[0, -1], "accuracy", last),
        (axes[1, -1], "second_moment", last - 1),
    ):
        group = list(by_p.values())[-1]
        style.label_ends(
            panel, [(s.label, s.mean(name)[at], style.colour(s.label, labels)) for s in group]
        )
    return picture


def scalar_products(figure: Figure, series: list[Series]) -> Picture:
    """Type I, Type II and |g|^2 per round, a panel for each line."""
    picture = Picture(figsize=(style.FULL_WIDTH, 2.6), layout="constrained")
    axes = picture.subplots(1, len(series), sharey=True, squeeze=False)[0]
    parts = (
        ("type1", "Type I (same class)"),
        ("type2", "Type II (different classes)"),
        ("gradient_norm2", r"$|g|^2$, their sum"),
    )
    for panel, s in zip(axes, series, strict=True):
        for (name, label), colour in zip(parts, style.COLOURS, strict=False):
            rounds = np.isfinite(s.mean(name))
            x = np.flatnonzero(rounds)
            style.band(
                panel, x, s.mean(name)[rounds], s.half_width(name)[rounds], colour, label=label
            )
        panel.axhline(0, color="black", linewidth=0.6)
        panel.set_title(s.label)
        panel.set_xlabel("iteration")
        panel.ticklabel_format(axis="y", scilimits=(0, 0))
    axes[0].set_ylabel("sum of scalar products")
    picture.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    _footer(picture, figure, series)
    return picture


def heterogeneity(figure: Figure, series: list[Series]) -> Picture:
    """Before sharing, after it, and as the formula for these counts expects it."""
    picture = Picture(figsize=(style.COLUMN_WIDTH, 2.7), layout="constrained")
    axes = picture.subplots()
    rows = np.arange(len(series))

    def values(name: str) -> FloatArray:
        return np.array([s.mean(f"heterogeneity_{name}")[0] for s in series])

    before, after = values("before"), values("after")
    axes.hlines(rows, after, before, color="#cccccc", linewidth=1, zorder=1)
    axes.plot(before, rows, "o", color=style.REFERENCE, markersize=4, label="before")
    widths = [s.half_width("heterogeneity_after")[0] for s in series]
    axes.errorbar(
        after, rows, xerr=widths, fmt="o", markersize=4, color=style.COLOURS[0],
        label="after sharing",
    )  # fmt: skip
    axes.plot(
        values("after_expected"), rows, "|", color=style.COLOURS[1], markersize=11,
        markeredgewidth=1.6, label="expected",
    )  # fmt: skip
    axes.set_yticks(
        rows, [f"{s.label}, ({s.curve.proportion:g}, {s.curve.copies})" for s in series]
    )
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(r"label heterogeneity $\|Y-\Theta^\star\|^2$")
    picture.legend(loc="outside upper center", ncols=3)
    _footer(picture, figure, series)
    return picture


def second_moment(figure: Figure, series: list[Series]) -> Picture:
    """The second moment beside its exact value, and its reduction beside expectation and bounds."""
    by_p = panels(series)
    if len(by_p) == 1:  # then a panel for each line
        columns = [(s.label, [s]) for s in series]
    else:
        columns = [(f"p = {p:g}", group) for p, group in by_p.items()]
    labels = list(dict.fromkeys(s.label for s in series))
    picture = Picture(figsize=(style.FULL_WIDTH, 4.4), layout="constrained")
    axes = picture.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    reductions = (
        ("reduction", "reduction by this sharing", "-"),
        ("reduction_expected", "expected over the sharing", (0, (1, 2))),
        ("remark_bound", "Remark's bound", "-."),
        ("theorem2_bound", "Theorem 2's bound", "--"),
    )
    for (top, bottom), (title, group) in zip(axes.T, columns, strict=True):
        for s in group:
            colour = style.colour(s.label, labels)
            x = np.flatnonzero(np.isfinite(s.mean("second_moment")))
            style.band(
                top, x, s.mean("second_moment")[x], s.half_width("second_moment")[x], colour,
                log=True, linewidth=0.8,
            )  # fmt: skip
            exact = s.mean("second_moment_exact")[x]
            top.plot(x, exact, color="black", linestyle=(0, (1, 2)), linewidth=1)
            for name, _, dashes in reductions:
                y = s.mean(name)
                rounds = np.flatnonzero(np.isfinite(y))
                dotted = name == "reduction_expected"
                bottom.plot(
                    rounds, y[rounds], linestyle=dashes, linewidth=1.0,
                    color="black" if dotted else colour,
                )  # fmt: skip
        top.set_title(title)
        bottom.set_xlabel("communication round")
        top.set_yscale("log")
        bottom.set_yscale("log")
        bottom.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes[0, 0].set_ylabel(r"second moment $|\hat g|^2$")
    axes[1, 0].set_ylabel("reduction of it")
    keys = [
        axes[0, 0].plot([], [], color="black" if "exp" in words else "#777777", linestyle=dashes,
                        label=words)[0]
        for _, words, dashes in reductions
    ]  # fmt: skip
    keys[1].set_label("exact / expected (dotted)")
    if len(by_p) > 1:
        keys += [
            axes[0, 0].plot([], [], color=style.colour(n, labels), label=f"(c, d) = {n}")[0]
            for n in labels
        ]
    picture.legend(handles=keys, loc="outside upper center", ncols=4)
    _footer(picture, figure, series)
    return picture


def grid(figure: Figure, series: list[Series]) -> Picture:
    """Accuracy at rounds 10 and 20 over c and d, and against the offline cost dc."""
    cs = sorted({s.curve.proportion for s in series})
    ds = sorted({s.curve.copies for s in series})
    last = len(series[0].mean("accuracy")) - 1
    picture = Picture(figsize=(style.FULL_WIDTH, 2.7), layout="constrained")
    axes = picture.subplots(1, 3, width_ratios=(1, 1, 1.1))
    for panel, wanted in zip(axes[:2], (10, 20), strict=True):
        t = min(wanted, last)
        values = np.full((len(cs), len(ds)), np.nan)
        for s in series:
            row, column = cs.index(s.curve.proportion), ds.index(s.curve.copies)
            values[row, column] = s.mean("accuracy")[t]
        _heat_map(panel, values)
        panel.set_xticks(range(len(ds)), [str(d) for d in ds])
        panel.set_yticks(range(len(cs)), [f"{c:g}" for c in cs])
        panel.set_xlabel("copies d")
        panel.set_title(f"accuracy after round {t}")
    axes[0].set_ylabel("shareable proportion c")
    for d, colour in zip(ds, style.COLOURS, strict=False):
        line = sorted((s for s in series if s.curve.copies == d), key=lambda s: s.curve.proportion)
        t = min(10, last)
        axes[2].errorbar(
            [s.curve.proportion * d for s in line],
            [s.mean("accuracy")[t] for s in line],
            yerr=[s.half_width("accuracy")[t] for s in line],
            color=colour, marker="o", markersize=2.5, linewidth=0.9, label=f"d = {d}",
        )  # fmt: skip
    axes[2].set_xscale("log")
    axes[2].set_xlabel("offline cost dc (copies per example)")
    axes[2].set_title(f"accuracy after round {min(10, last)}")
    axes[2].legend()
    _footer(picture, figure, series)
    return picture


def _nothing_left(figure: Figure, series: list[Series]) -> Picture:
    picture = Picture(figsize=(style.FULL_WIDTH, 1.2), layout="constrained")
    picture.text(0.5, 0.6, "every run diverged", ha="center")
    _footer(picture, figure, series)
    return picture


def _heat_map(panel: Axes, values: np.ndarray) -> None:
    panel.imshow(values, cmap="viridis", aspect="auto", origin="lower")
    panel.grid(visible=False)
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        panel.text(
            column, row, f"{value:.3f}".lstrip("0"), ha="center", va="center", fontsize=6.5,
            color="white" if value < middle else "black",
        )  # fmt: skip


def _footer(picture: Picture, figure: Figure, series: list[Series]) -> None:
    runs = series[0].runs
    text = f"{figure.title}. Mean of {runs} run{'s' * (runs != 1)}, with 95 % intervals."
    lost = [
        f"{s.diverged} of {s.label} (p = {s.curve.straggler_prob:g})" for s in series if s.diverged
    ]
    if lost:
        text += f" Diverged and left out: {', '.join(lost)}."
    width = int(picture.get_figwidth() * 17)
    text = textwrap.fill(text, width).replace("$", r"\$")  # a title is not mathematics
    picture.supxlabel(text, fontsize=7, color="#333333")


PLOTS: dict[str, Callable[[Figure, list[Series]], Picture]] = {
    "curves": curves,
    "scalar-products": scalar_products,
    "heterogeneity": heterogeneity,
    "second-moment": second_moment,
    "grid": grid,
}
