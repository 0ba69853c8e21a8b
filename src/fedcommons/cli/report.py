"""`fedcommons report`: redraw everything from a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcommons.cli import screen, terminal
from fedcommons.cli.options import AsJson
from fedcommons.simulate.folder import Folder


def report(
    folder: Annotated[Path, typer.Argument(help="A results folder.")],
    every_claim: Annotated[
        bool, typer.Option("--claims", help="Print every claim with its evidence.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the claims, draw the figures and write the page again, without running anything.

    Example: fedcommons report results/paper
    """
    from fedcommons.figures import federation

    if federation.is_federation(folder):
        page = federation.write_page(folder)
        if as_json:
            screen.say_json({"folder": str(folder)})
        else:
            screen.say(f"Open {page}")
        return
    from fedcommons.figures.report import write_report  # matplotlib is slow to import

    reported = write_report(Folder(folder))
    if as_json:
        terminal.print_json(folder, reported)
        return
    terminal.print_report(reported, every_claim=every_claim)
    screen.say(f"Open {folder / 'report.html'}")
