"""`fedcommons federate identity`, `status`, `approve` and others: a site's tools."""

from __future__ import annotations

import contextlib
import datetime
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from fedcommons import checks
from fedcommons.cli import federate_server, screen
from fedcommons.cli.extras import need_flower
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError, StoreError

if TYPE_CHECKING:
    from fedcommons.checks import IntArray
    from fedcommons.federate.site.store import Store

T = TypeVar("T")

StoreFolder = Annotated[Path, typer.Argument(help="The folder of a site's store.")]


@contextlib.contextmanager
def _opened(folder: Path, *, create: bool = False) -> Iterator[Store]:
    """A site's store, closed at the end of the block."""
    from fedcommons.federate.site.store import Store

    with contextlib.closing(Store(folder, create=create)) as store:
        yield store


def _show(
    folder: Path, read: Callable[[Store], T], display: Callable[[T], None], *, as_json: bool
) -> None:
    """Show what is read from a store, to a person or as JSON."""
    with _opened(folder) as store:
        found = read(store)
    if as_json:
        screen.say_json(found)
    else:
        display(found)


def identity(
    folder: StoreFolder,
    rotate: Annotated[
        Path | None,
        typer.Option(help="Make a new key, and write what the other sites need to a file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a site's public key, which the other sites pin.

    A store is made if there is none. With --rotate the store gets a new key,
    which the old one signs; the other sites pin it with `federate trust`. The
    new key is used from the next exchange on, and the current commit is gone
    on with under the old one. Until then --rotate writes the same again.

    Example: fedcommons federate identity /srv/hospital-a/store
    """
    need_flower()
    from fedcommons.federate.site.rotation import rotate_identity

    with _opened(folder, create=rotate is None) as store:
        if rotate is not None:
            rotate_identity(store, rotate)
        name = store.identity.name
    if as_json:
        screen.say_json({"identity": name})
    else:
        screen.say(name)


def trust(
    statement: Annotated[Path, typer.Argument(help="The file that `identity --rotate` wrote.")],
    pinned: Annotated[
        Path, typer.Argument(help="Your peers.toml; or the store, if its peers are first-use.")
    ],
    as_json: AsJson = False,
) -> None:
    """Pin the new key of a site that has replaced its key.

    The statement must be signed by the key that is pinned for the site, so it
    may come by any way. The old key stays good for what was begun under it.

    Example: fedcommons federate trust hospital-b.rotated peers.toml
    """
    need_flower()
    from fedcommons.federate.site.rotation import read_statement, trust_in_file, trust_in_store

    rotations = read_statement(statement)
    if pinned.is_dir():
        with _opened(pinned) as store:
            site = trust_in_store(store, rotations)
    else:
        site = trust_in_file(pinned, rotations)
    if as_json:
        screen.say_json({"site": site, "identity": rotations.newest})
    elif site is None:
        screen.say(f"pinned already: {rotations.newest}")
    else:
        screen.say(f"{site} is pinned: {rotations.newest}")


def status(
    folder: Annotated[Path, typer.Argument(help="A site's store, or the server's state-dir.")],
    as_json: AsJson = False,
) -> None:
    """Show a site's commit and the examples that it holds.

    The whole store is read, so damage is noticed. Of a server's folder: who was
    asked, who answered in time, and who was late by how much, without locking it.

    Example: fedcommons federate status /srv/hospital-a/store
    """
    need_flower()
    if (folder / "format.json").exists():
        federate_server.show_status(folder, as_json=as_json)
        return
    from fedcommons.federate.site.status import status_of

    _show(folder, status_of, print_status, as_json=as_json)


def print_status(found: dict[str, Any]) -> None:
    for name, value in found.items():
        if not isinstance(value, dict):
            screen.say(f"{name.replace('_', ' '):24} {'-' if value is None else value}")
    for sender, n in found.get("held_from_others", {}).items():
        screen.say(f"{'held from ' + sender:24} {n}")
    for rule, value in found.get("policy", {}).items():
        screen.say(f"{'policy: ' + rule:24} {_in_words(value)}")


def _in_words(rule: Any) -> str:
    if isinstance(rule, bool):
        return "yes" if rule else "no"
    return str(rule) if isinstance(rule, int) else ", ".join(rule) or "any"


def approve(
    folder: StoreFolder,
    exchange: Annotated[
        int | None, typer.Option(help="The number of the exchange; by default the next.")
    ] = None,
    change: Annotated[
        bool, typer.Option("--change", help="Instead: answer after the next change of the commit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let this site take part in one more exchange.

    The first needs no approval, unless the policy says otherwise. What was
    given to others before stays with them. With --change the site answers after
    one change of the commit that is about fewer examples than min-change.

    Example: fedcommons federate approve /srv/hospital-a/store
    """
    need_flower()
    from fedcommons.federate.site.given import NEXT

    if change:
        if exchange is not None:
            raise ArgumentError("either --exchange or --change must be given, got both")
        with _opened(folder) as store:
            store.changes.approve()
        if as_json:
            screen.say_json({"approved": ["change"]})
        else:
            screen.say(
                "the next change of the commit is approved, however few examples it is about"
            )
        return
    number = NEXT
    if exchange is not None:
        number = checks.integer("exchange", exchange, low=1)
    with _opened(folder) as store:
        store.given.approve(number)
        approved = store.given.approved
    if as_json:
        screen.say_json({"approved": [n or "next" for n in approved]})
    else:
        screen.say(f"{'the next exchange' if not number else f'exchange {number}'} is approved")


def recover(
    folder: StoreFolder,
    commit: Annotated[
        str,
        typer.Option(help="The right commit's digest, as `federate status` shows it elsewhere."),
    ],
    as_json: AsJson = False,
) -> None:
    """Bring a store back that is under a commit which somebody invented.

    Ask the operators of other sites which commit theirs are under, in another
    way than through the server. The store accepts that one when the server
    next sends it, although it does not follow, and loses nothing else.

    Example: fedcommons federate recover /srv/hospital-a/store --commit 5f3a...
    """
    need_flower()
    with _opened(folder) as store:
        store.recovery.begin(commit)
    if as_json:
        screen.say_json({"recovers_to": commit})
    else:
        screen.say(f"commit {commit[:16]}... is accepted when the server sends it")


def ledger(
    folder: StoreFolder,
    csv: Annotated[
        Path | None, typer.Option(help="Write it to this file as CSV, for an audit; - is stdout.")
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="In the CSV: a line for each example that went.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List all that was sent, received, withdrawn and deleted, oldest first.

    With --csv and --rows there is a line for each example: the row of your data
    file, its share number, who got it, on what ground, and the digest of the
    receipt. Of what others sent, their share numbers. All of the store is read.

    Example: fedcommons federate ledger /srv/store --csv audit.csv --rows
    """
    need_flower()
    from fedcommons.federate.site.status import ledger_of

    if csv is not None and as_json:
        raise ArgumentError("either --csv or --json must be given, got both")
    if rows and csv is None:
        raise ArgumentError("--rows must go with --csv")
    if csv is not None:
        _write_ledger(folder, csv, rows=rows)
        return
    _show(folder, ledger_of, _print_ledger, as_json=as_json)


def _write_ledger(folder: Path, path: Path, *, rows: bool) -> None:
    from fedcommons.federate.protocol import durable
    from fedcommons.federate.site.ledger_csv import write_csv

    with _opened(folder) as store:
        store.check()  # before the first line
        if path == Path("-"):
            write_csv(store, sys.stdout.buffer, rows=rows)
        else:
            durable.write_file(path, lambda out: write_csv(store, out, rows=rows), "ledger.csv")
            screen.say(f"{path} is written")


def _print_ledger(entries: list[dict[str, Any]]) -> None:
    table = Table()
    for column in ("time", "event", "epoch", "peer", "examples", "bytes"):
        table.add_column(column, justify="right" if column in ("examples", "bytes") else "left")
    for entry in entries:
        when = datetime.datetime.fromtimestamp(entry["time"], datetime.UTC)
        table.add_row(
            f"{when:%Y-%m-%d %H:%M:%S}Z",
            screen.words(entry["event"]),
            str(entry["epoch"]),
            screen.words(entry["peer"]),
            str(entry["examples"]),
            str(entry["bytes"]),
        )
    Console().print(table)


def withdraw(
    folder: StoreFolder,
    rows: Annotated[str, typer.Option(help="Row numbers in the data file, from 0: 17,42.")] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Withdraw everything and leave the federation.")
    ] = False,
    as_offered: Annotated[
        bool,
        typer.Option("--as-offered", help="Rows of the file as it was offered, if it changed."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw examples: nobody trains on them any more, and holders delete them.

    This takes effect in the next round that this site takes part in.

    Example: fedcommons federate withdraw /srv/hospital-a/store --rows 17,42
    """
    need_flower()
    if bool(rows) == everything:
        raise ArgumentError("either --rows or --all must be given")
    numbers = None if everything else _row_numbers(rows)
    with _opened(folder) as store:
        if numbers is not None:
            n = store.withdrawals.withdraw(numbers, as_offered=as_offered)
            said = "1 example is withdrawn" if n == 1 else f"{n} examples are withdrawn"
        elif store.federation is None:
            raise StoreError(f"store {folder} was never in a federation: nothing to withdraw")
        else:
            store.withdrawals.withdraw_everything()
            said = "everything is withdrawn"
    when = "from the next round that this site takes part in"
    if as_json:
        screen.say_json({"withdrawn": said})
    else:
        screen.say(f"{said}, {when}")


def _row_numbers(text: str) -> IntArray:
    import numpy as np

    try:
        numbers = np.array([int(row) for row in text.split(",") if row], np.int64)
    except (ValueError, OverflowError):
        raise ArgumentError(f"rows must be integers separated by commas, got {text!r}") from None
    if not len(numbers):
        raise ArgumentError(f"rows must name at least one row, got {text!r}")
    return numbers
