"""What the recommended option means for each site, for people and for machines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from fedcommons.cli import screen

if TYPE_CHECKING:
    from fedcommons.checks import FloatArray
    from fedcommons.plan import Outcome

MOST_SITES = 60  # that are listed, and tried without their copies
LEGEND = (
    "misses: of the rounds; gains: how much of the error of its own part goes away in a round that "
    "it misses; kept: what becomes of the {what} if it alone keeps its records."
)


def records(
    names: tuple[str, ...], outcome: Outcome, kept: FloatArray | None
) -> list[dict[str, Any]]:
    """One record a site; `kept` is what `plan.if_it_kept` gives."""
    others = max(1, len(names) - 1)
    found = []
    for i, name in enumerate(names):
        ratio = None if kept is None or not math.isfinite(kept[i]) else float(kept[i])
        extra = outcome.extra_seconds
        found.append(
            {
                "site": name,
                "sends": float(outcome.sent[i]),
                "sends_to_each_other": float(outcome.sent[i]) / others,
                "receives": float(outcome.received[i]),
                "extra_compute": float(outcome.extra_load[i]),
                "extra_seconds": None if extra is None else float(extra[i]),
                "misses": float(outcome.straggler_prob[i]),
                "gain": float(outcome.gain[i]),
                "if_it_kept": ratio,
                "better_not_sharing": bool(outcome.sent[i] > 0 and outcome.gain[i] <= 0),
            }
        )
    return found


def table(rows: list[dict[str, Any]], *, timed: bool) -> Table:
    """The same as a table of 80 columns."""
    found = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    found.add_column("site", overflow="fold", max_width=16)
    for name in ("sends", "to each", "receives", "longer", "misses", "gains", "kept", ""):
        found.add_column(name, justify="right")
    for row in rows:
        longer = f"+{row['extra_compute']:.0%}"
        if timed:
            longer = f"+{row['extra_seconds']:.3g} s"
        kept = row["if_it_kept"]
        found.add_row(
            screen.words(row["site"]),
            f"{row['sends']:,.0f}",
            f"{row['sends_to_each_other']:,.3g}",
            f"{row['receives']:,.0f}",
            longer,
            f"{row['misses']:.0%}",
            f"{row['gain']:.0%}",
            "" if kept is None or not row["sends"] else f"{kept - 1:+.1%}",
            "better not" if row["better_not_sharing"] else "",
        )
    return found
