"""What the server keeps on the disk, in its state-dir: exchange, commits, checkpoints."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.errors import FederationError
from fedcommons.federate import durable
from fedcommons.federate.records import Commit, Epoch
from fedcommons.federate.site import Receipt
from fedcommons.npz import read_npz


@dataclass(frozen=True, slots=True)
class Exchange:
    """An epoch and the receipts that came back so far."""

    epoch: Epoch
    receipts: tuple[Receipt, ...]


class ServerState:
    """The server's folder, held for this process alone.

    exchange.json            the last epoch and its receipts
    commits/00001-000.json   every commit: epoch and serial
    <training>/              checkpoint.npz, and the results of one training
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_absolute():
            raise FederationError(f"state-dir must be an absolute path, got {folder}")
        self.folder = folder
        self._lock = durable.Lock(folder)
        (folder / "commits").mkdir(exist_ok=True)

    def close(self) -> None:
        self._lock.release()

    def exchange(self) -> Exchange | None:
        content = self._read(self.folder / "exchange.json")
        if content is None:
            return None
        receipts = tuple(
            Receipt(**{**entry, "signature": bytes.fromhex(entry["signature"])})
            for entry in content["receipts"]
        )
        return Exchange(Epoch.decode(content["epoch"].encode()), receipts)

    def save_exchange(self, exchange: Exchange, name: str) -> None:
        receipts = [{**asdict(r), "signature": r.signature.hex()} for r in exchange.receipts]
        content = {"epoch": exchange.epoch.encode().decode(), "receipts": receipts}
        durable.write_file(self.folder / "exchange.json", json.dumps(content).encode(), name)

    def commit(self) -> Commit | None:
        """The newest commit."""
        paths = sorted((self.folder / "commits").glob("[0-9]*.json"))
        return Commit.decode(paths[-1].read_bytes()) if paths else None

    def save_commit(self, commit: Commit) -> None:
        name = f"{commit.number:05d}-{commit.serial:05d}.json"
        durable.write_file(self.folder / "commits" / name, commit.encode(), "server.commit")

    def checkpoint(self, training: str) -> dict[str, Any] | None:
        """Arrays and notes of the last finished round of a training."""
        path = self.folder / training / "checkpoint.npz"
        if not path.exists():
            return None
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            names = file.files
        arrays: dict[str, Any] = dict(read_npz(path, names, FederationError))
        return {**arrays, "notes": json.loads(arrays["notes"].tobytes())}

    def newest_checkpoint(self, prefix: str) -> dict[str, Any] | None:
        """The checkpoint that was written last, of the trainings whose name begins so."""
        paths = self.folder.glob(f"{prefix}*/checkpoint.npz")
        newest = max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)
        return None if newest is None else self.checkpoint(newest.parent.name)

    def save_checkpoint(
        self, training: str, notes: dict[str, Any], **arrays: npt.NDArray[Any]
    ) -> None:
        (self.folder / training).mkdir(exist_ok=True)
        buffer = io.BytesIO()
        encoded = np.frombuffer(json.dumps(notes, allow_nan=False).encode(), np.uint8)
        np.savez(buffer, allow_pickle=False, notes=encoded, **arrays)
        path = self.folder / training / "checkpoint.npz"
        durable.write_file(path, buffer.getvalue(), "server.checkpoint")

    def _read(self, path: Path) -> Any:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise FederationError(f"{path} cannot be read: {error}") from None
