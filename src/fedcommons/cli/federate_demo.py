"""`fedcommons federate demo`: a federation on this machine, to watch."""

from __future__ import annotations

import contextlib
import signal
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from fedcommons.cli import exit_codes, screen
from fedcommons.cli.extras import need_flower
from fedcommons.cli.federation_table import SIGNS, cell
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError
from fedcommons.federate.server.round_notes import SiteNote, late_in_words


def demo(
    rounds: Annotated[int, typer.Option(help="Rounds of training.")] = 10,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("results/demo"),
    as_json: AsJson = False,
) -> None:
    """Watch a real federation on this machine: five sites share examples and train.

    A SuperLink with TLS, authenticated SuperNodes with pinned keys, an
    exchange, and rounds of training in which sites are stopped, restarted and
    killed. It takes about three minutes, ends every process that it started,
    and leaves nothing but the results folder.

    Example: fedcommons federate demo --rounds 10
    """
    need_flower()
    from fedcommons.federate.deploy.demo import play
    from fedcommons.figures.federation import write_page

    if rounds < 1:
        raise ArgumentError(f"rounds must be at least 1, got {rounds}")
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, signal.default_int_handler)  # the terminal was closed
    watched = _Screen(rounds)
    try:
        with watched.shown(as_json=as_json):
            found = play(out, rounds=rounds, say=watched.say, on_round=watched.on_round)
            page = write_page(out)
            watched.end()
    except KeyboardInterrupt:
        screen.say("fedcommons: interrupted; all processes are ended", err=True)
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    if as_json:
        screen.say_json(
            {
                "folder": str(out),
                "rounds": watched.notes,
                "events": watched.events,
                "bought": asdict(found),
            }
        )
        return
    if not watched.is_live:
        screen.say("What happened:", *(f"  {event}" for event in watched.happened))
    width = min(Console().width, 100)
    screen.say(*textwrap.wrap(found.words, max(width, 40)))
    screen.say(f"Open {page}")
    screen.say(f"Draw it again: fedcommons report {out}")


class _Screen:
    """Shows the progress: a growing table on a terminal, plain lines in a pipe."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.notes: list[dict[str, Any]] = []
        self.events: list[str] = []
        self._dated: list[tuple[int, str]] = []  # events, and the last round before each
        self._live: Live | None = None
        self._lines = False

    @contextlib.contextmanager
    def shown(self, *, as_json: bool) -> Iterator[None]:
        console = Console()
        if as_json:
            yield
        elif not console.is_terminal:
            self._lines = True
            yield
        else:
            with Live(self._picture(), console=console, auto_refresh=False) as self._live:
                yield

    @property
    def is_live(self) -> bool:
        return self._live is not None

    @property
    def happened(self) -> list[str]:
        """All that happened to sites, each after its round."""
        return [f"after round {t}: {event}" for t, event in self._dated if t]

    def say(self, event: str) -> None:
        self.events.append(event)
        self._dated.append((self.notes[-1]["round"] if self.notes else 0, event))
        self._draw(event)

    def end(self) -> None:
        """Show all that happened, instead of the last of it."""
        if self._live is not None:
            self._live.update(self._picture(self.happened), refresh=True)

    def on_round(self, note: dict[str, Any]) -> None:
        self.notes.append(note)
        if note["sites"]:
            self._draw(_line(note, self.rounds))

    def _draw(self, line: str) -> None:
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
        elif self._lines:
            screen.say(line)

    def _picture(self, events: Sequence[str] | None = None) -> Group:
        """A table of who answered in each round, and these events, or the last ones."""
        played = [note for note in self.notes if note["sites"]]
        words = (
            f"{SIGNS}\nbehind a sign: the site's estimated p, or by how many seconds it was late"
        )
        table = Table(caption=words, caption_justify="left")
        for column in ("round", "accuracy", "seconds"):
            table.add_column(column, justify="right")
        for site in played[-1]["sites"] if played else []:
            table.add_column(screen.words(site["site"]))
        for note in played:
            table.add_row(
                f"{note['round']}/{self.rounds}",
                "" if (accuracy := _accuracy(note)) is None else f"{accuracy:.3f}",
                f"{note['seconds']:.1f}",
                *(cell(SiteNote(**site)) for site in note["sites"]),
            )
        said = self.events[-4:] if events is None else events
        lines = [screen.words(event, "dim") for event in said]
        return Group(*([table] if played else []), *lines)


def _line(note: dict[str, Any], rounds: int) -> str:
    sites = note["sites"]
    here = [site["site"] for site in sites if site["answered"]]
    missing = [
        f"{site['site']} ({site['outcome']})"
        for site in sites
        if site.get("asked", True) and not site["answered"]
    ]
    late = [late_in_words(site) for one in sites if (site := SiteNote(**one)).asked_in is not None]
    p = " ".join(f"{site['straggler_prob']:.2f}" for site in sites)
    accuracy = _accuracy(note)
    return (
        f"round {note['round']}/{rounds}: "
        + ("" if accuracy is None else f"accuracy {accuracy:.3f}, ")
        + f"{note['seconds']:.1f} s, "
        f"answered {' '.join(here) or 'nobody'}"
        + (f", missing {', '.join(missing)}" if missing else "")
        + (f", late {', '.join(late)}" if late else "")
        + f"; p {p}"
    )


def _accuracy(note: dict[str, Any]) -> float | None:
    """What the sites say of the model after a round; None if they were not asked."""
    found = note.get("evaluation", {}).get("pooled", {}).get("accuracy")
    return None if found is None else float(found)
