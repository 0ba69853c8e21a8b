"""A federation as its server knows it in one run."""

from __future__ import annotations

from pathlib import Path

from fedcommons import shown
from fedcommons.errors import FederationError
from fedcommons.federate.protocol import receipt_tree
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.receipts import Receipt
from fedcommons.federate.server import claims
from fedcommons.federate.server.meeting import Meeting
from fedcommons.federate.server.quarantine import Quarantine
from fedcommons.federate.server.state import Exchange, ServerState

logger = shown.logger(__name__)


class ServerFederation:
    """A federation as its server knows it in one run: its commit, its disk, who is connected."""

    def __init__(self, name: str, state_dir: Path, run_id: int) -> None:
        self.name = name
        self.meeting = Meeting(name, run_id)
        self.leaving: frozenset[str] = frozenset()  # names of sites that left for good
        self.most_examples = claims.MOST_EXAMPLES  # that a site may claim without approval
        self._leaves: tuple[bytes, list[bytes]] = b"", []  # of the tree of receipts, by epoch
        self.state = ServerState(state_dir)
        try:
            self.quarantine = Quarantine(self.state.folder)
            self.commit_or_none = self.state.commit()
            self.exchange = self.state.exchange()
            self.meeting.committed = self.commit_or_none
            for known in (self.commit_or_none, self.exchange and self.exchange.epoch):
                if known and known.federation != name:
                    raise FederationError(
                        f"state-dir {state_dir} belongs to the federation {known.federation!r}, "
                        f"this is {name!r}"
                    )
        except BaseException:
            self.close()
            raise

    @property
    def commit(self) -> Commit:
        """The commit that all train by."""
        if self.commit_or_none is None:
            raise FederationError("the federation has no commit yet: share first")
        return self.commit_or_none

    def record(self, commit: Commit) -> None:
        """Make a commit the one that all train by."""
        self.state.save_commit(commit)
        self.commit_or_none = commit
        self.meeting.committed = commit

    @property
    def unfinished(self) -> Exchange | None:
        """The exchange that was begun and not committed, if there is one."""
        last = self.commit_or_none.number if self.commit_or_none else 0
        return self.exchange if self.exchange and self.exchange.epoch.number > last else None

    def give_up(self, epoch: int) -> None:
        """Drop the exchange: up to this epoch, nothing that is not committed will be."""
        self.state.give_up(epoch)
        self.exchange = None

    def drop_unfinished(self) -> None:
        """Give up an exchange that was begun and will not be gone on with."""
        if self.unfinished is not None:
            logger.info("the exchange of epoch %d is given up", self.unfinished.epoch.number)
            self.give_up(self.unfinished.epoch.number)

    @property
    def committed_exchange(self) -> Exchange | None:
        """The exchange that the commit came from, if the server still has it."""
        exchange = self.exchange
        is_it = exchange is not None and exchange.epoch.digest.hex() == self.commit.epoch
        return exchange if is_it else None

    def receipts(self, sender: str) -> list[Receipt]:
        """The receipts for what a site sent in the committed epoch."""
        if self.committed_exchange is None:
            return []
        return [r for r in self.committed_exchange.receipts if r.sender == sender]

    def path_to_receipts(self, sender: str) -> list[bytes]:
        """What shows that the commit names the receipts for what a site sent."""
        exchange = self.committed_exchange
        roster = [member.identity for member in self.commit.roster]
        if exchange is None or sender not in roster:
            return []
        if self._leaves[0] != exchange.epoch.digest:  # as many receipts as pairs: once is enough
            leaves = receipt_tree.leaves_of(exchange.epoch.digest, roster, exchange.receipts)
            self._leaves = exchange.epoch.digest, leaves
        return receipt_tree.path_of(self._leaves[1], roster.index(sender))

    def close(self) -> None:
        """Let another run have the state-dir."""
        self.state.close()
