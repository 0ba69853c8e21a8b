"""What a site's operator can read from its store and its data file."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.records import LARGEST
from fedcommons.federate.site import labels, standardisation
from fedcommons.federate.site.decoded import decoded_epoch
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.policy import read_policy
from fedcommons.federate.site.store import Store


def status_of(store: Store) -> dict[str, Any]:
    """The site's commit and what it holds. All of the store is read; damage raises an error."""
    store.check()
    record = store.commit_record()[1]
    commit = Commit.decode(record) if record else None
    manifest, withdrawals = store.manifests.newest(), store.withdrawals
    live = manifest.live & ~withdrawals.gone(manifest) if manifest else np.empty(0, np.bool_)
    names = names_of(store)
    return {
        "federation": store.federation,
        "identity": store.identity.name,
        "epoch": commit.number if commit else None,
        "commit": commit.serial if commit else None,
        "code": commit.code if commit else None,
        "examples_of_all": commit.n_examples if commit else None,
        "own_examples": int(live.sum()) if manifest else None,
        "own_shareable": int((live & manifest.shareable).sum()) if manifest else None,
        "withdrawn": ("everything" if withdrawals.everything else len(withdrawals.fingerprints())),
        "withdrawn_not_in_commit": _not_in(commit, store) if commit else None,
        "exchanges": store.given.n_exchanges,
        "approved": ", ".join(str(n or "the next") for n in store.given.approved) or None,
        "change_approved": store.changes.approved,
        "digest": store.commit_record()[0].hex() or None,
        "keeps_an_answer_of": store.kept.training or None,
        "recovers_to": store.recovery.to or None,
        "restored_from": store.restored or None,
        "format": store.database.version,
        "policy": read_policy(store.folder).listed,
        "held_from_others": {names.get(s, s[:16]): n for s, n in store.received.counts()},
    }


def _not_in(commit: Commit, store: Store) -> int:
    """How many withdrawn examples a commit still has: the server has not asked yet, or waits."""
    own = [identity.name for identity in store.keyring.identities]
    for place, member in enumerate(commit.members):
        manifest = store.manifests.find(bytes.fromhex(member.manifest))
        if member.identity in own and commit.present[place] and manifest is not None:
            found = store.withdrawals.since(manifest.for_place(commit, place))
            n_listed = len(commit.withdrawn[place]) + commit.withdrawn_private[place]
            return max(len(found.numbers) + found.n_private - n_listed, 0)
    return 0


def summary_of(data: SiteData) -> dict[str, Any]:
    """What the data are, and a word of inputs on very different scales.

    All of them are read; a bad label or input raises an error.
    """
    data.check_labels()
    data.fingerprints(bytes(32))
    found: dict[str, Any] = {
        "examples": data.n_examples,
        "shareable": int(data.shareable.sum()),
        "an_example": data.layout,
        "labels": labels.in_words(data.y),
    }
    if data.ground is not None:
        found["shareable_with_ground"] = int((data.shareable & data.ground.stated).sum())
    if data.features:
        found["features"] = ", ".join(data.features)
    if apart := standardisation.scales_of(data):
        found["scales"] = f"very different: {apart}"
    return found


def ledger_of(store: Store) -> list[dict[str, Any]]:
    """All entries, with the names of peers; an entry that was changed raises an error."""
    names = names_of(store)
    return [
        {
            "entry": entry.entry,
            "time": entry.time,
            "event": entry.event,
            "epoch": entry.epoch,
            "peer": names.get(entry.peer, entry.peer[:16]),
            "chunk": entry.chunk,
            "examples": entry.examples,
            "bytes": entry.size,
            "evidence": entry.evidence.hex(),
        }
        for entry in store.ledger.entries()
    ]


def names_of(store: Store) -> dict[str, str]:
    """The names of peers by their keys, also by those that they replaced."""
    record = store.commit_record()[1]
    members = Commit.decode(record).members if record else ()
    epochs = store.epochs.between(0, LARGEST).values()
    offers = [offer for _, known in epochs if known for offer in decoded_epoch(known).sites]
    return {
        **{offer.identity: offer.site for offer in offers},
        **store.keyring.replaced_peers(),
        **{identity: site for site, identity in store.keyring.trusted_peers().items()},
        **{member.identity: member.site for member in members},
    }
