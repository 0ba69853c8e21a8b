"""Recorded absences: who answered in the rounds of a federation, from a file.

A `.csv`, `.npz` or `.parquet` table with a row for each round and a column for each client, 1 or
true where the client answered; or the `answers.parquet` of a federation's results.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.checks import BoolArray
from fedcommons.errors import DataError
from fedcommons.npz import read_npz
from fedcommons.parquet import read_parquet
from fedcommons.stragglers import Trace

WORDS = {"1": True, "true": True, "0": False, "false": False}
ARRAY = "answered"  # of an .npz file
OF_A_FEDERATION = ("round", "site", "answered")  # the columns of its answers.parquet


def digest(path: str) -> str:
    """The SHA-256 of the file."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"trace {path} cannot be read: {error.strerror}") from None


@functools.lru_cache(maxsize=16)
def load(path: str, wanted: str) -> Trace:
    """The recording in the file, whose digest must be the wanted one.

    Played from a random round on, and again from its beginning, so that runs differ.
    """
    if digest(path) != wanted:
        raise DataError(f"trace {path} must be as it was when the study was read; it has changed")
    readers = {".csv": _from_csv, ".npz": _from_npz, ".parquet": _from_parquet}
    reader = readers.get(Path(path).suffix.lower())
    if reader is None:
        raise DataError(f"trace {path} must be a file of the kind {', '.join(readers)}")
    mask = reader(path)
    if 0 in mask.shape:
        raise DataError(f"trace {path} must have at least one round and one client, got none")
    silent = np.flatnonzero(~mask.any(axis=0))
    if len(silent):
        raise DataError(
            f"trace {path} must have every client answer at least once: client {silent[0] + 1} "
            "of the recording never does, and what it alone holds could not be learnt"
        )
    return Trace(mask, random_start=True)


def _from_csv(path: str) -> BoolArray:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"trace {path} cannot be read as CSV: {error}") from None
    cells = [[cell.strip().lower() for cell in row] for row in rows]
    if cells and not any(cell in WORDS for cell in cells[0]):
        cells = cells[1:]  # the names of the clients
    for number, row in enumerate(cells, start=1):
        if len(row) != len(cells[0]):
            raise DataError(
                f"trace {path} must have as many clients in every round: {len(cells[0])} in the "
                f"first, {len(row)} in round {number}"
            )
        for cell in row:
            if cell not in WORDS:
                raise DataError(
                    f"trace {path} must be of 0 and 1, or false and true, got {cell!r} in round "
                    f"{number}"
                )
    return np.array([[WORDS[cell] for cell in row] for row in cells], np.bool_).reshape(
        len(cells), -1 if cells else 0
    )


def _from_npz(path: str) -> BoolArray:
    return _mask(path, read_npz(path, [ARRAY], DataError)[ARRAY])


def _from_parquet(path: str) -> BoolArray:
    table = read_parquet(Path(path), DataError)
    columns: dict[str, npt.NDArray[Any]] = {
        name: table.column(name).to_numpy() for name in table.column_names
    }
    if set(OF_A_FEDERATION) <= set(columns):
        if not np.all(columns.get("asked", True)):
            raise DataError(
                f"trace {path} must be of rounds that asked all sites: of who is not asked it does "
                "not say whether it was there"
            )
        return _of_a_federation(path, *(columns[name] for name in OF_A_FEDERATION))
    if not columns:
        return np.zeros((0, 0), np.bool_)
    return _mask(path, np.column_stack(list(columns.values())))


def _of_a_federation(
    path: str, rounds: npt.NDArray[Any], sites: npt.NDArray[Any], answered: npt.NDArray[Any]
) -> BoolArray:
    """Sites in the order of their names; one that is not part of a round did not answer in it."""
    names, client = np.unique(sites.astype(str), return_inverse=True)
    numbers, row = np.unique(rounds, return_inverse=True)
    mask = np.zeros((len(numbers), len(names)), np.bool_)
    mask[row, client] = _mask(path, answered[:, None])[:, 0]
    return mask


def _mask(path: str, values: npt.NDArray[Any]) -> BoolArray:
    number = values.dtype.kind in "biuf"
    if values.ndim != 2 or not number or not np.isin(values, (0, 1)).all():
        raise DataError(
            f"trace {path} must be of 0 and 1, or false and true, with a row for each round and a "
            f"column for each client, got {values.dtype} of shape {values.shape}"
        )
    return values.astype(np.bool_)
