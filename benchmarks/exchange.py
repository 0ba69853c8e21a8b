"""What an exchange costs between real processes: its time, and every party's peak memory.

    python benchmarks/exchange.py [--images 60000] [--json FILE]

MNIST over 10 sites, half of it shareable, three copies of each, through a SuperLink with TLS and
authenticated SuperNodes on this machine; then one round. Memory is the VmHWM of every process, by
kind. The limit is 500 MB for any of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import datasets
from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.leftovers import processes_of

N_SITES, COPIES = 10, 3
MOST_MB = 500
KINDS = ("flower-superlink", "flower-supernode", "flower-superexec", "clientapp", "serverapp")


def watch(home: Path, peaks: dict[str, float], stop: threading.Event) -> None:
    """Note the largest VmHWM of every kind of process, in MB."""
    while not stop.wait(0.2):
        for pid in processes_of(home):
            with contextlib.suppress(OSError, StopIteration):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                status = Path(f"/proc/{pid}/status").read_text().splitlines()
                peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
                kind = next((kind for kind in KINDS if kind in command), "other")
                peaks[kind] = max(peaks.get(kind, 0), int(peak) / 1024)


def measure(n_images: int) -> dict[str, Any]:
    mnist, rng = datasets.mnist(), np.random.default_rng(0)
    rows = rng.permutation(len(mnist.y_train))[:n_images]
    names = [f"site-{k}" for k in range(N_SITES)]
    peaks: dict[str, float] = {}
    stop = threading.Event()
    with Deployment() as deployment:
        data = {}
        for name, part in zip(names, np.array_split(rows, N_SITES), strict=True):
            data[name] = deployment.folder / f"{name}.npz"
            marks = np.arange(len(part)) % 2 == 0
            np.savez(data[name], x=mnist.x_train[part], y=mnist.y_train[part], shareable=marks)
        deployment.add_sites(names, data=data)
        watcher = threading.Thread(target=watch, args=(deployment.folder, peaks, stop))
        watcher.start()
        try:
            app = deployment.folder / "app"
            write_app(app)
            config = {"state-dir": str(deployment.folder / "state"), "sites": N_SITES}
            config |= {"copies": COPIES, "num-rounds": 1, "warm": False, "deadline": 120.0}
            start = time.perf_counter()
            run = deployment.operator.run(app, config, 900)
            seconds = time.perf_counter() - start
        finally:
            stop.set()
            watcher.join()
    if not run.is_completed:
        sys.exit(f"the run is {run.status}:\n{run.log}")
    told = next(line for line in run.log.splitlines() if "committed" in line)
    return {"images": n_images, "exchange and a round, seconds": seconds, "log": told, "MB": peaks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--strict", action="store_true", help="fail beyond the limit")
    arguments = parser.parse_args()
    found = measure(arguments.images)
    print(found["log"])
    print(f"exchange and a round: {found['exchange and a round, seconds']:.1f} s")
    for kind, peak in sorted(found["MB"].items()):
        print(f"{kind:20} {peak:8.0f} MB {'' if peak <= MOST_MB else '  above the limit'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    if arguments.strict and max(found["MB"].values()) > MOST_MB:
        sys.exit("above the limit")


if __name__ == "__main__":
    main()
