"""What the process returns for each way in which a command ends."""

from __future__ import annotations

from fedcommons.errors import (
    ArgumentError,
    DataError,
    FedcommonsError,
    FederationError,
    PlacementFileError,
    ResultsError,
    StoreError,
    StudyError,
    UnsupportedSystemError,
)

UNEXPECTED = 1
OUT_OF_MEMORY = 9
INTERRUPTED = 130

EXIT_CODES: dict[type[FedcommonsError], int] = {
    ArgumentError: 2,
    DataError: 3,
    PlacementFileError: 4,
    StudyError: 5,
    ResultsError: 6,
    StoreError: 7,
    FederationError: 8,
    UnsupportedSystemError: 10,
}

HELP = (
    "Exit codes: 0 done, 1 unexpected error, 2 wrong argument, 3 data file, 4 placement file, "
    "5 study file, 6 results folder, 7 site's store, 8 federation, 9 out of memory, "
    "10 unsupported operating system, 130 interrupted."
)


class InterruptedCommand(Exception):  # noqa: N818 - it is no error
    """A command was interrupted before it could say so itself."""


def exit_code(error: FedcommonsError) -> int:
    for kind, code in EXIT_CODES.items():
        if isinstance(error, kind):
            return code
    return UNEXPECTED
