"""What every line of a figure reached at each site: a table for each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
import pyarrow.compute

from fedcommons.figures import captions
from fedcommons.figures.markup import Markup, joined, markup
from fedcommons.intervals import half_width
from fedcommons.metrics import Metric
from fedcommons.simulate.definition import Figure

BLOCK = """<details class="sites"$open><summary>At each site</summary>
$tables</details>"""
TABLE = """<div data-metric="$name">
<p>$metric at each site’s own test examples after the last round. ▼ marks the worst site of a
line.$undefined</p>
<div class="scroll" tabindex="0" role="group" aria-label="What each line reached at each site">
<table><thead><tr><th scope="col">line</th><th scope="col">p</th>$head</tr></thead>
<tbody>$rows</tbody></table></div></div>"""
WORST = '<td class="worst">$words <span title="worst site">▼</span></td>'
MOST_SHOWN = 12  # lines of a table that need not be opened
Row = Mapping[str, Any]


def site_tables(figure: Figure, sites: pyarrow.Table, metrics: Sequence[Metric]) -> Markup:
    """A table for each metric, of which the page shows the one that is chosen.

    Empty for kinds of figures that compare no models.
    """
    if figure.kind not in captions.OF_METRICS:
        return Markup()
    return markup(
        BLOCK,
        open=Markup(" open" if len(figure.lines) <= MOST_SHOWN else ""),
        tables=joined(_table(figure, sites, metric) for metric in metrics),
    )


def _table(figure: Figure, sites: pyarrow.Table, main: Metric) -> Markup:
    last = pyarrow.compute.max(sites["round"]).as_py()
    wanted = pyarrow.compute.and_(
        pyarrow.compute.equal(sites["round"], last),
        pyarrow.compute.equal(sites["metric"], main.name),
    )
    rows = sites.filter(wanted).to_pylist()
    names = list(dict.fromkeys(row["site"] for row in rows))
    of_curve: dict[str, dict[str, Row]] = {}
    for row in rows:
        of_curve.setdefault(row["curve"], {})[row["site"]] = row
    lines = [
        (label, line.curve.straggler_prob, of_curve[line.curve.key])
        for label, line in zip(captions.labels(figure), figure.lines, strict=True)
    ]
    unknown = [name for name in names if not any(at[name]["runs"] for _, _, at in lines)]
    return markup(
        TABLE,
        name=main.name,
        metric=main.heading if main.is_proportion else f"{main.heading} ({main.direction})",
        undefined=_undefined(unknown, main),
        head=joined(markup('<th scope="col">$name</th>', name=name) for name in names),
        rows=joined(_row(label, p, at, main) for label, p, at in lines),
    )


def _undefined(sites: list[str], main: Metric) -> Markup:
    """Where the metric says nothing, and why that can be."""
    if not sites:
        return Markup()
    why = "no test examples" + (f", or test examples {main.undefined}" if main.undefined else "")
    words = " It is undefined, and left out, at $sites: $why."
    return markup(words, sites=", ".join(sites), why=why)


def _row(label: str, p: float, at: Mapping[str, Row], main: Metric) -> Markup:
    known = {name: main.sign * row["mean"] for name, row in at.items() if row["runs"]}
    worst = min(known, key=lambda name: known[name]) if len(known) > 1 else None
    cells = [
        markup(WORST if name == worst else "<td>$words</td>", words=_words(row, main))
        for name, row in at.items()
    ]
    head = '<tr><th scope="row">$label</th><td>$p</td>$cells</tr>'
    return markup(head, label=label, p=f"{p:g}", cells=joined(cells))


def _words(row: Row, main: Metric) -> str:
    if not row["runs"]:
        return "–"
    half = float(half_width(row["sem"], row["runs"])) if row["runs"] > 1 else None
    return main.with_half(row["mean"], half)
