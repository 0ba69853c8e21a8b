"""What each site measured, in the page of a federation's training: one metric at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedcommons.figures.markup import Markup, joined, markup
from fedcommons.figures.round_chart import chart

KINDS = {"evaluation": "on held-out data of its own", "training": "while it trained"}
ALL = "all sites"
Row = dict[str, Any]
SECTION = """<section aria-labelledby="at-sites"><h2 id="at-sites">What each site measured</h2>
<p class="caption">Choose a metric. The thick line, and the row “all sites”, is the mean weighted
by examples; thin lines are single sites: point at one for its name. ▲ is the highest and ▼ the
lowest of the last round. A site's own numbers: nobody can check them.</p>$parts</section>"""
METRIC = """<details name="at-sites-$kind" class="metric"$open><summary>$metric</summary>$chart
<div class="wide"><table class="sites"><thead><tr><th>site</th><th>examples</th><th>$metric</th>
<th>round</th></tr></thead><tbody>$rows</tbody></table></div></details>"""


def at_sites(rows: Sequence[Row]) -> Markup:
    """A section with a part for each kind of metrics; nothing if nothing was measured."""
    parts = [_part(kind, [row for row in rows if row["kind"] == kind]) for kind in KINDS]
    return markup(SECTION, parts=joined(parts)) if any(parts) else Markup("")


def _part(kind: str, rows: Sequence[Row]) -> Markup:
    """Of each metric a chart and a table, of which one is open; and what was left out last."""
    if not rows:
        return Markup("")
    metrics = list(dict.fromkeys(row["metric"] for row in rows if row["metric"] is not None))
    return markup(
        '<p class="caption">Each site $what</p>$metrics$left_out',
        what=KINDS[kind],
        metrics=joined(
            _metric(kind, metric, [row for row in rows if row["metric"] == metric], is_first=k == 0)
            for k, metric in enumerate(metrics)
        ),
        left_out=_left_out(rows),
    )


def _metric(kind: str, metric: str, rows: Sequence[Row], *, is_first: bool) -> Markup:
    of_site: dict[str, list[Row]] = {}
    for row in rows:  # which go by round
        of_site.setdefault(row["site"], []).append(row)
    lines = {site: [(r["round"], r["value"]) for r in mine] for site, mine in of_site.items()}
    pooled = list(_pooled(rows))
    return markup(
        METRIC,
        kind=kind,
        open=Markup(" open" if is_first else ""),
        metric=metric,
        chart=chart(f"{metric} after each round", pooled, lines),
        rows=joined(_table_rows([mine[-1] for mine in of_site.values()], pooled[-1])),
    )


def _pooled(rows: Sequence[Row]) -> Iterator[tuple[int, float]]:
    """Of each round the sites' mean, weighted by their examples."""
    for t in sorted({row["round"] for row in rows}):
        there = [row for row in rows if row["round"] == t]
        n = sum(row["examples"] for row in there)
        if n > 0:
            yield t, sum(row["value"] * row["examples"] for row in there) / n


def _table_rows(last: Sequence[Row], pooled: tuple[int, float]) -> Iterator[Markup]:
    """A row for each site's last value, and one for all sites in the last round."""
    now = [row["value"] for row in last if row["round"] == pooled[0]]
    for row in last:
        mark = ""
        if row["round"] == pooled[0] and min(now) < max(now):
            mark = {min(now): " ▼", max(now): " ▲"}.get(row["value"], "")
        yield _cells(
            row["site"], f"{row['examples']:g}", f"{row['value']:.4f}{mark}", f"{row['round']:d}"
        )
    n = sum(row["examples"] for row in last if row["round"] == pooled[0])
    yield _cells(ALL, f"{n:g}", f"{pooled[1]:.4f}", f"{pooled[0]:d}")


def _left_out(rows: Sequence[Row]) -> Markup:
    """What was left out of each site's measurements, if anything was, with its last round."""
    last = {row["site"]: row for row in rows if row["metric"] is None}
    said = "; ".join(
        f"{site}: {row['left_out']} (round {row['round']:d})" for site, row in last.items()
    )
    return markup('<p class="caption">Left out last: $said.</p>', said=said) if said else Markup("")


def _cells(*cells: str) -> Markup:
    return markup("<tr>$cells</tr>", cells=joined(markup("<td>$c</td>", c=c) for c in cells))
