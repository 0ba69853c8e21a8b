"""What the server keeps on disk, in its state-dir: exchange, commits, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.receipts import Receipt
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.protocol.refusals import Refusal
from fedcommons.federate.server.checkpoints import Checkpoint, read_checkpoint
from fedcommons.federate.server.commit_files import commit_name, order_of, read_commit
from fedcommons.federate.server.formats import STATE_DIR
from fedcommons.federate.server.question_numbers import QuestionNumbers
from fedcommons.json_file import read_json

logger = shown.logger(__name__)


@dataclass(frozen=True, slots=True)
class Exchange:
    """An epoch and the receipts that came back so far."""

    epoch: Epoch
    receipts: tuple[Receipt, ...]


def version_of(folder: Path) -> int:
    """The version of a state-dir's format; 0 is from before there were numbers."""
    path = folder / "format.json"
    try:
        return int(read_json(path, FederationError)["version"])
    except FileNotFoundError:
        is_new = not any(folder.rglob("*.json"))
        return STATE_DIR.version if is_new else 0
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise FederationError(f"{path} is damaged: {error}") from None


class ServerState:
    """The server's folder, held for this process alone.

    format.json               the version of this layout, see `formats`
    exchange.json             the last epoch and its receipts
    given-up.json             the last epoch that was begun and will not be gone on with
    questions.json            up to where the numbers of questions may have been used
    commits/00001-00000.json  every commit: epoch and serial
    <training>/               one training, see `training_folder`
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_absolute():
            raise FederationError(f"state-dir must be an absolute path, got {folder}")
        self.folder = folder
        self._lock = durable.Lock(folder)
        try:
            durable.make_folder(folder / "commits")
            self._bring_up_to_date()
            self.questions = QuestionNumbers(folder)
        except BaseException:
            self.close()
            raise

    def _bring_up_to_date(self) -> None:
        """Upgrade a folder that an older version wrote; refuse one of a newer version."""
        path, found = self.folder / "format.json", version_of(self.folder)
        STATE_DIR.upgraded(self.folder, found, self.folder)
        if found != STATE_DIR.version or not path.exists():
            content = {"format": "fedcommons.server-state", "version": STATE_DIR.version}
            durable.write_file(path, json.dumps(content).encode(), "server.format")

    def close(self) -> None:
        self._lock.release()

    def exchange(self) -> Exchange | None:
        path = self.folder / "exchange.json"
        try:
            content = read_json(path, FederationError)
            receipts = tuple(
                Receipt(**{**entry, "signature": bytes.fromhex(entry["signature"])})
                for entry in content["receipts"]
            )
            return Exchange(Epoch.decode(content["epoch"].encode()), receipts)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, LookupError, AttributeError, Refusal) as error:
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
            return int(read_json(path, FederationError))
        except FileNotFoundError:
            return 0
        except (ValueError, TypeError, OverflowError) as error:
            raise FederationError(f"{path} is damaged: {error}") from None

    def names_of_sites(self) -> set[str]:
        """Of all that ever were in a commit."""
        commits = (read_commit(path) for path in self._commit_paths())
        return {member.site for commit in commits for member in commit.members}

    def commit(self) -> Commit | None:
        """The newest commit."""
        newest = max(self._commit_paths(), key=order_of, default=None)
        return None if newest is None else read_commit(newest)

    def _commit_paths(self) -> list[Path]:
        return list((self.folder / "commits").glob("[0-9]*-*.json"))

    def commit_of(self, order: tuple[int, int]) -> Commit | None:
        """An earlier commit."""
        path = self._commit_path(order)
        return read_commit(path) if path.exists() else None

    def save_commit(self, commit: Commit) -> None:
        durable.write_file(self._commit_path(commit.order), commit.record, "server.commit")

    def _commit_path(self, order: tuple[int, int]) -> Path:
        return self.folder / "commits" / commit_name(order)

    def checkpoint(self, training: str) -> Checkpoint | None:
        """The state of a training after its last finished round."""
        return read_checkpoint(self.folder / training / "checkpoint.npz")

    def newest_checkpoint(
        self, where: Callable[[Checkpoint], bool] = lambda _checkpoint: True
    ) -> Checkpoint | None:
        """The checkpoint that was written last, of all trainings.

        Those that are not as `where` wants them are passed over, and so are damaged ones: they are
        read here for what they say of the sites alone.
        """
        paths = self.folder.glob("training-*/checkpoint.npz")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True):
            try:
                saved = self.checkpoint(path.parent.name)
            except FederationError as error:
                logger.warning("what it says of the sites is not used: %s", error)
                continue
            if saved is not None and where(saved):
                return saved
        return None
