"""A federation on a terminal: a row for each site, and what happened last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedcommons.cli import screen
from fedcommons.federate.server.round_marks import mark
from fedcommons.federate.server.round_notes import SiteNote

if TYPE_CHECKING:
    from fedcommons.federate.server.overview import Overview, SiteView

STYLES = {"good": "green", "bad": "yellow", "open": "dim"}
SIGNS = "● in time  ↩ late  … still at work  ○ no answer  × away  · not asked"
LAST = 10  # rounds, and happenings


def picture(view: Overview) -> Group:
    """All of it, at most 80 columns wide."""
    from fedcommons.federate.server.overview_words import doing, how_it_is, value_of

    now = time.time()
    head = f"{view.federation or 'a federation'}: {how_it_is(view, now)}"
    measured = [v for note in view.notes if (v := value_of(note, view.metric)) is not None]
    if measured:
        head += f"; {view.metric} {measured[-1]:.4f}"
    table = Table(caption=SIGNS, caption_justify="left")
    table.add_column("site", overflow="fold")
    table.add_column("now", overflow="fold")
    table.add_column(f"last {LAST}", no_wrap=True)
    for column in ("in time", "late", "p"):
        table.add_column(column, justify="right", no_wrap=True)
    if view.metric:
        table.add_column(screen.words(view.metric), justify="right", overflow="fold")
    for site in view.sites:
        in_time = f"{site.on_time}/{site.asked}"
        cells = [in_time, _late(site), _number(site.straggler_prob, 2)]
        if view.metric:
            cells.append(_number(site.measured.get(view.metric), 3))
        says = screen.words(doing(site, view.live, now))
        table.add_row(screen.words(site.site), says, strip(site.notes[-LAST:]), *cells)
    happened = [
        screen.words(
            f"{'' if one.round is None else f'round {one.round}: '}{one.site} {one.what}", "dim"
        )
        for one in view.happenings[-LAST:]
    ]
    return Group(screen.words(head), *([table] if view.sites else []), *happened)


def strip(notes: Sequence[SiteNote]) -> Text:
    """A sign for each round."""
    found = Text()
    for note in notes:
        sign, how, _ = mark(note)
        found.append(sign, style=STYLES[how])
    return found


def cell(note: SiteNote) -> Text:
    """A site in a round: its sign, and p; of a late answer by how many seconds it was late."""
    sign, how, by = mark(note)
    return Text(f"{sign} {by or f'{note.straggler_prob:.2f}'}", style=STYLES[how])


def _late(site: SiteView) -> str:
    """How many late answers count, and by how many seconds the last one was late."""
    return str(site.late) + ("" if site.last_late_by is None else f" (+{site.last_late_by:.1f} s)")


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
