"""An answer that took long, kept until the server has it, whatever dies meanwhile.

A site keeps one, the last. It is a gradient of what the site held, so it is deleted when any of
that is withdrawn, or is not the site's any more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from fedcommons.errors import StoreError
from fedcommons.federate.site.database import Database
from fedcommons.federate.site.store_format import row_digest
from fedcommons.npz import unpack_npz, write_npz

PART = 16 << 20  # bytes


class KeptAnswer:
    """The answer in a store, by the training and the question that it is to."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def training(self) -> str:
        """The training that the answer belongs to; empty if none is kept."""
        rows = self._database.run("SELECT training FROM kept LIMIT 1")
        return str(rows[0][0]) if rows else ""

    def keep(
        self,
        training: str,
        question: int,
        about: Mapping[str, bytes | int | float],
        answer: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        """Keep this one, in the place of any other; `about` goes with it."""
        buffer = io.BytesIO()
        write_npz(buffer, dict(answer))
        content, fields = buffer.getbuffer(), json.dumps({k: _told(v) for k, v in about.items()})
        with self._database.writing("store.kept"):
            self.delete()
            for part, start in enumerate(range(0, len(content), PART)):
                some = bytes(content[start : start + PART])
                self._database.put("kept", part, training, question, fields, some)

    def find(
        self, training: str, question: int
    ) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
        """What was kept with the answer to a question, and the answer; None if it is not here."""
        rows = self._rows()
        if not rows or rows[0][1:3] != (training, question):
            return None
        about = {name: _read(value) for name, value in json.loads(rows[0][3]).items()}
        content = io.BytesIO(b"".join(row[4] for row in rows))
        return about, unpack_npz(content, "kept", None, StoreError)

    def check(self) -> None:
        """Raise if what is kept is damaged."""
        self._rows()

    def _rows(self) -> list[tuple[Any, ...]]:
        rows = self._database.run("SELECT * FROM kept ORDER BY part")
        if [row[0] for row in rows] != list(range(len(rows))) or any(
            row[-1] != row_digest("kept", *row[:-1]) for row in rows
        ):
            raise StoreError(f"store {self._database.folder} is damaged: table kept")
        return rows

    def drop(self, training: str) -> None:
        """The server has what was answered in this training."""
        if training and self.training == training:
            with self._database.writing("store.acknowledged"):
                self.delete()

    def delete(self) -> None:
        """Inside a transaction."""
        self._database.run("DELETE FROM kept")


def _told(value: bytes | int | float) -> int | float | str:
    return value.hex() if isinstance(value, bytes) else value


def _read(value: int | float | str) -> bytes | int | float:
    return bytes.fromhex(value) if isinstance(value, str) else value
