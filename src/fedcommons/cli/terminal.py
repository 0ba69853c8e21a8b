"""What a person sees while a study runs and when it is done."""

from __future__ import annotations

import contextlib
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import typer
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

from fedcommons import shown
from fedcommons.cli import exit_codes, screen
from fedcommons.intervals import half_width
from fedcommons.metrics import Metric

COUNTED = {
    "does not hold": "do not hold",
    "undecided": "undecided (more runs may decide them)",
    "holds": "hold",
}
MOST_FAILED = 8  # of a screenful
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


@contextlib.contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Ctrl-C ends in a message and its exit code; what is done stays in the folder."""
    try:
        yield
    except KeyboardInterrupt:
        screen.say(
            f"fedcommons: interrupted; the finished runs are kept in {folder}: "
            "give the same command again to go on",
            err=True,
        )
        raise typer.Exit(exit_codes.INTERRUPTED) from None


def count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def print_json(folder: Path, reported: Mapping[str, Any]) -> None:
    screen.say_json({"folder": str(folder), **reported})


def print_report(
    reported: Mapping[str, Any], *, lines_by: Metric | None = None, every_claim: bool = False
) -> None:
    """What was found, and what diverged.

    With `lines_by`, the study's main metric, also what every line reached; all claims if wanted.
    """
    if reported["claims"]:
        print_claims(reported) if every_claim else print_verdicts(reported)
    if lines_by:
        print_lines(reported["lines"], lines_by)
    for sentence in reported.get("summary", {}).get("sentences", ()):
        screen.say(sentence)
    say_diverged(reported["lines"])
    if clock := reported.get("clock"):
        screen.say("By the clock:")
        print_claims(clock) if every_claim else print_verdicts(clock, last="")
        say_diverged(clock["lines"])


EVERY_CLAIM = (
    "Every claim with its evidence is in the page, and in fedcommons report FOLDER --claims."
)


def print_verdicts(reported: Mapping[str, Any], *, last: str = EVERY_CLAIM) -> None:
    """The result in a sentence, the verdicts counted, and the claims that do not hold."""
    width = max(40, min(Console().width, 100))

    def say(words: str, indent: str = "") -> None:
        screen.say(*textwrap.wrap(shown.plain(words), width, subsequent_indent=indent))

    if reported.get("found"):
        say(reported["found"])
    verdicts = Counter(claim["verdict"] for claim in reported["claims"])
    counts = ", ".join(f"{verdicts[v]} {words}" for v, words in COUNTED.items() if verdicts[v])
    judged = count(len(reported["claims"]), "claim")
    say(f"{judged}, from {count(reported['runs'], 'run')}: {counts}.")
    failed = [claim for claim in reported["claims"] if claim["verdict"] == "does not hold"]
    if failed:
        screen.say("What does not hold:")
    for claim in failed[:MOST_FAILED]:
        say(f"  - {claim['claim']}", "    ")
    if len(failed) > MOST_FAILED:
        screen.say(f"  and {len(failed) - MOST_FAILED} more")
    if last:
        say(last)


def print_lines(lines: Sequence[Mapping[str, Any]], main: Metric) -> None:
    """What every line reached in the last round, figure by figure; by the clock if there is one."""
    words = main.words.removeprefix("test ")
    end = f"{lines[0]['clock']:g} s" if "clock" in lines[0] else "the last round"
    screen.say(f"{words[0].upper()}{words[1:]} after {end}:")
    for figure, its in groupby(lines, key=itemgetter("figure")):
        _print_figure(figure, sorted(its, key=itemgetter("p")), main)


def _print_figure(figure: str, lines: Sequence[Mapping[str, Any]], main: Metric) -> None:
    clocked, timed = "clock" in lines[0], "target" in lines[0]
    table = Table(title=screen.words(figure), title_justify="left")
    if not clocked:
        table.add_column("p", justify="right")
    table.add_column("line", overflow="fold")
    table.add_column(main.title.removeprefix("test "), justify="right", no_wrap=True)
    if timed:
        table.add_column(f"s to {lines[0]['target']:g}", justify="right")
    for line in lines:
        reached = line[main.name]
        lost = "diverged" if line["diverged"] == line["runs"] else "undefined"
        half = None
        if line["sem"] is not None:
            half = float(half_width(line["sem"], line["runs"] - line["diverged"]))
        value = lost if reached is None else main.with_half(reached, half)
        p = [] if clocked else [f"{line['p']:g}"]
        time = [_seconds(line)] if timed else []
        table.add_row(*p, screen.words(line["label"]), value, *time)
    Console().print(table)


def _seconds(line: Mapping[str, Any]) -> str:
    """The median run's seconds to the target, and how many runs got there if not all did."""
    words = "never" if line["seconds"] is None else f"{line['seconds']:.4g}"
    if line["reached"] == line["runs"]:
        return words
    return f"{words} ({line['reached']} of {line['runs']})"


def say_diverged(lines: Sequence[Mapping[str, Any]]) -> None:
    for line in lines:
        if line["diverged"]:
            screen.say(
                f"fedcommons: {line['diverged']} of {line['runs']} runs of {line['label']} "
                f"{'' if 'clock' in line else 'at p = ' + format(line['p'], 'g') + ' '}"
                f"in {line['figure']} diverged and are left out of its means",
                err=True,
            )


def print_claims(checked: Mapping[str, Any]) -> None:
    """The claims as a table."""
    table = Table(
        title=f"Claims, from {count(checked['runs'], 'run')}", title_justify="left", show_lines=True
    )
    for name, ratio in (("claim", 5), ("verdict", None), ("evidence", 5)):
        table.add_column(name, ratio=ratio, no_wrap=name == "verdict")
    for claim in checked["claims"]:
        where = screen.words(claim["where"], "dim")
        statistic = screen.words(f"Statistic: {claim['statistic']}", "dim")
        table.add_row(
            Text("\n").join([screen.words(claim["claim"]), where]),
            screen.words(claim["verdict"], STYLES[claim["verdict"]]),
            Text("\n").join([screen.words(claim["evidence"]), statistic]),
        )
    Console().print(table)
