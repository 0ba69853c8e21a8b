"""`fedcommons federate watch` and `metrics`: what operators look at while a federation runs."""

from __future__ import annotations

import time
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import typer

from fedcommons.cli import exit_codes, screen
from fedcommons.cli.extras import need_flower
from fedcommons.cli.federation_table import picture
from fedcommons.cli.live_view import PAUSE, follow
from fedcommons.errors import ArgumentError

Host = Annotated[str, typer.Option(help="The address to listen on; others can reach any other.")]


def watch(
    state_dir: Annotated[
        Path, typer.Argument(help="The server's folder, the run config's state-dir.")
    ],
    port: Annotated[int, typer.Option(help="Of the page; 0: one that is free.")] = 0,
    host: Host = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Show what there is, and end.")] = False,
) -> None:
    """Watch a running federation: a page for a browser, and a table on the terminal.

    Who is there, who answered when, who is late by how much, what sites measured,
    and what happened. It only reads. Whoever has the page's address can see it;
    it is of this machine alone. It goes on until Ctrl-C.

    Example: fedcommons federate watch /srv/federation
    """
    need_flower()
    from fedcommons.desk import page, serving
    from fedcommons.federate.server.overview import Watcher
    from fedcommons.federate.server.overview_words import as_json

    seen = Watcher.of(state_dir.resolve())
    if once:
        follow(lambda: picture(seen.look()), lambda: True, once=True)
        return
    pages = Watcher.of(state_dir.resolve())  # of the page's own threads
    token = page.new_token()
    respond = page.respond_with(token, lambda: as_json(pages.look()))
    try:
        with serving.serving(respond, host=host, port=port) as address:
            screen.say(f"Open {address}/{token}/")
            follow(lambda: picture(seen.look()), lambda: False)
            _until_interrupted()  # in a pipe
    except KeyboardInterrupt:
        raise typer.Exit(exit_codes.INTERRUPTED) from None


def metrics(
    folder: Annotated[Path, typer.Argument(help="The server's state-dir, or a site's store.")],
    port: Annotated[
        int | None, typer.Option(help="Serve them at /metrics on this port, until Ctrl-C.")
    ] = None,
    host: Host = "127.0.0.1",
) -> None:
    """Show numbers for Prometheus: of a server's folder, or of a site's store.

    With --port they are served, without it printed, for node exporter's textfile
    collector. They are read from the folder, and go on over restarts.

    Example: fedcommons federate metrics /srv/federation --port 9464
    """
    need_flower()
    from fedcommons.desk import prometheus, serving

    prometheus.check_installed()
    folder = folder.resolve()
    if not prometheus.is_server(folder) and not (folder / "store.sqlite3").exists():
        raise ArgumentError(f"folder must be a server's state-dir or a site's store, got {folder}")
    if port is None:
        screen.say(*prometheus.text_of(folder).decode().splitlines())
        return

    def respond(path: str) -> serving.Answer:
        if path != prometheus.PATH:
            return serving.refused(HTTPStatus.NOT_FOUND)
        return serving.Answer(HTTPStatus.OK, prometheus.text_of(folder), prometheus.KIND)

    try:
        with serving.serving(respond, host=host, port=port) as address:
            screen.say(f"Prometheus can read {address}{prometheus.PATH}")
            _until_interrupted()
    except KeyboardInterrupt:
        raise typer.Exit(exit_codes.INTERRUPTED) from None


def _until_interrupted() -> None:
    while True:
        time.sleep(PAUSE)
