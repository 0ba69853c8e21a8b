"""What large models and many sites cost at the server: memory, disk and seconds a round.

    python benchmarks/size.py [--quick] [--json FILE]

Ours, with memory, and Flower's FedAvg on the same embedded engine, with the same work at each site
(none to speak of). Every case is a process of its own, so that its peak memory (VmHWM, all parties
in one) means something; ours and FedAvg's take turns, and a ratio is between neighbours.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import FLOWER_LOGGER
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcommons.federate.transport.embedded_grid import EmbeddedGrid, serve
from fedcommons.flower import CodedSum, SiteData, attach, coded, share

EXAMPLES, FEATURES = 30, 4
COPIES = 3
CASES = {  # sites, parameters, rounds
    "ten sites, ten million parameters": (10, 10_000_000, 6),
    "two hundred sites, a million parameters": (200, 1_000_000, 3),
    "a thousand sites, a small model": (1_000, 7_850, 3),
}
QUICK = {"four sites, a hundred thousand parameters": (4, 100_000, 3)}


def data(context: Context) -> SiteData:
    rng = np.random.default_rng(int(context.node_config["part"]))
    x = rng.normal(size=(EXAMPLES, FEATURES)).astype(np.float32)
    return SiteData.from_arrays(x, rng.integers(0, 2, EXAMPLES), np.arange(EXAMPLES) % 5 == 0)


def nodes(folder: Path, n_sites: int) -> list[dict[str, Any]]:
    return [
        {"store": str(folder / f"site{k}"), "site": f"site{k:04d}", "peers": "first-use", "part": k}
        for k in range(n_sites)
    ]


def initial(n_params: int) -> ArrayRecord:
    return ArrayRecord({"beta": Array(np.zeros(n_params, np.float32))})


def trained(message: Message, context: Context) -> ArrayRecord:
    """The work of a round at a site: cheap, and another vector at each site and in each round."""
    beta = message.content["arrays"]["beta"].numpy()
    return ArrayRecord({"beta": Array(beta * np.float32(0.9) + np.float32(context.node_id))})


def ours(folder: Path, n_sites: int, n_params: int, rounds: int) -> dict[str, Any]:
    client, server = ClientApp(), ServerApp()
    site = attach(client, data=data)
    found: dict[str, Any] = {"seconds": []}

    @client.train(mods=[coded(site)])
    def train(message: Message, context: Context) -> Message:
        site.examples(context)
        return Message(RecordDict({"gradient": trained(message, context)}), reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        start = time.perf_counter()
        federation = share(grid, context, copies=COPIES)
        found["exchange, seconds"] = time.perf_counter() - start
        strategy = CodedSum(
            federation, estimator="memory", learning_rate=1e-3, straggler_prob=0.1, deadline=600.0
        )
        times = [time.perf_counter()]
        strategy.start(
            grid, initial(n_params), rounds, on_round=lambda _: times.append(time.perf_counter())
        )
        found["seconds"] = np.diff(times).tolist()
        found["checkpoint, MB"] = (strategy.folder / "checkpoint.npz").stat().st_size / 1e6
        files = [f for f in strategy.folder.rglob("*") if f.is_file() and f.name != "model.npz"]
        found["training's folder, MB"] = sum(f.stat().st_size for f in files) / 1e6

    config = {"state-dir": str(folder / "server"), "sites": n_sites, "timeout": 600}
    grid = EmbeddedGrid(client, nodes(folder, n_sites), config)
    serve(server, grid, config)
    return found


def fedavg(folder: Path, n_sites: int, n_params: int, rounds: int) -> dict[str, Any]:
    client, server = ClientApp(), ServerApp()
    times = []

    @client.train()
    def train(message: Message, context: Context) -> Message:
        parts = {"arrays": trained(message, context), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(parts), reply_to=message)

    def note(_round: int, _arrays: ArrayRecord) -> None:
        times.append(time.perf_counter())

    @server.main()
    def main(grid: Grid, _context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=n_sites)
        strategy.start(grid, initial(n_params), num_rounds=rounds, evaluate_fn=note)

    serve(server, EmbeddedGrid(client, nodes(folder, n_sites), {}), {})
    return {"seconds": np.diff(times).tolist()}


SIDES: dict[str, Callable[..., dict[str, Any]]] = {"ours": ours, "fedavg": fedavg}


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024


def one(side: str, n_sites: int, n_params: int, rounds: int, folder: Path) -> dict[str, Any]:
    """A case, in this process."""
    FLOWER_LOGGER.setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    found = SIDES[side](folder, n_sites, n_params, rounds)
    seconds = found.pop("seconds")
    return {
        **found,
        "a round, seconds": float(np.median(seconds[1:])),  # the first one carries receipts
        "peak, MB": peak_mb(),
    }


def in_a_process(side: str, case: tuple[int, int, int]) -> dict[str, Any]:
    folder = tempfile.mkdtemp()
    try:
        command = [sys.executable, __file__, "--one", side, *map(str, case), folder]
        out = subprocess.run(command, check=True, capture_output=True, text=True)
        return dict(json.loads(out.stdout.splitlines()[-1]))
    finally:
        shutil.rmtree(folder)


def beside(case: tuple[int, int, int], turns: int) -> dict[str, Any]:
    """Ours and FedAvg's in turns; medians, and the ratio of neighbours."""
    load = os.getloadavg()[0]
    pairs = [(in_a_process("fedavg", case), in_a_process("ours", case)) for _ in range(turns)]
    peer, mine = zip(*pairs, strict=True)
    ratios = [b["a round, seconds"] / a["a round, seconds"] for a, b in pairs]
    return {
        **{name: float(np.median([one[name] for one in mine])) for name in mine[0]},
        **{f"FedAvg: {name}": float(np.median([one[name] for one in peer])) for name in peer[0]},
        "a round, ours / FedAvg": float(np.median(ratios)),
        "load before": load,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small one, to see it run")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        side, *case, folder = arguments.one
        print(json.dumps(one(side, *map(int, case), Path(folder))))
        return
    results = {}
    for name, case in (QUICK if arguments.quick else CASES).items():
        results[name] = beside(case, 1 if arguments.quick else arguments.turns)
        for what, value in results[name].items():
            print(f"{name:42} {what:28} {value:12.4g}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
