"""What the server keeps on the disk, in its state-dir: exchange, commits, checkpoints."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.common.logger import log

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.receipts import Receipt
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.protocol.refusals import Refusal
from fedcommons.npz import write_npz

ARRAYS = ("model", "missed", "rounds", "run")  # of a checkpoint
NOTES = (
    "round",
    "commit",
    "initial",
    "about",
    "straggler_prob",
    "owner_share",
    "rehearsed",
    "warmed",
    "layout",
    "history",
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """An epoch and the receipts that came back so far."""

    epoch: Epoch
    receipts: tuple[Receipt, ...]


class ServerState:
    """The server's folder, held for this process alone.

    exchange.json             the last epoch and its receipts
    given-up.json             the last epoch that was begun and will not be gone on with
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

    def give_up(self, epoch: int) -> None:
        """Drop the exchange, and remember its number: sites may hold what it brought."""
        number = json.dumps(epoch).encode()
        durable.write_file(self.folder / "given-up.json", number, "server.given_up")
        durable.remove_file(self.folder / "exchange.json", "server.dropped")

    @property
    def given_up(self) -> int:
        """The number of the last epoch that was given up; 0 if none was."""
        path = self.folder / "given-up.json"
        try:
            return int(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, TypeError) as error:
            raise FederationError(f"{path} is damaged: {error}") from None

    def names_of_sites(self) -> set[str]:
        """Of all that ever were in a commit."""
        commits = (self._decoded(path) for path in self._commit_paths())
        return {member.site for commit in commits for member in commit.members}

    def commit(self) -> Commit | None:
        """The newest commit."""
        newest = max(self._commit_paths(), key=_order, default=None)
        return None if newest is None else self._decoded(newest)

    def _commit_paths(self) -> list[Path]:
        return list((self.folder / "commits").glob("[0-9]*-*.json"))

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

        Those whose notes are not as `where` wants them are passed over, and so are damaged ones:
        what a training goes on from is read by `checkpoint`.
        """
        paths = self.folder.glob(f"{prefix}*/checkpoint.npz")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            try:
                saved = self.checkpoint(path.parent.name)
            except FederationError as error:
                log(WARNING, "what it says of the sites is not used: %s", error)
                continue
            if saved is not None and where(saved["notes"]):
                return saved
        return None

    def save_checkpoint(
        self, training: str, notes: dict[str, Any], **arrays: npt.NDArray[Any]
    ) -> None:
        durable.make_folder(self.folder / training)
        buffer = io.BytesIO()
        encoded = np.frombuffer(json.dumps(notes).encode(), np.uint8)
        write_npz(buffer, {"notes": encoded, **arrays})
        path = self.folder / training / "checkpoint.npz"
        durable.write_file(path, buffer.getbuffer(), "server.checkpoint")


def _order(path: Path) -> tuple[int, int]:
    number, serial = path.stem.split("-")
    return int(number), int(serial)
