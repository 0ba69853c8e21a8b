"""The errors that fedcommons raises on purpose.

Every one says what was wrong, which rule it broke and what was found. The command line turns each
class into an exit code (`fedcommons.cli.exit_codes`).
"""


class FedcommonsError(Exception):
    """Any error that fedcommons raises on purpose."""


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
