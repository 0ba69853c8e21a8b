"""Stores with something in them, and processes that die while they write."""

import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedcommons.federate.protocol import durable
from fedcommons.federate.protocol.commit_fields import Member
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.site.manifests import Manifest
from fedcommons.federate.site.store import Store

EPOCH = b"e" * 32


SENDERS = ("aa" * 32, "bb" * 32)


Work = Callable[[Store, Callable[[bytes], object]], object]


def chunk_of(seed: int, first: int = 0, n: int = 4) -> tuple[SharedExamples, bytes]:
    rng = np.random.default_rng(seed)
    x = np.frombuffer(rng.bytes(n * 64), np.uint8).reshape(n, 64)
    examples = SharedExamples(np.arange(first, first + n), rng.integers(0, 9, size=n), x)
    return examples, examples.pack()


def receive(
    store: Store, sender: str = SENDERS[0], chunk: int = 0, seed: int = 0
) -> SharedExamples:
    examples, packed = chunk_of(seed, first=4 * chunk)
    store.receive(1, EPOCH, sender, [(chunk, examples, packed)])
    return examples


def commit_of(**changes: object) -> Commit:
    """Sites 0 and 1 gave to site 2, in the epoch above."""
    names = (*SENDERS, "cc" * 32)
    fields = dict(
        federation="hospitals",
        number=1,
        serial=0,
        epoch=EPOCH.hex(),
        seed=0,
        copies=1,
        members=tuple(Member(f"s{i}", name, 8, 8, "00" * 32) for i, name in enumerate(names)),
        present=(True,) * 3,
        pairs=((0, 2), (1, 2)),
        withdrawn=((),) * 3,
        withdrawn_private=(0,) * 3,
    )
    return Commit(**{**fields, **changes})


def manifest_of(n: int = 6) -> Manifest:
    rng = np.random.default_rng(5)
    return Manifest(
        "",
        b"c" * 32,
        b"d" * 32,
        np.ones(n, np.bool_),
        np.arange(n) % 2 == 0,
        np.frombuffer(rng.bytes(16 * n), np.uint8).reshape(n, 16),
    )


def enter(store: Store, number: int, record: bytes, peers: dict[str, str]) -> None:
    """Have seen an epoch."""
    with store.database.writing("store.epoch"):
        store.epochs.enter(number, record, peers)


def fill(store: Store) -> None:
    """Something of every kind."""
    store.join("hospitals")
    store.manifests.add(manifest_of())
    enter(store, 1, b"the record of an epoch", {"s0": SENDERS[0], "s1": SENDERS[1]})
    for place, sender in enumerate(SENDERS):
        for chunk in range(2):
            receive(store, sender, chunk, seed=10 * place + chunk)
    store.ledger.note_sent(1, [(SENDERS[0], 0, 4, 500), (SENDERS[1], 0, 2, 300)])
    store.apply(commit_of(withdrawn=((1,), (), ())), me=2)
    store.ledger.note_receipts(1, [(SENDERS[0], 4, b"signed")])
    store.withdrawals.withdraw(np.array([1, 4]))
    store.keyring.fresh_key()


def everything(store: Store) -> tuple[object, ...]:
    """All that can be read of a store, after all checks."""
    store.check()
    manifest = store.manifests.newest()
    epochs = {1: store.epochs.record(store.epochs.highest()[1])}
    return (
        store.identity,
        store.federation,
        store.withdrawals.everything,
        store.keyring.trusted_peers(),
        None if manifest is None else (manifest.stamp, manifest.content, manifest.digest),
        None if manifest is None else manifest.live.tobytes() + manifest.shareable.tobytes(),
        None if manifest is None else manifest.fingerprints.tobytes(),
        store.epochs.highest(),
        epochs,
        store.commit_record(),
        store.withdrawals.fingerprints(),
        store.received.counts(),
        [part.pack() for sender in SENDERS for part in store.received.chunks(EPOCH, sender)],
        [
            store.received.original_digest(EPOCH, sender, chunk)
            for sender in SENDERS
            for chunk in range(3)
        ],
        store.database.rows("epoch_keys"),
        list(store.ledger.entries()),
    )


def files(store: Store) -> bytes:
    """All bytes of the store's folder."""
    return b"".join(path.read_bytes() for path in sorted(store.folder.rglob("*")) if path.is_file())


def occurrences(store: Store, rows: np.ndarray) -> int:
    """How many of these rows leave a trace of 16 bytes in any file of the store."""
    found = files(store)
    return sum(
        any(row.tobytes()[i : i + 16] in found for i in range(0, 64, 16))
        for row in np.asarray(rows)
    )


def forked() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with BLAS threads about
        return os.fork()


def in_child(
    folder: Path, work: Work, *, at: str = "", after: float = 0.0, words: int = 0
) -> bytes:
    """Let a process work on the store until it is killed; what it said.

    It is killed at a point, or some time after it said that many words.
    """
    read, write = os.pipe()
    child = forked()
    if child == 0:
        os.close(read)
        try:
            durable.reached = lambda point: point == at and os.kill(os.getpid(), signal.SIGKILL)
            work(Store(folder, create=True), lambda said: os.write(write, said))
        finally:
            os._exit(1)
    os.close(write)
    said = b""
    if not at:
        while len(said) < words and (word := os.read(read, 1)):
            said += word
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    while part := os.read(read, 1 << 16):
        said += part
    os.close(read)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    return said
