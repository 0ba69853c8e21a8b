"""Seconds to the target for every line of a figure, as a table with the fastest first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow

from fedcommons.figures.markup import Markup, joined, markup
from fedcommons.metrics import Metric
from fedcommons.simulate.definition import Figure

BLOCK = """<details class="sites" open><summary>Seconds to $metric $target</summary>
<p>The median run, from the fastest tenth to the slowest; runs that never got there count as
infinitely slow. “Times as fast” is run by run against the best of the policies that need neither
memory, late answers nor sharing$simple.</p>
<div class="scroll" tabindex="0" role="group" aria-label="Seconds to the target">
<table><thead><tr><th scope="col">line</th><th scope="col">seconds</th>
<th scope="col">from – to</th><th scope="col">runs that got there</th>
<th scope="col">times as fast</th></tr></thead>
<tbody>$rows</tbody></table></div></details>"""
ROW = (
    '<tr><th scope="row">$label</th><td>$median</td><td>$band</td><td>$reached</td>'
    "<td>$ratio</td></tr>"
)
Row = Mapping[str, Any]


def time_table(figure: Figure, labels: list[str], times: pyarrow.Table, main: Metric) -> Markup:
    """Empty for kinds of figures that compare no models; `labels` are the lines' own."""
    if figure.kind != "curves":
        return Markup()
    rows = [row for row in times.to_pylist() if row["figure"] == figure.name]
    named = dict(zip((row["curve"] for row in rows), labels, strict=True))
    best = next((named[row["curve"]] for row in rows if row["label"] == row["simple"]), None)
    rows.sort(key=lambda row: (row["median"], -row["reached"], row["low"]))
    return markup(
        BLOCK,
        metric="an accuracy of" if main.name == "accuracy" else main.title,
        target=f"{rows[0]['target']:g}",
        simple=f": here {best}" if best else "; there is none here",
        rows=joined(
            markup(
                ROW,
                label=named[row["curve"]],
                median=seconds(row["median"]),
                band=_band(row),
                reached=f"{row['reached']} of {row['runs']}",
                ratio=times_as_fast(row["ratio_median"]),
            )
            for row in rows
        ),
    )


def _band(row: Row) -> str:
    return f"{seconds(row['low'])} – {seconds(row['high'])}" if row["reached"] else "–"


def seconds(value: float) -> str:
    """Three digits, or "never"."""
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" if math.isfinite(value) else "never"


def times_as_fast(value: float | None) -> str:
    """A ratio in words: "–" where neither got there, ">" where the simple policy never did."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "the simple one never got there"
    return "0" if value == 0 else f"{value:.2g}"
