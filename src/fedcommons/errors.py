"""The errors that fedcommons raises on purpose.

Every one says what was wrong, which rule it broke and what was found. The command line turns each
class into an exit code (`fedcommons.cli.exit_codes`).
"""

from __future__ import annotations

from typing import Self

from fedcommons import shown


class FedcommonsError(Exception):
    """Any error that fedcommons raises on purpose.

    What it says may quote names and values of others, and anybody may print it: its text is safe to
    show, see `fedcommons.shown`.
    """

    def __str__(self) -> str:
        return shown.plain(super().__str__())

    def showing(self, output: str) -> Self:
        """The error with a note of what another program printed, line by line."""
        self.add_note("\n".join(f"  | {shown.plain(line)}" for line in output.splitlines()))
        return self


class ArgumentError(FedcommonsError, ValueError):
    """An argument breaks its rule."""


class DataError(FedcommonsError):
    """A user's data file is missing, unreadable, or not what it should be."""


class PlacementFileError(FedcommonsError):
    """A placement file is missing, corrupt, or was not written by fedcommons."""


class StudyError(FedcommonsError):
    """A study file is missing, unreadable, or says something that cannot be run."""


class ResultsError(FedcommonsError):
    """A results folder cannot be written, is damaged, or belongs to another study."""


class StoreError(FedcommonsError):
    """A site's store is missing, damaged, or belongs to another federation."""


class FederationError(FedcommonsError):
    """A federation cannot be set up or go on as asked."""


class UnsupportedSystemError(FedcommonsError, ImportError):
    """The operating system lacks something that is needed: Windows has no POSIX file locks."""
