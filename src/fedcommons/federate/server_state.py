"""What the server keeps on the disk, in its state-dir: exchange, commits, checkpoints."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import FederationError
from fedcommons.federate import durable
from fedcommons.federate.commits import Commit
from fedcommons.federate.receipts import Receipt
from fedcommons.federate.records import Epoch
from fedcommons.federate.refusals import Refusal

ARRAYS = ("model", "missed", "rounds")  # of a checkpoint
NOTES = ("round", "commit", "initial", "about", "rehearsed", "warmed", "layout", "history")


@dataclass(frozen=True, slots=True)
class Exchange:
    """An epoch and the receipts that came back so far."""

    epoch: Epoch
    receipts: tuple[Receipt, ...]


class ServerState:
    """The server's folder, held for this process alone.

    exchange.json             the last epoch and its receipts
    commits/00001-00000.json  every commit: epoch and serial
    <training>/               checkpoint.npz, and the results of one training
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_absolute():
            raise FederationError(f"state-dir must be an absolute path, got {folder}")
        self.folder = folder
        self._lock = durable.Lock(folder)
        durable.make_folder(folder / "commits")

    def close(self) -> None:
        self._lock.release()

    def exchange(self) -> Exchange | None:
        path = self.folder / "exchange.json"
        try:
            content = json.loads(path.read_bytes())
            receipts = tuple(
                Receipt(**{**entry, "signature": bytes.fromhex(entry["signature"])})
                for entry in content["receipts"]
            )
            return Exchange(Epoch.decode(content["epoch"].encode()), receipts)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, Refusal) as error:
            raise FederationError(f"{path} is damaged: {error}") from None

    def save_exchange(self, exchange: Exchange, name: str) -> None:
        receipts = [{**asdict(r), "signature": r.signature.hex()} for r in exchange.receipts]
        content = {"epoch": exchange.epoch.record.decode(), "receipts": receipts}
        durable.write_file(self.folder / "exchange.json", json.dumps(content).encode(), name)

    def drop_exchange(self) -> None:
        durable.remove_file(self.folder / "exchange.json", "server.dropped")

    def commit(self) -> Commit | None:
        """The newest commit."""
        known = {_order(path): path for path in (self.folder / "commits").glob("[0-9]*-*.json")}
        return self._decoded(known[max(known)]) if known else None

    def commit_of(self, order: tuple[int, int]) -> Commit | None:
        """An earlier commit."""
        path = self._commit_path(order)
        return self._decoded(path) if path.exists() else None

    def save_commit(self, commit: Commit) -> None:
        durable.write_file(self._commit_path(commit.order), commit.record, "server.commit")

    def _commit_path(self, order: tuple[int, int]) -> Path:
        number, serial = order
        return self.folder / "commits" / f"{number:05d}-{serial:05d}.json"

    @staticmethod
    def _decoded(path: Path) -> Commit:
        try:
            return Commit.decode(path.read_bytes())
        except (OSError, Refusal) as error:
            raise FederationError(f"{path} is damaged: {error}") from None

    def checkpoint(self, training: str) -> dict[str, Any] | None:
        """Arrays and notes of the last finished round of a training."""
        path = self.folder / training / "checkpoint.npz"
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                arrays: dict[str, Any] = {name: file[name] for name in file.files}
            notes = json.loads(arrays["notes"].tobytes())
            missing = {*ARRAYS, *NOTES} - set(arrays) - set(notes)
            if missing:
                raise KeyError(f"without {', '.join(sorted(missing))}")
            return {**arrays, "notes": notes}
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, LookupError, zipfile.BadZipFile) as error:
            raise FederationError(f"{path} is damaged: {error}") from None

    def newest_checkpoint(
        self, prefix: str, where: Callable[[dict[str, Any]], bool] = lambda _notes: True
    ) -> dict[str, Any] | None:
        """The checkpoint that was written last, of the trainings whose name begins so.

        Those whose notes are not as `where` wants them are passed over.
        """
        paths = self.folder.glob(f"{prefix}*/checkpoint.npz")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            saved = self.checkpoint(path.parent.name)
            if saved is not None and where(saved["notes"]):
                return saved
        return None

    def save_checkpoint(
        self, training: str, notes: dict[str, Any], **arrays: npt.NDArray[Any]
    ) -> None:
        durable.make_folder(self.folder / training)
        buffer = io.BytesIO()
        encoded = np.frombuffer(json.dumps(notes).encode(), np.uint8)
        np.savez(buffer, allow_pickle=False, notes=encoded, **arrays)
        path = self.folder / training / "checkpoint.npz"
        durable.write_file(path, buffer.getbuffer(), "server.checkpoint")


def _order(path: Path) -> tuple[int, int]:
    number, serial = path.stem.split("-")
    return int(number), int(serial)
