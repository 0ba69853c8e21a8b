"""How fast and how small randomised sharing is, beside the random generator's own limit and peers.

    python benchmarks/placement.py [--examples 10000000] [--json FILE]

Every time is the best of three on one core; ratios are within one run. Memory is the peak that
NumPy and SciPy allocate during the call, what it returns included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from fedcommons import coding, sharing
from fedcommons.subsets import random_subsets


def best_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        result = work()
        peak = tracemalloc.get_traced_memory()[1]
        del result
        return peak
    finally:
        tracemalloc.stop()


def problem(n_examples: int, n_clients: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    owner = rng.integers(0, n_clients, n_examples).astype(np.int32)
    return owner, np.ones(n_examples, np.bool_)


def share(n_examples: int, n_clients: int, copies: int) -> Callable[[], sharing.Placement]:
    owner, shareable = problem(n_examples, n_clients)
    rng = np.random.default_rng(1)
    return lambda: sharing.randomised(owner, shareable, copies, n_clients=n_clients, rng=rng)


def headline(n_examples: int) -> dict[str, Any]:
    """10 million shareable examples, N = 1,000, d = 3."""
    n_clients, copies = 1000, 3
    n_copies = n_examples * copies
    work = share(n_examples, n_clients, copies)
    placement = work()
    rng = np.random.default_rng(2)

    def generator_alone() -> None:
        for _ in range(copies):
            rng.integers(0, n_clients - 1, n_examples, dtype=np.int32)

    seconds = {
        "random generator alone (limit)": best_seconds(generator_alone),
        "random subsets": best_seconds(
            lambda: random_subsets(n_examples, copies, n_clients - 1, rng=rng)
        ),
        "placement (subsets, checks, index)": best_seconds(work),
        "held-by-client view": best_seconds(placement.holdings),
    }
    memory = {
        "placement (subsets, checks, index)": peak_bytes(work),
        "held-by-client view": peak_bytes(placement.holdings),
    }
    return {
        name: {
            "million copies/s": n_copies / value / 1e6,
            "bytes/copy": memory[name] / n_copies if name in memory else None,
        }
        for name, value in seconds.items()
    }


def peers(n_examples: int) -> dict[str, Any]:
    """The same placement by what one would write first, on fewer examples."""
    n_clients, copies = 1000, 3
    rng = np.random.default_rng(3)

    def choice_per_example() -> list[np.ndarray]:
        others = np.arange(n_clients - 1)
        return [rng.choice(others, copies, replace=False) for _ in range(n_examples)]

    def sort_random_keys() -> np.ndarray:
        return rng.random((n_examples, n_clients - 1)).argpartition(copies, axis=1)[:, :copies]

    seconds = {
        "fedcommons placement": best_seconds(share(n_examples, n_clients, copies)),
        "rng.choice per example": best_seconds(choice_per_example, repeats=1),
        "argpartition of random keys": best_seconds(sort_random_keys, repeats=1),
    }
    return {n: {"million copies/s": n_examples * copies / s / 1e6} for n, s in seconds.items()}


def growth(n_examples: int) -> dict[str, Any]:
    """Nanoseconds per copy as one size grows: constant means linear cost."""
    table = {}
    cases = {
        "examples": [(n_examples * k // 4, 1000, 3) for k in (1, 2, 4)],
        "copies": [(n_examples // (4 * d), 1000, d) for d in (1, 3, 10, 30, 100, 300, 900)],
        "clients": [(n_examples // 4, N, 3) for N in (10, 100, 1000, 10_000, 100_000)],
    }
    for name, sizes in cases.items():
        for n, n_clients, copies in sizes:
            value = {"examples": n, "copies": copies, "clients": n_clients}[name]
            work = share(n, n_clients, copies)
            view = work()
            table[f"{name} = {value:,}"] = {
                "placement ns/copy": best_seconds(work) / (n * copies) * 1e9,
                "view ns/copy": best_seconds(view.holdings) / (n * copies) * 1e9,
            }
    return table


def small() -> dict[str, Any]:
    """The paper's size, where overhead counts: microseconds a call."""
    work = share(300, 10, 3)
    placement = work()
    calls = {
        "placement": work,
        "held-by-client view": placement.holdings,
        "equal split": lambda: coding.equal_split(placement),
    }
    return {
        name: {"µs/call": best_seconds(lambda call=call: [call() for _ in range(200)]) / 200 * 1e6}
        for name, call in calls.items()
    }


def importing() -> dict[str, Any]:
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    seconds = {}
    for module in ("numpy", "scipy.sparse", "fedcommons"):
        runs = [
            subprocess.run(
                [sys.executable, "-c", code.format(module)],
                capture_output=True, text=True, check=True,
            )
            for _ in range(5)
        ]  # fmt: skip
        seconds[f"import {module}"] = {"seconds": min(float(run.stdout) for run in runs)}
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    n = options.examples
    results = {
        f"{n:,} examples, 1,000 clients, 3 copies": headline(n),
        f"peers on {n // 1000:,} examples": peers(max(1, n // 1000)),
        "growth": growth(n),
        "the paper's size: 300 examples, 10 clients, 3 copies": small(),
        "import": importing(),
    }
    for title, rows in results.items():
        print(f"\n{title}")
        for name, row in rows.items():
            cells = (f"{value:10.2f} {unit}" for unit, value in row.items() if value is not None)
            print(f"  {name:36}", *cells)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
