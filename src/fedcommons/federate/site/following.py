"""Whether a commit may follow the one that a site is under, and whether what it claims happened.

Nobody signs commits. So a site believes of a new one what it can check: that it names the site's
present commit among those that it follows, step by step; that owners signed what it says they
withdrew; that the site received what it is said to have received; and that there is a receipt,
named by the commit, for all that it is said to have sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcommons.federate.protocol import receipt_tree
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.receipts import Receipt, n_assigned
from fedcommons.federate.protocol.records import MOST_AHEAD
from fedcommons.federate.protocol.refusals import CommitRefused
from fedcommons.federate.protocol.withdrawals import is_owners_word
from fedcommons.federate.site.decoded import decoded_epoch
from fedcommons.federate.site.store import Store


@dataclass(frozen=True, slots=True)
class Proof:
    """What shows a site that its own deliveries happened.

    Attributes:
        receipts: those for what the site sent in the commit's epoch.
        path: from these to the root that the commit names.
    """

    receipts: Sequence[Receipt] = ()
    path: Sequence[bytes] = ()


def check_follows(store: Store, commit: Commit, current: Commit | None) -> None:
    """Refuse a commit that contradicts what this site knows, or is not new."""
    steps = commit.steps_from(current) if current else None
    if current and commit.epoch == current.epoch:
        if steps is None or commit.serial != current.serial + steps:
            raise CommitRefused("the commit does not follow the one that the site is under")
        if not commit.may_follow(current):
            raise CommitRefused("the commit brings back what an earlier one removed")
        return
    number, digest = store.epochs.highest()
    if (current and commit.number <= current.number) or commit.number < number:
        raise CommitRefused("the commit is of an epoch before the one the site took part in")
    if commit.number == number and bytes.fromhex(commit.epoch) != digest:
        raise CommitRefused("the commit is of another epoch than the one the site took part in")
    if commit.number > number + MOST_AHEAD or commit.serial > MOST_AHEAD:
        raise CommitRefused("the commit is too far ahead of what the site has seen")
    epoch = store.epochs.record(bytes.fromhex(commit.epoch))
    if epoch:
        if Commit.of(decoded_epoch(epoch), (), receipts=commit.receipts).facts != commit.facts:
            raise CommitRefused("the commit contradicts the record of its epoch")
    elif current and steps is None:
        raise CommitRefused("the commit does not follow the one that the site is under")


def check_withdrawals(commit: Commit, current: Commit | None) -> None:
    """Refuse a commit by which somebody withdrew more than before without having signed it.

    Whoever left has no examples any more; what its own word is worth there says `changes`.
    """
    same_epoch = current is not None and current.epoch == commit.epoch
    known = len(current.members) if same_epoch and current else 0
    for place, member in enumerate(commit.members):
        now = commit.withdrawn[place], commit.withdrawn_private[place]
        before: tuple[tuple[int, ...], int] = (), 0
        if current and place < known:
            before = current.withdrawn[place], current.withdrawn_private[place]
        if commit.present[place] and now != before and not is_owners_word(commit, place):
            raise CommitRefused(f"{member.site} did not sign what it is said to have withdrawn")


def check_deliveries(
    store: Store, commit: Commit, me: int, current: Commit | None, proof: Proof
) -> None:
    """Refuse a commit by which this site sent or received what it did not."""
    _check_received(store, commit, me, current)
    if current and current.epoch == commit.epoch:
        return  # deliveries only become fewer, and the root is the same
    sent = {
        commit.members[recipient].identity for sender, recipient in commit.pairs if sender == me
    }
    record = store.epochs.record(bytes.fromhex(commit.epoch))
    if not record:
        if sent:
            raise CommitRefused("the site took no part in the exchange that it is said to be in")
        return
    epoch, identity = decoded_epoch(record), commit.members[me].identity
    shown = [r for r in proof.receipts if r.sender == identity and r.is_signed(epoch)]
    if not sent <= {receipt.recipient for receipt in shown}:
        raise CommitRefused("there is no receipt for something that the site is said to have sent")
    leaf = receipt_tree.leaf_of(epoch.digest, shown)
    root = bytes.fromhex(commit.receipts)
    if commit.pairs and not receipt_tree.leads_to(root, leaf, me, len(commit.roster), proof.path):
        raise CommitRefused("the commit does not name the receipts for what the site sent")


def _check_received(store: Store, commit: Commit, me: int, current: Commit | None) -> None:
    same_epoch = current is not None and current.epoch == commit.epoch
    for sender, recipient in commit.pairs:
        if recipient != me:
            continue
        gone = current.withdrawn[sender] if same_epoch and current else ()
        was_mine = commit.draw.recipients_of(sender, np.array(gone, np.int64)) == me
        here = store.received.n_examples(
            bytes.fromhex(commit.epoch), commit.members[sender].identity
        )
        if here != n_assigned(commit.draw, sender, me) - int(was_mine.sum()):
            raise CommitRefused("the site does not have all that the commit gives it")


def check_still_here(store: Store, commit: Commit, me: int) -> None:
    """Refuse to go back to a commit that gives this site examples which it has deleted since."""
    epoch = bytes.fromhex(commit.epoch)
    for sender, recipient in commit.pairs:
        if recipient == me:
            chunks = store.received.chunks(epoch, commit.members[sender].identity)
            here = np.concatenate([np.empty(0, np.int64), *(part.numbers for part in chunks)])
            given = np.setdiff1d(commit.draw.assigned(sender, me), commit.withdrawn[sender])
            if len(np.setdiff1d(given, here)):
                raise CommitRefused(
                    "the site has deleted what the commit gives it: a new exchange is needed"
                )
