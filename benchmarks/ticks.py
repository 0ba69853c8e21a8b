"""What a tick under a clock costs, beside a round: processor time for each answer that is computed.

    python benchmarks/ticks.py [--quick] [--json FILE]

Softmax regression with memory, four learning rates side by side, in the batched engine. Rounds:
40 % of the clients missing. Ticks: the published delays, a deadline, late answers remembered. Each
is run short and long, and what counts is the difference: what is done once costs nothing. Rounds
and ticks take turns.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import fedcommons as fc
from fedcommons.simulate import curve_runs, runner

SIZES = {"5,000 examples, 25 clients": (500, 25), "300 examples, 10 clients": (30, 10)}
RATES = [0.05, 0.1, 0.15, 0.2]
ROUNDS = {"p": 0.4}
TICKS = {"policy": "deadline", "deadline": 2.0, "late": "remember"}
SHORT, LONG = 20, 140  # rounds, or ticks of two seconds at most


def cost(line: dict[str, Any], class_size: int, clients: int, length: int) -> tuple[float, int]:
    """Seconds of the processor, and how many answers were computed."""
    clocked = "policy" in line
    settings: dict[str, Any] = {"rounds": SHORT if clocked else length}
    if clocked:
        settings["clock"] = {"seconds": 2.0 * length, "multiply_adds": 9e7 / class_size}
    grid = {"partition": "single-class", "estimator": "memory", "learning_rate": RATES, **line}
    study = fc.simulate.study(
        "ticks", grid=grid, class_size=class_size, clients=clients, runs=1, test_size=10,
        engine="batched", **settings,
    )  # fmt: skip
    runner.study_data(study)
    made, make = [], curve_runs.make_curve_run

    def counted(*args: Any, **options: Any) -> curve_runs.CurveRun:
        made.append(make(*args, **options))
        return made[-1]

    curve_runs.make_curve_run = counted  # the engine says nowhere what it computed
    try:
        begin = time.process_time()
        runner.compute_block(study, 0)
        took = time.process_time() - begin
    finally:
        curve_runs.make_curve_run = make
    return took, sum(int(one.computed.sum()) for one in made)


def per_answer(line: dict[str, Any], class_size: int, clients: int, long: int) -> float:
    """Milliseconds of the processor."""
    (short_took, few), (long_took, many) = (
        cost(line, class_size, clients, length) for length in (SHORT, long)
    )
    return 1e3 * (long_took - short_took) / (many - few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few ticks, once")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    times, long = (1, SHORT + 10) if options.quick else (3, LONG)
    found = {}
    for name, (class_size, clients) in SIZES.items():
        pairs = [
            [per_answer(line, class_size, clients, long) for line in (ROUNDS, TICKS)]
            for _ in range(times)
        ]
        of_round, of_tick = np.median(pairs, axis=0).tolist()
        ratio = float(np.median([tick / one for one, tick in pairs]))
        found[name] = {"round_ms": of_round, "tick_ms": of_tick, "ratio": ratio}
        print(f"{name}: round {of_round:.3f} ms an answer, tick {of_tick:.3f}, ratio {ratio:.2f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
