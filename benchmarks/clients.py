"""How many clients a study can have: 100,000 of them, 1,000 asked a round.

    python benchmarks/clients.py [--quick] [--json FILE]

100 rounds of softmax regression on 1,000,000 examples of 100 features in 10 classes, which are
drawn from a seed; 10 examples a client, a fifth of the clients missing. Every case is a process of
its own, so that its peak memory means something. Seconds are those of the engine, from the data in
memory to the last round's accuracy on 10,000 test examples; those of the processor are beside them,
and how busy the machine was (its load over the last minute, before the case), since others may use
it too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons.datasets import Dataset
from fedcommons.simulate import batched
from fedcommons.simulate.curves import Curve

FEATURES, CLASSES, TEST = 100, 10, 10_000
CASES: dict[str, dict[str, Any]] = {
    "coded sum": {},
    "memory": {"estimator": "memory"},
    "memory, asked by norms": {"estimator": "memory", "ask_by": "norms"},
    "memory, a fifth of the examples at 3 others": {
        "estimator": "memory",
        "proportion": 0.2,
        "copies": 3,
    },
}
FULL = {"clients": 100_000, "examples": 1_000_000, "asked": 1_000, "rounds": 100}
QUICK = {"clients": 1_000, "examples": 10_000, "asked": 50, "rounds": 5}


def synthetic(n_examples: int) -> Dataset:
    """Classes of unit normal distributions around means some way apart."""
    rng = np.random.default_rng(0)
    means = 0.3 * rng.standard_normal((CLASSES, FEATURES), dtype=np.float32)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, CLASSES, n)
        return rng.standard_normal((n, FEATURES), dtype=np.float32) + means[y], y

    (x, y), (x_test, y_test) = draw(n_examples), draw(TEST)
    return Dataset("synthetic", x, y, x_test, y_test)


def measure(case: str, sizes: dict[str, int]) -> dict[str, Any]:
    """One case, in this process."""
    dataset = synthetic(sizes["examples"])
    line = Curve(
        "iid",
        straggler_prob=0.2,
        ask=float(sizes["asked"]),
        learning_rate=1.0,
        decay=1.0,
        **CASES[case],
    )
    start, processor = time.perf_counter(), time.process_time()
    (found,) = batched.simulate_block(
        dataset,
        [line],
        n_clients=sizes["clients"],
        class_size=None,
        n_rounds=sizes["rounds"],
        seed=0,
        runs=[0],
    )
    return {
        "case": case,
        **sizes,
        "seconds": round(time.perf_counter() - start, 1),
        "processor seconds": round(time.process_time() - processor, 1),
        "GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT / 1e9, 2),
        "accuracy": round(int(found.correct[0, -1]) / TEST, 4),
    }


_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small one of each case")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = QUICK if given.quick else FULL
    if given.case:
        print(json.dumps(measure(given.case, sizes)))
        return
    results = []
    for case in CASES:
        load = os.getloadavg()[0]
        command = [sys.executable, __file__, "--case", case, *(["--quick"] * given.quick)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = {**json.loads(done.stdout), "load before": round(load, 1)}
        results.append(found)
        print(
            f"{case}: {found['seconds']} s ({found['processor seconds']} s of processor), "
            f"{found['GB']} GB, accuracy {found['accuracy']}, load {found['load before']}"
        )
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
