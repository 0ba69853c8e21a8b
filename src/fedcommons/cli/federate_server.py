"""`fedcommons federate quarantine` and the server's status: what its operator decides and sees."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedcommons.cli import screen
from fedcommons.cli.extras import need_flower
from fedcommons.cli.federation_table import picture
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError

StateDir = Annotated[Path, typer.Argument(help="The server's folder, the run config's state-dir.")]


def quarantine(
    state_dir: StateDir,
    lift: Annotated[
        str, typer.Option(help="A site that may take part again: its name, or its key's beginning.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the sites that are left out, and why; or let one take part again.

    A claim that is held back is approved by lifting it. While a run goes on the
    server takes this up before its next round.

    Example: fedcommons federate quarantine /srv/federation --lift hospital-b
    """
    need_flower()
    from fedcommons.federate.server import lifting
    from fedcommons.federate.server import quarantine as quarantines

    folder = state_dir.resolve()
    if not (folder / "format.json").exists():
        raise ArgumentError(f"state-dir must be a server's folder, got {state_dir}")
    if lift:
        entry, is_done = lifting.lift(folder, lift)
        said = f"{entry.site} takes part again from the next {'run' if is_done else 'round'} on"
        if as_json:
            screen.say_json({"lifted": entry.site, "identity": entry.identity, "done": is_done})
        else:
            screen.say(said)
        return
    found = quarantines.Quarantine(folder).listed()
    if as_json:
        screen.say_json({"quarantined": found})
        return
    if not found:
        screen.say("no site is in quarantine")
    for one in found:
        screen.say(f"{one['site']:16} {one['identity'][:8]}  since {one['since']}: {one['why']}")


def show_status(folder: Path, *, as_json: bool) -> None:
    """Who takes part, who was asked, who answered when, and what happened."""
    from fedcommons.federate.server.overview import Watcher
    from fedcommons.federate.server.overview_words import as_json as json_of

    view = Watcher.of(folder).look()
    if as_json:
        screen.say_json(json_of(view))
    else:
        Console().print(picture(view))
