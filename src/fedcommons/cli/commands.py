"""Every command of `fedcommons`, under one name."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from fedcommons import __version__
from fedcommons.cli import exit_codes, federate, plan, report, reproduce, screen, simulate, watch
from fedcommons.cli.exit_codes import InterruptedCommand


class Interruptible(TyperGroup):
    """A group of commands that lets `main` handle Ctrl-C; typer would end without a message."""

    # The context is click's; since 0.26 typer carries a click of its own and brings no other.
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedCommand from None


app = typer.Typer(
    cls=Interruptible,
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
app.command("watch")(watch.watch)
app.command("plan")(plan.plan)
app.add_typer(federate.app, name="federate")


def _print_version(wanted: bool) -> None:
    if wanted:
        screen.say(f"fedcommons {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass
