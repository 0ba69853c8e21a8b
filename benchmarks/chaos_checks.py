"""What must hold after `chaos.py`: who holds what, receipts, canaries, and the model replayed."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fedcommons.federate.apps.local_run import run_recorded
from fedcommons.federate.protocol import records
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.server.checkpoints import read_checkpoint
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.federate.server.state import ServerState
from fedcommons.federate.site.holdings import holdings_of
from fedcommons.federate.site.store import Store

RTOL, ATOL = 1e-5, 1e-7  # the rounding of 32-bit answers
MARK = re.compile(rb"<(private|shared)-of-(site-\d+)-(\d+)>")


def mark(row: int, site: str) -> bytes:
    """28 bytes, a row of pixels, that are found wherever an example is; odd rows are private."""
    kind = "private" if row % 2 else "shared"
    return f"<{kind}-of-{site}-{row:03d}>".encode().ljust(28, b"#")


@dataclass(frozen=True, slots=True)
class Request:
    """What the operator of a site withdrew."""

    site: str
    rows: tuple[int, ...]

    @property
    def numbers(self) -> set[int]:
        """The share numbers of the rows that were shared: every second row was."""
        return {row // 2 for row in self.rows if row % 2 == 0}


def withdraw(store: Path, request: Request) -> None:
    with contextlib.closing(Store(store)) as opened:
        opened.withdrawals.withdraw(np.array(request.rows))


def heard(commit: Commit, requests: Sequence[Request]) -> list[Request]:
    """Those of the withdrawals that a commit has; it has all of a site's up to some moment."""
    found: list[Request] = []
    for place, member in enumerate(commit.members):
        of_site = [request for request in requests if request.site == member.site]
        wanted = set(commit.withdrawn[place]), commit.withdrawn_private[place]
        for n in range(len(of_site) + 1):
            numbers = {number for request in of_site[:n] for number in request.numbers}
            n_rows = sum(len(request.rows) for request in of_site[:n])
            if (numbers, n_rows - len(numbers)) == wanted:
                found += of_site[:n]
                break
        else:
            raise AssertionError(f"{member.site} withdrew {of_site}, the commit has {wanted}")
    return found


# Marks


def marks_in(paths: Sequence[Path]) -> dict[tuple[bytes, bytes, bytes], set[Path]]:
    """Which marks (kind, site, row) are in which files."""
    found: dict[tuple[bytes, bytes, bytes], set[Path]] = {}
    for path in paths:
        with contextlib.suppress(OSError):  # it may be gone, or a socket
            for kind, site, row in MARK.findall(path.read_bytes() if path.is_file() else b""):
                found.setdefault((kind, site, row), set()).add(path)
    return found


def check_marks(folder: Path, requests: Sequence[Request]) -> int:
    """Only recipients have what was shared, nobody what was withdrawn; how many marks there are."""
    found = marks_in(list(folder.rglob("*")))
    gone = {(request.site, row) for request in requests for row in request.rows}
    for (kind, site, row), paths in found.items():
        where = {path.relative_to(folder).parts[:2] for path in paths}
        assert kind == b"shared", f"a private example of {site!r} is in {where}"
        assert all(part[1:] == ("store",) for part in where), where
        assert (site.decode(), "store") not in where, f"{site!r} holds a copy of its own: {where}"
        assert (site.decode(), int(row)) not in gone, f"withdrawn, and still in {where}"
    return len(found)


# Who holds what


def check_stores(stores: Mapping[str, Path], state_dir: Path) -> dict[str, Any]:
    """All stores are whole, under the last commit, and hold what it says; receipts agree."""
    state = ServerState(state_dir)
    try:
        commit, exchange = state.commit(), state.exchange()
    finally:
        state.close()
    assert commit is not None
    assert exchange is not None
    names = {member.identity: member.site for member in commit.members}
    receipts = {(names[r.sender], names[r.recipient], r.signature) for r in exchange.receipts}
    holders: Counter[tuple[int, int]] = Counter()
    told: dict[tuple[int, int], int] = {}
    noted: dict[str, set[tuple[str, str, bytes]]] = {"receipt": set(), "receipt given": set()}
    coverage = 0.0
    for me, member in enumerate(commit.members):
        with contextlib.closing(Store(stores[member.site])) as store:
            store.check()
            assert store.commit_record()[0] == commit.digest, f"{member.site} has another commit"
            manifest = store.manifests.newest()
            assert manifest is not None
            live = manifest.live & ~store.withdrawals.gone(manifest)
            own = manifest.share_numbers[live]
            held = holdings_of(commit, me, own)
            coverage += held.coverage
            epoch, pairs = bytes.fromhex(commit.epoch), [(me, own[own >= 0])]
            for sender, expected in held.senders:
                chunks = store.received.chunks(epoch, commit.members[sender].identity)
                numbers = np.concatenate([chunk.numbers for chunk in chunks])
                assert np.array_equal(np.sort(numbers), np.sort(expected))
                pairs.append((sender, numbers))
            n_held = sum(n for _, n in store.received.counts())
            assert n_held == sum(len(numbers) for _, numbers in pairs[1:]), "more than was given"
            keys = [(place, int(number)) for place, numbers in pairs for number in numbers]
            holders.update(keys)
            shared = np.concatenate([own, *(numbers for _, numbers in held.senders)]) >= 0
            places = [(me, int(n)) for n in own if n >= 0]
            places += [(s, int(n)) for s, numbers in held.senders for n in numbers]
            for key, d in zip(places, held.placement.holder_counts[shared], strict=True):
                assert told.setdefault(key, int(d)) == d, "sites do not agree on a d_j"
            arrived = Counter()
            for entry in store.ledger.entries():
                peer = names.get(entry.peer, "")
                if entry.event == "receipt":
                    noted["receipt"].add((member.site, peer, entry.evidence))
                elif entry.event == "receipt given":
                    noted["receipt given"].add((peer, member.site, entry.evidence))
                elif entry.event == "received":
                    arrived[peer, entry.chunk] += 1
            assert set(arrived.values()) <= {1}, f"{member.site} stored something twice"
    assert holders == Counter(told), "the copies that exist are not those that d_j counts"
    assert np.isclose(coverage, commit.n_examples, rtol=1e-9), (coverage, commit.n_examples)
    assert noted["receipt"] == noted["receipt given"] == receipts, "receipts do not agree"
    n = len(commit.members)
    assert len(commit.pairs) == len(receipts) == n * (n - 1), "a delivery was lost"
    return {
        "examples": commit.n_examples,
        "coverage": coverage,
        "shared examples": len(told),
        "receipts": len(receipts),
        "commit": commit.order,
    }


# The same without a kill


def rounds_of(state_dir: Path) -> tuple[RoundNote, ...]:
    """The rounds of training so far, round 0 left out."""
    path = next(state_dir.glob("*/checkpoint.npz"), None)
    checkpoint = None if path is None else read_checkpoint(path)
    return () if checkpoint is None else tuple(checkpoint.history[1:])


def model_of(state_dir: Path) -> dict[str, np.ndarray]:
    (path,) = state_dir.glob("*/model.npz")
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def replay(
    folder: Path,
    app: Path,
    data: Mapping[str, Path],
    config: Mapping[str, Any],
    chaos: Path,
    requests: Sequence[Request],
    *,
    all_answer: bool = False,
) -> dict[str, np.ndarray]:
    """The model of the embedded engine without any kill, from an exchange of its own.

    Those answer in a round who did under `chaos`, whose server's folder it is; what was withdrawn
    is withdrawn between the same rounds. The sites of an exchange draw together who gets which
    copies; this one is given what came of that.
    """
    first = Commit.decode((chaos / "commits" / "00001-00000.json").read_bytes())
    notes, state_dir = rounds_of(chaos), folder / "state"
    mask = np.array([[site.answered or all_answer for site in note.sites] for note in notes])
    stores = {site: folder / site / "store" for site in data}
    before: list[Request] = []

    def train(rounds: int) -> None:
        changed = {**config, "state-dir": str(state_dir), "num-rounds": rounds}
        with mock.patch.object(records, "seed_of", return_value=first.seed):
            _run(app, stores, data, changed, mask)

    for order, group in itertools.groupby(notes, key=lambda note: note.commit):
        rounds = [note.round for note in group]
        assert order is not None
        path = chaos / "commits" / f"{order[0]:05d}-{order[1]:05d}.json"
        committed = Commit.decode(path.read_bytes())
        now = heard(committed, requests)
        if fresh := [request for request in now if request not in before]:
            assert rounds[0] > 1, "withdrawals are asked for after the first round"
            for request in fresh:
                withdraw(stores[request.site], request)
            train(rounds[0] - 1)  # no round is left to make: the sites go under the next commit
        train(rounds[-1])
        before = now
        (newest,) = sorted((state_dir / "commits").iterdir())[-1:]
        ours = Commit.decode(newest.read_bytes())
        names = ("pairs", "present", "withdrawn", "withdrawn_private", "seed", "copies")
        for name in names:
            assert getattr(ours, name) == getattr(committed, name), name
    return model_of(state_dir)


def _run(
    app: Path,
    stores: Mapping[str, Path],
    data: Mapping[str, Path],
    config: Mapping[str, Any],
    mask: np.ndarray,
) -> None:
    """Run the client of an app on the embedded engine; the server asks by a recorded trace."""
    nodes = [
        {
            "site": site,
            "store": str(store),
            "peers": "first-use",
            "data": str(data[site]),
            "partition-id": place,
            "num-partitions": len(stores),
        }
        for place, (site, store) in enumerate(stores.items())
    ]
    run_recorded(app, nodes, config, mask)


def largest_difference(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> float:
    assert a.keys() == b.keys()
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)
