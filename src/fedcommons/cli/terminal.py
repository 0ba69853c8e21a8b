"""What a person sees while a study runs and when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

STYLES = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left, on a terminal; nothing in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_claims(checked: dict[str, Any]) -> None:
    """The claims as a table."""
    table = Table(
        title=f"Claims, from {checked['runs']} runs", title_justify="left", show_lines=True
    )
    for name, ratio in (("claim", 5), ("verdict", None), ("evidence", 5)):
        table.add_column(name, ratio=ratio, no_wrap=name == "verdict")
    for claim in checked["claims"]:
        words = Text(claim["claim"])
        words.append(f"\n{claim['where']}", style="dim")
        verdict = Text(claim["verdict"], style=STYLES[claim["verdict"]])
        table.add_row(words, verdict, claim["evidence"])
    Console().print(table)
