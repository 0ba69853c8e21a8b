"""What the federation costs beside plain Flower, on the embedded engine.

    python benchmarks/federation.py [--quick] [--json FILE]

Ours and Flower's FedAvg take turns within one run, with the same model and the same examples at
each client. Sealing is compared with the same path without it. Memory is a process's VmHWM.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import FLOWER_LOGGER
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn.functional import cross_entropy

from fedcommons import datasets
from fedcommons.federate.protocol import envelope, packing
from fedcommons.federate.protocol.keys import Identity, fresh_epoch_key
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.site.store import Store
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid, serve
from fedcommons.flower import CodedSum, SiteData, attach, coded, share
from fedcommons.tasks import softmax

N_SITES, COPIES = 10, 3
BATCH, STEPS = 32, 14  # about one pass over what a client holds


def node_configs(folder: Path) -> list[dict[str, Any]]:
    return [
        {"store": str(folder / f"site{k}"), "site": f"site{k}", "peers": "first-use", "part": k}
        for k in range(N_SITES)
    ]


def digits(context: Context, per_class: int, proportion: float) -> SiteData:
    """One digit at each site."""
    mnist, digit = datasets.mnist(), int(context.node_config["part"])
    rows = np.flatnonzero(mnist.y_train == digit)[:per_class]
    shareable = np.arange(len(rows)) < proportion * len(rows)
    return SiteData.from_arrays(mnist.x_train[rows], mnist.y_train[rows], shareable)


def papers_task(folder: Path, rounds: int) -> dict[str, Any]:
    """The paper's task: softmax regression, 10 sites with 30 images each, c = .2, d = 3."""
    client = ClientApp()
    site = attach(client, data=lambda context: digits(context, 30, 0.2))

    @client.train(mods=[coded(site)])
    def train(message: Message, context: Context) -> Message:
        beta = message.content["arrays"]["beta"].numpy().astype(np.float64)
        x, y, weight = site.examples(context)
        inputs = softmax.with_bias(x.reshape(len(x), -1) / 255)
        gradient = softmax.weighted_gradient(beta, inputs, y, weight)
        record = ArrayRecord({"beta": Array(gradient.astype(np.float32))})
        return Message(RecordDict({"gradient": record}), reply_to=message)

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        federation = share(grid, context, copies=COPIES)
        beta = ArrayRecord({"beta": Array(np.zeros((785, 10), np.float32))})
        CodedSum(federation, estimator="coded_sum", learning_rate=0.1).start(
            grid, beta, num_rounds=rounds
        )

    config = {"state-dir": str(folder / "server"), "sites": N_SITES}
    start = time.perf_counter()
    serve(server, EmbeddedGrid(client, node_configs(folder), config), config)
    return {f"exchange and {rounds} rounds, seconds": time.perf_counter() - start}


def network() -> nn.Module:
    """The network of Flower's quickstart for PyTorch, for images of 28 x 28."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 4 * 4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def epoch(message: Message, batches: Iterable[tuple[np.ndarray, ...]]) -> RecordDict:
    """Local training in the shape of Flower's quickstart: the same code for both."""
    net = network()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for x, y, weight in batches:
        optimizer.zero_grad()
        inputs = torch.from_numpy(x.astype(np.float32) / 255).unsqueeze(1)
        losses = cross_entropy(net(inputs), torch.from_numpy(y), reduction="none")
        loss = (torch.from_numpy(weight).float() * losses).mean()
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": 1})
    return RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})


def shuffled(held: tuple[np.ndarray, ...]) -> Iterable[tuple[np.ndarray, ...]]:
    """Batches as `site.batches` has them, of examples that are in memory."""
    order = np.random.default_rng().permutation(len(held[1]))
    for k in range(STEPS):
        rows = order[k * BATCH : (k + 1) * BATCH]
        yield tuple(part[rows] for part in held)


def beside_fedavg(folder: Path, turns: int, rounds: int) -> dict[str, Any]:
    """Handler time and bytes per round, ours over FedAvg's, turn by turn."""
    ours = ClientApp()
    site = attach(ours, data=lambda context: digits(context, 200, 0.5))
    held: dict[int, tuple[np.ndarray, ...]] = {}

    @ours.train(mods=[coded(site)])
    def train(message: Message, context: Context) -> Message:
        held[context.node_id] = site.examples(context)
        return Message(epoch(message, site.batches(context)), reply_to=message)

    plain = ClientApp()

    @plain.train()
    def train_plain(message: Message, context: Context) -> Message:
        return Message(epoch(message, shuffled(held[context.node_id])), reply_to=message)

    config = {"state-dir": str(folder / "server"), "sites": N_SITES}
    done = [0]
    coded_server, plain_server = ServerApp(), ServerApp()

    @coded_server.main()
    def main(grid: Grid, context: Context) -> None:
        federation = share(grid, context, copies=COPIES)
        initial = ArrayRecord(network().state_dict())
        strategy = CodedSum(federation, estimator="coded_sum", local_steps=STEPS, batch_size=BATCH)
        done[0] += 1

        def begin(note: dict[str, Any]) -> None:
            if note["round"] == done[0]:  # a run's first round carries receipts
                grid.handler_seconds, grid.n_bytes = 0.0, 0

        strategy.start(grid, initial, num_rounds=done[0] + rounds, on_round=begin)
        done[0] += rounds
        federation.close()

    @plain_server.main()
    def main_plain(grid: Grid, _context: Context) -> None:
        initial = ArrayRecord(network().state_dict())
        FedAvg(fraction_evaluate=0.0).start(grid, initial, num_rounds=rounds)

    ratios, byte_ratios, per_round = [], [], []
    for turn in range(turns + 1):
        mine = EmbeddedGrid(ours, node_configs(folder), config)
        serve(coded_server, mine, config)
        theirs = EmbeddedGrid(plain, node_configs(folder), config)
        serve(plain_server, theirs, config)
        if turn:  # the first turn makes the exchange and warms up
            ratios.append(mine.handler_seconds / theirs.handler_seconds)
            byte_ratios.append(mine.n_bytes / theirs.n_bytes)
            per_round.append(mine.handler_seconds / rounds)
    own = sum(len(y) for _, y, _ in held.values())
    return {
        "handler time, ours / FedAvg": float(np.median(ratios)),
        "its standard error": float(np.std(ratios, ddof=1) / len(ratios) ** 0.5),
        "bytes, ours / FedAvg": float(np.median(byte_ratios)),
        "handler seconds per round": float(np.median(per_round)),
        "examples held / owned (1 + dc)": own / (N_SITES * 200),
    }


def sealing(folder: Path, chunks: int) -> dict[str, Any]:
    """Packing, sealing, opening and storing a chunk of 16 MB, against the same without sealing."""
    rng = np.random.default_rng(0)
    n = (16 << 20) // 800
    examples = SharedExamples(
        np.arange(n), rng.integers(0, 10, n), rng.integers(0, 256, (n, 28, 28), np.uint8)
    )
    sender, recipient = Identity.create(), Identity.create()
    public, private = fresh_epoch_key()
    digest = bytes(32)

    def way(chunk: int, store: Store, sealed: bool) -> None:
        packed = examples.pack()
        if sealed:
            context = envelope.Context(
                digest, digest, sender.public, recipient.public, chunk, chunks
            )
            sent = envelope.seal(packed, context, to_key=public, sender=sender)
            _, packed = envelope.unseal(
                sent,
                federation=digest,
                epoch=digest,
                recipient=recipient.public,
                senders={sender.public},
                key=private,
                largest=20 << 20,
            )
        store.receive(1, digest, sender.name, [(chunk, packing.unpack(packed), packed)])

    stores = {kind: Store(folder / str(kind), create=True) for kind in (True, False)}
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for chunk in range(chunks):
        order = (True, False) if chunk % 2 else (False, True)
        for kind in order:
            start = time.perf_counter()
            way(chunk, stores[kind], kind)
            seconds[kind].append(time.perf_counter() - start)
    for store in stores.values():
        store.close()
    size = len(examples.pack()) / 1e6
    return {
        "sealed, MB/s": size / float(np.median(seconds[True])),
        "unsealed, MB/s": size / float(np.median(seconds[False])),
        "throughput, sealed / unsealed": float(
            np.median(seconds[False]) / np.median(seconds[True])
        ),
    }


EXCHANGE = """
import json, resource, sys, time
from pathlib import Path
import numpy as np
from flwr.clientapp import ClientApp
from fedcommons import datasets
from fedcommons.federate.server import coordinator
from fedcommons.federate.transport.client_app import attach
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid
from fedcommons.federate.transport.flower_internals import as_task
from fedcommons.federate.transport.flower_link import FlowerLink
from fedcommons.federate.site.data_files import load_site_data
folder, n_sites = Path(sys.argv[1]), int(sys.argv[2])
app = ClientApp()
attach(app)
nodes = [
    {"store": str(folder / f"site{k}"), "site": f"site{k}", "peers": "first-use",
     "data": str(folder / f"data{k}.npz")} for k in range(n_sites)
]
grid = EmbeddedGrid(app, nodes, {})
start = time.perf_counter()
with as_task(grid.run_id, 1):
    us = coordinator.share(FlowerLink(grid), federation="f", state_dir=folder / "server",
        run_id=grid.run_id, copies=3, n_sites=n_sites, seed=0)
seconds = time.perf_counter() - start
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]
print(json.dumps({"seconds": seconds, "MB moved": grid.n_bytes / 1e6,
    "peak MB of all parties in one process": int(peak) / 1024, "deliveries": len(us.commit.pairs)}))
"""


def exchange(folder: Path, n_images: int) -> dict[str, Any]:
    """Images over 10 sites, c = .5, d = 3: the time, and the memory of all parties together."""
    mnist = datasets.mnist()
    rows = np.random.default_rng(0).permutation(len(mnist.y_train))[:n_images]
    for k, part in enumerate(np.array_split(rows, N_SITES)):
        np.savez(
            folder / f"data{k}.npz",
            x=mnist.x_train[part],
            y=mnist.y_train[part],
            shareable=np.arange(len(part)) % 2 == 0,
        )
    out = subprocess.run(
        [sys.executable, "-c", EXCHANGE, folder, str(N_SITES)],
        check=True,
        capture_output=True,
        text=True,
    )
    return dict(json.loads(out.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small one of each, to see it run")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    quick = arguments.quick
    FLOWER_LOGGER.setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = {}
    for name, work in (
        ("paper's task", lambda f: papers_task(f, 2 if quick else 50)),
        ("beside FedAvg", lambda f: beside_fedavg(f, 1 if quick else 20, 1 if quick else 5)),
        ("sealing", lambda f: sealing(f, 2 if quick else 20)),
        ("exchange", lambda f: exchange(f, 500 if quick else 60_000)),
    ):
        folder = Path(tempfile.mkdtemp())
        try:
            results[name] = work(folder)
        finally:
            shutil.rmtree(folder)
        for what, value in results[name].items():
            print(f"{name:16} {what:40} {value:12.4g}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
