"""`fedcommons federate`: a federation of your own, and a site's store."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import shlex
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from fedcommons import checks
from fedcommons.cli import exit_codes, federate_demo, federate_deploy
from fedcommons.cli.extras import need_flower
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError, StoreError

if TYPE_CHECKING:
    from fedcommons.federate.site.store import Store

T = TypeVar("T")

app = typer.Typer(
    help="A federation on Flower: an app of your own, one to watch, and a site's store.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo")(federate_demo.demo)
app.command("tls")(federate_deploy.tls)
app.command("node-key")(federate_deploy.node_key)
app.command("proxy")(federate_deploy.proxy)

PAIR = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")  # spaces in quotes belong to a value
StoreFolder = Annotated[Path, typer.Argument(help="The folder of a site's store.")]


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    torch: Annotated[bool, typer.Option("--torch", help="A PyTorch model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a ready Flower app: edit its task.py and data.py, run the rest unchanged.

    Example: fedcommons federate new hospitals
    """
    from fedcommons.federate.apps.new_app import write_app

    files = write_app(folder, torch=torch)
    if as_json:
        typer.echo(json.dumps({"files": [str(path) for path in files]}, indent=2))
        return
    for path in files:
        typer.echo(str(path))
    typer.echo(f"Try it: fedcommons federate run {shlex.quote(str(folder))}")


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="The folder of a Flower app.")],
    sites: Annotated[int, typer.Option(help="Sites, each with its part of the data.")] = 5,
    run_config: Annotated[
        str, typer.Option(help="Changes to the run config, as for flwr run: 'num-rounds=50'.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Run a Flower app in one process: the real server and client apps, no network.

    Example: fedcommons federate run hospitals --run-config 'num-rounds=50 rehearse-stragglers=0.5'
    """
    need_flower()
    from flwr.common.logger import update_console_handler

    from fedcommons.federate.apps.local_run import run_app

    if sites < 2:
        raise ArgumentError(f"sites must be at least 2, got {sites}")
    update_console_handler(colored=sys.stderr.isatty())
    start = time.monotonic()
    try:  # what the app prints is no JSON
        with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
            grid = run_app(folder, sites, parse_config(run_config))
    except KeyboardInterrupt:
        typer.echo("fedcommons: interrupted; give the same command again to go on", err=True)
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    if as_json:
        found = {
            "sites": sites,
            "seconds": round(time.monotonic() - start, 3),
            "bytes": grid.n_bytes,
            "state_dir": grid.run_config.get("state-dir"),
        }
        typer.echo(json.dumps(found, indent=2))


def parse_config(text: str) -> dict[str, Any]:
    """key=value pairs with spaces between, values as in TOML."""
    pairs: dict[str, Any] = {}
    for part in PAIR.findall(text):
        key, sign, value = part.partition("=")
        try:
            pairs[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            sign = ""
        if not sign or not key:
            raise ArgumentError(f"run-config must be key=value pairs as in TOML, got {part!r}")
    return pairs


@contextlib.contextmanager
def _opened(folder: Path, *, create: bool = False) -> Iterator[Store]:
    """A site's store, closed afterwards."""
    from fedcommons.federate.site.store import Store

    with contextlib.closing(Store(folder, create=create)) as store:
        yield store


def _show(
    folder: Path, read: Callable[[Store], T], display: Callable[[T], None], *, as_json: bool
) -> None:
    """What is read off a store, for a person or as JSON."""
    with _opened(folder) as store:
        found = read(store)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        display(found)


@app.command()
def check(
    data: Annotated[Path, typer.Argument(help="A site's data file: .npz or .parquet.")],
    label_column: Annotated[str, typer.Option(help="Of Parquet.")] = "label",
    shareable_column: Annotated[str, typer.Option(help="Of Parquet.")] = "shareable",
    classes: Annotated[
        int | None, typer.Option(help="Labels must be below it, as the app says.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What a federation would read from a site's data file, and what is wrong with it.

    Nothing leaves this machine: the SuperNode need not run.

    Example: fedcommons federate check /srv/hospital-a/data.npz
    """
    need_flower()
    from fedcommons.federate.site.data_files import load_site_data
    from fedcommons.federate.site.status import summary_of

    with tempfile.TemporaryDirectory() as spool:
        found = load_site_data(
            data, spool=Path(spool), label=label_column, shareable=shareable_column
        )
        if classes is not None:
            found = replace(found, n_classes=checks.integer("classes", classes, low=1))
        summary = summary_of(found)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _print_status(summary)


@app.command()
def identity(folder: StoreFolder, as_json: AsJson = False) -> None:
    """Print a site's public key for its peers to pin; a new store is made where there is none.

    Example: fedcommons federate identity /srv/hospital-a/store
    """
    need_flower()
    with _opened(folder, create=True) as store:
        name = store.identity.name
    typer.echo(json.dumps({"identity": name}) if as_json else name)


@app.command()
def status(folder: StoreFolder, as_json: AsJson = False) -> None:
    """What a site is committed to and holds; reads all of the store, so that damage shows.

    Example: fedcommons federate status /srv/hospital-a/store
    """
    need_flower()
    from fedcommons.federate.site.status import status_of

    _show(folder, status_of, _print_status, as_json=as_json)


def _print_status(found: dict[str, Any]) -> None:
    for name, value in found.items():
        if not isinstance(value, dict):
            typer.echo(f"{name.replace('_', ' '):24} {'-' if value is None else value}")
    for sender, n in found.get("held_from_others", {}).items():
        typer.echo(f"{'held from ' + sender:24} {n}")


@app.command()
def ledger(folder: StoreFolder, as_json: AsJson = False) -> None:
    """Who gave what to whom, and what was deleted: every transfer, the oldest first.

    Example: fedcommons federate ledger /srv/hospital-a/store --json
    """
    need_flower()
    from fedcommons.federate.site.status import ledger_of

    _show(folder, ledger_of, _print_ledger, as_json=as_json)


def _print_ledger(entries: list[dict[str, Any]]) -> None:
    table = Table()
    for column in ("time", "event", "epoch", "peer", "examples", "bytes"):
        table.add_column(column, justify="right" if column in ("examples", "bytes") else "left")
    for entry in entries:
        when = datetime.datetime.fromtimestamp(entry["time"], datetime.UTC)
        table.add_row(
            f"{when:%Y-%m-%d %H:%M:%S}Z",
            entry["event"],
            str(entry["epoch"]),
            entry["peer"],
            str(entry["examples"]),
            str(entry["bytes"]),
        )
    Console().print(table)


@app.command()
def withdraw(
    folder: StoreFolder,
    rows: Annotated[
        str, typer.Option(help="Rows of the data file, from 0, with commas between.")
    ] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Everything: the site leaves the federation.")
    ] = False,
    as_offered: Annotated[
        bool, typer.Option("--as-offered", help="Rows of the file as it was when it was offered.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take examples back: nobody trains on them any more, and holders delete them.

    It takes effect in the next round in which the site is heard.

    Example: fedcommons federate withdraw /srv/hospital-a/store --rows 17,42
    """
    need_flower()
    import numpy as np

    if bool(rows) == everything:
        raise ArgumentError("rows or --all must be given, one of them")
    try:
        numbers = np.array([int(row) for row in rows.split(",") if row], np.int64)
    except (ValueError, OverflowError):
        raise ArgumentError(f"rows must be integers with commas between, got {rows!r}") from None
    if not everything and not len(numbers):
        raise ArgumentError(f"rows must name one row at least, got {rows!r}")
    with _opened(folder) as store:
        if everything:
            if store.federation is None:
                raise StoreError(f"store {folder} was never in a federation: nothing to withdraw")
            store.withdrawals.withdraw_everything()
            said = "everything is withdrawn"
        else:
            n = store.withdrawals.withdraw(numbers, as_offered=as_offered)
            said = f"{n} examples are withdrawn"
    when = "from the next round on in which this site is heard"
    typer.echo(json.dumps({"withdrawn": said}) if as_json else f"{said}, {when}")
