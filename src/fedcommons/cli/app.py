"""The `fedcommons` command.

The commands are imported inside `main`: that takes a second or two, and Ctrl-C during it should
end in a message too.
"""

from __future__ import annotations

import signal
import sys

from fedcommons import shown
from fedcommons.cli import exit_codes
from fedcommons.errors import FedcommonsError


def _as_interrupt(_signum: int, _frame: object) -> None:
    """Treat a request to end like Ctrl-C: what is done is kept."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command; a user's mistake ends in a message and an exit code, not a traceback."""
    try:
        signal.signal(signal.SIGTERM, _as_interrupt)
        from fedcommons.cli.commands import app

        app()
    except FedcommonsError as error:
        print(f"fedcommons: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        sys.exit(exit_codes.exit_code(error))
    except MemoryError as error:
        what = shown.plain(error) or "nothing is left"
        print(f"fedcommons: out of memory: {what}", file=sys.stderr)
        sys.exit(exit_codes.OUT_OF_MEMORY)
    except (KeyboardInterrupt, exit_codes.InterruptedCommand):
        print("fedcommons: interrupted", file=sys.stderr)
        sys.exit(exit_codes.INTERRUPTED)
