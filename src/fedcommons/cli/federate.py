"""`fedcommons federate`: a federation of your own, one to watch, and the tools of its sites."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcommons.cli import (
    exit_codes,
    federate_backup,
    federate_check,
    federate_demo,
    federate_deploy,
    federate_desk,
    federate_kit,
    federate_server,
    federate_site,
    screen,
)
from fedcommons.cli.extras import need_flower
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError

app = typer.Typer(
    help="A federation on Flower: your own app, a demo, and the tools of a site.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

PAIR = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")  # spaces in quotes belong to a value


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    torch: Annotated[
        bool, typer.Option("--torch", help="Train a PyTorch model instead of a NumPy one.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a Flower app that is ready to run.

    Put your model in its task.py and your data in its data.py.

    Example: fedcommons federate new hospitals
    """
    from fedcommons.federate.apps.new_app import write_app

    files = write_app(folder, torch=torch)
    if as_json:
        screen.say_json({"files": [str(path) for path in files]})
        return
    screen.say(*files)
    screen.say(f"Try it: fedcommons federate run {shlex.quote(str(folder))}")


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="The folder of a Flower app.")],
    sites: Annotated[int, typer.Option(help="Number of sites that share the data out.")] = 5,
    run_config: Annotated[
        str, typer.Option(help="Settings as for `flwr run`, such as 'num-rounds=50 seed=1'.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Run a Flower app in one process, without a network.

    The server app and the client apps are the ones that a real federation
    runs. Interrupted with Ctrl-C, it goes on when it is run again.

    Example: fedcommons federate run hospitals --run-config 'num-rounds=50'
    """
    need_flower()
    from fedcommons.federate.transport.simulation import state_folder

    if sites < 2:
        raise ArgumentError(f"sites must be at least 2, got {sites}")
    start = time.monotonic()
    try:
        grid = _run(folder, sites, parse_config(run_config), as_json=as_json)
    except KeyboardInterrupt:
        screen.say("fedcommons: interrupted; run the same command again to go on", err=True)
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    if as_json:
        folder = state_folder(grid.run_config, grid.run_id)
        found = {
            "sites": sites,
            "seconds": round(time.monotonic() - start, 3),
            "bytes": grid.n_bytes,
            "state_dir": str(folder) if folder.exists() else None,
        }
        screen.say_json(found)


@app.command()
def review(
    folder: Annotated[Path, typer.Argument(help="The folder of a Flower app.")],
    hash_only: Annotated[
        bool, typer.Option("--hash", help="Print the hash alone, for a policy's apps.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what an app may do at a site, before it runs there.

    Lists what answers messages and what leaves, what it imports, where it
    reaches beyond its examples, and the hash of its files. Nothing is run.

    Example: fedcommons federate review hospitals
    """
    need_flower()
    from fedcommons.federate.apps import review as reviewing

    found = reviewing.review(folder)
    if as_json:
        screen.say_json(asdict(found))
        return
    if hash_only:
        screen.say(found.hash)
        return
    for handler in found.handlers:
        screen.say(f"{handler.kind:9} {handler.name}; what leaves: {handler.leaves}")
    if not found.attaches:
        screen.say("it does not call attach: it takes no part in exchanges, and no site checks it")
    screen.say(f"imports   {', '.join(found.imports)}")
    screen.say(f"installs  {', '.join(found.dependencies) or 'nothing'}")
    for place in found.look_at:
        screen.say(f"look at   {place}")
    for name, size in found.files.items():
        screen.say(f"file      {name}, {size} bytes")
    screen.say(f"hash      {found.hash}")


def _run(folder: Path, sites: int, config: dict[str, Any], *, as_json: bool) -> Any:
    from fedcommons.federate.apps.local_run import run_app
    from fedcommons.federate.transport.flower_internals import update_console_handler

    update_console_handler(colored=sys.stderr.isatty())
    with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):  # the app may print
        return run_app(folder, sites, config)


def parse_config(text: str) -> dict[str, Any]:
    """Pairs key=value, separated by spaces; values are written as in TOML."""
    pairs: dict[str, Any] = {}
    for part in PAIR.findall(text):
        key, sign, value = part.partition("=")
        try:
            pairs[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            sign = ""
        if not sign or not key:
            raise ArgumentError(
                f"run-config must be key=value pairs with values as in TOML, got {part!r}"
            )
    return pairs


app.command("demo")(federate_demo.demo)
app.command("watch")(federate_desk.watch)
app.command("metrics")(federate_desk.metrics)
app.command("quarantine")(federate_server.quarantine)
for command in (
    federate_check.check,
    federate_site.identity,
    federate_site.trust,
    federate_site.status,
    federate_site.approve,
    federate_site.recover,
    federate_site.ledger,
    federate_site.withdraw,
):
    app.command()(command)
app.command("backup")(federate_backup.backup)
app.command("restore")(federate_backup.restore)
app.command("upgrade")(federate_backup.upgrade)
app.command("tls")(federate_deploy.tls)
app.command("kit")(federate_kit.kit)
app.command("join")(federate_kit.join)
app.command("start")(federate_kit.start)
app.command("units")(federate_kit.units)
app.command("node-key")(federate_deploy.node_key)
app.command("proxy")(federate_deploy.proxy)
