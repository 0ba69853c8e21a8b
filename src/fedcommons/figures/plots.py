"""One function for each kind of figure: series in, picture out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import MaxNLocator

from fedcommons.checks import FloatArray
from fedcommons.figures import style
from fedcommons.figures.series import Series, panels
from fedcommons.metrics import Metric
from fedcommons.simulate.definition import Figure

matplotlib.use("Agg")

WORTHLESS = -1.0  # an R² below which it matters little how far
DECADES = 30.0  # how many times the least value the largest must be for a logarithmic axis


def curves(figure: Figure, series: list[Series], metric: Metric) -> Picture:
    """A metric above, second moment of the estimate below, a column for each p."""
    everything, main = series, metric.name
    series = [s for s in series if np.isfinite(s.mean(main)).any()]
    if not series:
        return _nothing_left(figure, everything)
    by_p = panels(series)
    names = list(dict.fromkeys(s.label for s in series))
    labels = list(dict.fromkeys(s.label for s in series if not s.reference))
    crowded = style.crowded(names)
    height = 4.0 + (0.16 * -(-len(names) // 2) if crowded else 0)
    picture = Picture(figsize=(style.FULL_WIDTH, height), layout="constrained")
    axes = picture.subplots(2, len(by_p), sharex=True, sharey="row", squeeze=False)
    last, times = len(series[0].mean(main)) - 1, series[0].times
    log_above = _is_far_apart(series, metric) and _on_log_axis(axes[0, 0], series, main)
    log_below = _on_log_axis(axes[1, 0], series, "second_moment")
    for (top, bottom), (p, group) in zip(axes.T, by_p.items(), strict=True):
        for s in sorted(group, key=lambda s: s.reference):  # references on top
            measured = np.flatnonzero(np.isfinite(s.mean(main)))
            rounds = np.isfinite(s.mean("second_moment"))
            for panel, name, log, x in (
                (top, main, log_above, measured),
                (bottom, "second_moment", log_below, np.flatnonzero(rounds)),
            ):
                style.band(
                    panel,
                    times[x],
                    s.mean(name)[x],
                    s.half_width(name)[x],
                    style.colour(s.label, labels),
                    log=log,
                    linestyle=style.dash(s.label, labels),
                )
        top.set_title("" if series[0].clocked else f"p = {p:g}")
        top.set_xlim(0, times[-1])
        bottom.set_xlabel("seconds" if series[0].clocked else "communication round")
        bottom.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if not log_above:
        _set_limits(axes[0, 0], series, metric)
    axes[0, 0].set_ylabel(metric.words.replace(" (", "\n("))
    axes[1, 0].set_ylabel(r"second moment $|\hat g|^2$")
    _footer(picture, figure, everything)
    if crowded:
        lines = [
            axes[0, 0].plot([], [], color=style.colour(label, labels), label=label,
                            linestyle=style.dash(label, labels))[0]
            for label in names
        ]  # fmt: skip
        picture.legend(handles=lines, loc="outside upper center", ncols=2)
        return picture
    picture.draw_without_rendering()  # the labels' places depend on the final axes
    for panel, name, at in (
        (axes[0, -1], main, last),
        (axes[1, -1], "second_moment", last - 1),
    ):
        group = list(by_p.values())[-1]
        style.label_ends(
            panel, [(s.label, s.mean(name)[at], style.colour(s.label, labels)) for s in group]
        )
    return picture


def _set_limits(axes: Axes, series: list[Series], metric: Metric) -> None:
    """From the first round on; what is not bounded may begin so far off that it is left outside."""
    begin = 0 if metric.is_proportion else min(3, len(series[0].mean(metric.name)) - 1)
    values = np.concatenate([s.mean(metric.name)[begin:] for s in series])
    values = values[np.isfinite(values)]
    lowest, highest = values.min(), values.max()
    if metric.is_proportion:
        axes.set_ylim(
            max(0.0, np.floor(lowest * 20) / 20 - 0.02), min(1.02, axes.get_ylim()[1])
        )  # bands of a few runs end above 1
    elif highest > lowest:
        margin = 0.08 * (highest - lowest)
        bottom = lowest - margin
        if metric.higher_is_better and bottom < WORTHLESS < highest:
            bottom = WORTHLESS
        axes.set_ylim(bottom, highest + margin)


def _is_far_apart(series: list[Series], metric: Metric) -> bool:
    """Whether an error spans decades."""
    values = np.concatenate([s.mean(metric.name) for s in series])
    values = values[np.isfinite(values)]
    spans = values.min() > 0 and values.max() > DECADES * values.min()
    return not metric.higher_is_better and bool(spans)


def scalar_products(figure: Figure, series: list[Series], _metric: Metric) -> Picture:
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


def heterogeneity(figure: Figure, series: list[Series], _metric: Metric) -> Picture:
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
    _footer(picture, figure, series, "Bars are 95 % intervals.")
    return picture


def second_moment(figure: Figure, series: list[Series], _metric: Metric) -> Picture:
    """The second moment beside its exact value, and its reduction beside expectation and bounds."""
    by_p = panels(series)
    if len(by_p) == 1:  # then a panel for each line
        columns = [(s.label, [s]) for s in series]
    else:
        columns = [(f"p = {p:g}", group) for p, group in by_p.items()]
    labels = list(dict.fromkeys(s.label for s in series))
    picture = Picture(figsize=(style.FULL_WIDTH, 4.4), layout="constrained")
    axes = picture.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    parts = (
        (("second_moment", MEASURED), ("second_moment_exact", EXPECTED)),
        (
            ("reduction", MEASURED),
            ("reduction_expected", EXPECTED),
            ("remark_bound", REMARK),
            ("theorem2_bound", THEOREM),
        ),
    )
    logs = [
        _on_log_axis(row[0], series, *(name for name, _ in names))
        for row, names in zip(axes, parts, strict=True)
    ]
    for (top, bottom), (title, group) in zip(axes.T, columns, strict=True):
        drawn = [
            (s, panel, name, look, log)
            for s in group
            for panel, names, log in zip((top, bottom), parts, logs, strict=True)
            for name, look in names
        ]
        for s, panel, name, look, log in drawn:
            x = np.flatnonzero(np.isfinite(s.mean(name)))
            style.band(
                panel, x, s.mean(name)[x], s.half_width(name)[x],
                look.colour or style.colour(s.label, labels),
                log=log, linestyle=look.dashes, linewidth=1.0,
            )  # fmt: skip
        top.set_title(title)
        bottom.set_xlabel("communication round")
        bottom.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes[0, 0].set_ylabel(r"second moment $|\hat g|^2$")
    axes[1, 0].set_ylabel("reduction of it")
    keys = [
        axes[0, 0].plot([], [], color=look.colour or "#777777", linestyle=look.dashes,
                        label=look.words)[0]
        for look in (MEASURED, EXPECTED, REMARK, THEOREM)
    ]  # fmt: skip
    if len(by_p) > 1:
        keys += [
            axes[0, 0].plot([], [], color=style.colour(name, labels), label=name)[0]
            for name in labels
        ]
    picture.legend(handles=keys, loc="outside upper center", ncols=4)
    _footer(picture, figure, series)
    return picture


def _on_log_axis(axes: Axes, series: list[Series], *names: str) -> bool:
    """Make the axis logarithmic, also for those that share it, if anything can be drawn on it."""
    positive = any((s.mean(name) > 0).any() for s in series for name in names)
    if positive:
        axes.set_yscale("log")
    return positive


class _Look(NamedTuple):
    """A kind of line in the figure of second moments; without a colour, that of its label."""

    words: str
    dashes: str | tuple[int, tuple[int, int]]
    colour: str | None = None


MEASURED = _Look("by these runs", "-")
EXPECTED = _Look("exact, expected", (0, (1, 2)), "black")
REMARK = _Look("Remark's bound", "-.")
THEOREM = _Look("Theorem 2's bound", "--")


def grid(figure: Figure, series: list[Series], metric: Metric) -> Picture:
    """A metric at rounds 10 and 20 over c and d, and against the offline cost dc.

    A row for each label and p.
    """
    rows: dict[tuple[str, float], list[Series]] = {}
    for s in series:
        rows.setdefault((s.label, s.curve.straggler_prob), []).append(s)
    picture = Picture(figsize=(style.FULL_WIDTH, 0.3 + 2.4 * len(rows)), layout="constrained")
    axes = picture.subplots(len(rows), 3, squeeze=False, width_ratios=(1, 1, 1.1))
    for panels_of, ((label, p), group) in zip(axes, rows.items(), strict=True):
        for panel, wanted in zip(panels_of[:2], (10, 20), strict=True):
            _map(panel, group, metric, wanted)
        what = "shareable proportion c"
        panels_of[0].set_ylabel(f"{label}, p = {p:g}\n{what}" if len(rows) > 1 else what)
        _by_cost(panels_of[2], group, metric)
    _footer(picture, figure, series, "Bars are 95 % intervals.")
    return picture


def _measured_by(series: list[Series], metric: Metric, wanted: int) -> int:
    """The last round up to `wanted` that was measured; else the first that was."""
    values = np.array([s.mean(metric.name) for s in series])
    rounds = np.flatnonzero(np.isfinite(values).any(axis=0))
    if not len(rounds):
        return min(wanted, values.shape[1] - 1)
    return int(max(rounds[rounds <= wanted], default=rounds[0]))


def _map(panel: Axes, series: list[Series], metric: Metric, wanted: int) -> None:
    cs = sorted({s.curve.proportion for s in series})
    ds = sorted({s.curve.copies for s in series})
    t = _measured_by(series, metric, wanted)
    values = np.full((len(cs), len(ds)), np.nan)
    for s in series:
        values[cs.index(s.curve.proportion), ds.index(s.curve.copies)] = s.mean(metric.name)[t]
    _heat_map(panel, values)
    panel.set_xticks(range(len(ds)), [str(d) for d in ds])
    panel.set_yticks(range(len(cs)), [f"{c:g}" for c in cs])
    panel.set_xlabel("copies d")
    panel.set_title(f"{_short(metric)} after round {t}")


def _short(metric: Metric) -> str:
    return metric.title.removeprefix("test ")


def _by_cost(panel: Axes, series: list[Series], metric: Metric) -> None:
    t = _measured_by(series, metric, 10)
    labels = [f"d = {d}" for d in sorted({s.curve.copies for s in series})]
    for label in labels:
        line = [s for s in series if f"d = {s.curve.copies}" == label]
        line.sort(key=lambda s: s.curve.proportion)
        panel.errorbar(
            [_cost(s) for s in line],
            [s.mean(metric.name)[t] for s in line],
            yerr=[s.half_width(metric.name)[t] for s in line],
            color=style.colour(label, labels), linestyle=style.dash(label, labels),
            marker="o", markersize=2.5, linewidth=0.9, label=label,
        )  # fmt: skip
    if all(_cost(s) > 0 for s in series):
        panel.set_xscale("log")
    panel.set_xlabel("offline cost dc (copies per example)")
    panel.set_title(f"{_short(metric)} after round {t}")
    if metric.is_proportion:
        low, high = panel.get_ylim()
        panel.set_ylim(max(-0.02, low), min(1.02, high))
    panel.legend(ncols=-(-len(labels) // 7))


def _cost(series: Series) -> float:
    return series.curve.proportion * series.curve.copies


def _nothing_left(figure: Figure, series: list[Series]) -> Picture:
    picture = Picture(figsize=(style.FULL_WIDTH, 1.2), layout="constrained")
    picture.text(0.5, 0.6, "every run diverged", ha="center")
    _footer(picture, figure, series)
    return picture


def _heat_map(panel: Axes, values: np.ndarray) -> None:
    panel.imshow(values, cmap="viridis", aspect="auto", origin="lower")
    panel.grid(visible=False)
    if not np.isfinite(values).any():
        return
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        digits = f"{value:.3f}".lstrip("0") if abs(value) < 10 else f"{value:.4g}"
        words = digits if np.isfinite(value) else "–"
        panel.text(
            column, row, words, ha="center", va="center", fontsize=6.5,
            color="white" if value < middle else "black",
        )  # fmt: skip


def _footer(
    picture: Picture,
    figure: Figure,
    series: list[Series],
    intervals: str = "Bands are 95 % intervals.",
) -> None:
    runs = series[0].runs
    text = f"{style.words(figure.title)}. "  # a title is not mathematics
    text += "A single run." if runs == 1 else f"Means of {runs} runs. {intervals}"
    text += _pairs(series)
    lost = [
        f"{s.diverged} of {s.label}{'' if s.clocked else f' (p = {s.curve.straggler_prob:g})'}"
        for s in series
        if s.diverged
    ]
    if lost:
        text += f" Diverged and left out: {', '.join(lost)}."
    width = int(picture.get_figwidth() * 17)
    text = text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    picture.supxlabel(textwrap.fill(text, width), fontsize=7, color="#333333")


def _pairs(series: list[Series]) -> str:
    """What a pair such as (0.5, 3) in a label means, if there is one."""
    for s in series:
        c, d = s.curve.proportion, s.curve.copies
        if f"({c:g}, {d})" in s.label:
            others = "client" if d == 1 else "clients"
            pair = f"({c:g},\N{NO-BREAK SPACE}{d})"
            return f" {pair}: c = {c:g} of the examples are copied to d = {d} other {others}."
    return ""


PLOTS: dict[str, Callable[[Figure, list[Series], Metric], Picture]] = {
    "curves": curves,
    "scalar-products": scalar_products,
    "heterogeneity": heterogeneity,
    "second-moment": second_moment,
    "grid": grid,
}
