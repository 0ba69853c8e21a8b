"""What the process returns, for every kind of end."""

from __future__ import annotations

from fedcommons.errors import ArgumentError, DataError, FedcommonsError, PlacementFileError

OK = 0
UNEXPECTED = 1
INTERRUPTED = 130

EXIT_CODES: dict[type[FedcommonsError], int] = {
    ArgumentError: 2,
    DataError: 3,
    PlacementFileError: 4,
}


def exit_code(error: FedcommonsError) -> int:
    for kind, code in EXIT_CODES.items():
        if isinstance(error, kind):
            return code
    return UNEXPECTED
