"""The `fedcommons` command."""

from __future__ import annotations

import signal
import sys

import typer

from fedcommons import __version__
from fedcommons.cli import exit_codes, federate, plan, report, reproduce, simulate
from fedcommons.errors import FedcommonsError

app = typer.Typer(
    help="Federated learning with lopsided data and dropouts, from examples that their owners "
    "agreed to share.",
    epilog=exit_codes.HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("reproduce")(reproduce.reproduce)
app.command("simulate")(simulate.simulate)
app.command("report")(report.report)
app.command("plan")(plan.plan)
app.add_typer(federate.app, name="federate")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedcommons {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def _as_interrupt(_signum: int, _frame: object) -> None:
    """What asks the process to end is treated like Ctrl-C: what is done is kept."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command; a user's mistake ends in a message and an exit code, not a traceback."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        app()
    except FedcommonsError as error:
        typer.echo(f"fedcommons: {error}", err=True)
        sys.exit(exit_codes.exit_code(error))
