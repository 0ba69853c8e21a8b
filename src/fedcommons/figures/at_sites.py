"""What each site measured, in the page of a federation's training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedcommons.figures.markup import Markup, joined, markup

KINDS = {"evaluation": "on held-out data of its own", "training": "while it trained"}


def at_sites(rows: Sequence[dict[str, Any]]) -> Markup:
    """A section with a table for each kind of metrics; nothing if nothing was measured."""
    tables = [_table(kind, [row for row in rows if row["kind"] == kind]) for kind in KINDS]
    if not any(tables):
        return Markup("")
    return markup(
        '<section aria-labelledby="at-sites"><h2 id="at-sites">What each site measured</h2>'
        '<p class="caption">The last measurement of each site, with its round. A site\'s own '
        "numbers: nobody can check them.</p>$tables</section>",
        tables=joined(tables),
    )


def _table(kind: str, rows: Sequence[dict[str, Any]]) -> Markup:
    """A row for each site: its last value of each metric, and what was left out last."""
    if not rows:
        return Markup("")
    metrics = list(dict.fromkeys(row["metric"] for row in rows if row["metric"] is not None))
    body = []
    for site in dict.fromkeys(row["site"] for row in rows):
        mine = [row for row in rows if row["site"] == site]
        last = {row["metric"]: row for row in mine}  # rows go by round
        numbers = [last[name] for name in metrics if name in last]
        examples = f"{numbers[-1]['examples']:g}" if numbers else "-"
        cells = [site, examples]
        cells += [
            f"{last[name]['value']:.4f} ({last[name]['round']:d})" if name in last else "-"
            for name in metrics
        ]
        left_out = last.get(None)
        cells.append(f"{left_out['left_out']} ({left_out['round']:d})" if left_out else "-")
        body.append(
            markup("<tr>$cells</tr>", cells=joined(markup("<td>$c</td>", c=c) for c in cells))
        )
    heads = ("site", "examples", *metrics, "left out")
    return markup(
        '<p class="caption">$what (round in brackets)</p>'
        '<div class="wide"><table class="sites"><tr>$head</tr>$rows</table></div>',
        what=f"Each site {KINDS[kind]}",
        head=joined(markup("<th>$name</th>", name=name) for name in heads),
        rows=joined(body),
    )
