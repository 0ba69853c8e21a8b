"""How fast the reproduction is.

Against the machine's own matrix products, against a plain PyTorch loop and other frameworks, and
against itself as runs, curves, clients and examples grow.

    python benchmarks/reproduction.py [--runs 40] [--quick] [--json FILE]

Ratios are within one run of this script. PyTorch and the frameworks under benchmarks/peers are
measured where they are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedcommons import datasets
from fedcommons.simulate import draws, example_space, runner, studies, tables
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Study
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.scoring import Evaluation

PAPER = {"n_clients": 10, "class_size": 30, "n_rounds": 50, "seed": 0}
ONE_CURVE = Curve("single-class", 0.0, 0.5, 0.2, 3)  # what the peers do
FRAMEWORKS = (("ray", "flower_simulation.py"), ("pfl", "pfl_simulation.py"))
PEERS = Path(__file__).parent / "peers"


def seconds_of(work: Callable[[], object], repeats: int = 3) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def square_product_rate(_: int = 0, size: int = 3000, repeats: int = 5) -> float:
    """Float32 operations per second of one core, by a large square product."""
    rng = np.random.default_rng(0)
    a = rng.random((size, size), np.float32)
    out = np.empty_like(a)
    with threadpool_limits(1):
        return 2 * size**3 / seconds_of(lambda: np.matmul(a, a, out=out), repeats)


def machine_rate(cores: int) -> float:
    """All cores at the same time."""
    with ProcessPoolExecutor(cores) as pool:
        return sum(pool.map(square_product_rate, range(cores)))


def necessary_operations(study: Study, n_test: int, n_features: int, n_classes: int) -> float:
    """Multiplications and additions that a run cannot do without, in example space.

    The products of the training set with itself and with the test set, once; per curve and round
    the test scores (of all classes but one: only differences matter), the full gradient's and the
    estimate's products with the training set (they give |g|^2, |g^|^2 and the next scores), and the
    quadratic form of the exact second moment. The theory's extras and memory's N-fold second
    moment are not counted.
    """
    M, C, T = study.class_size * n_classes, len(study.curves), study.rounds
    once = 2 * n_features * M * (M + n_test)
    per_curve = 2 * M * ((n_classes - 1) * n_test * (T + 1) + n_classes * 3 * M * T)
    return float(once + C * per_curve)


def whole_reproduction(runs: int) -> dict[str, Any]:
    """The default study from start to tables, all cores, against the machine's rate."""
    dataset = datasets.mnist()
    study = replace(studies.paper(), runs=runs)
    cores = os.cpu_count() or 1
    work = necessary_operations(study, len(dataset.y_test), 784, 10) * runs
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        start = time.perf_counter()
        with folder.opened(study):
            folder.begin(study, {})
            runner.run_study(study, folder, workers=cores)
            tables.build(study, folder, dataset)
        seconds = time.perf_counter() - start
    limit = machine_rate(cores)
    return {
        "curves": len(study.curves),
        "runs": runs,
        "seconds": seconds,
        "ms per run and curve": seconds * cores / runs / len(study.curves) * 1e3,
        "GFLOP/s": work / seconds / 1e9,
        "machine GFLOP/s": limit / 1e9,
        "fraction": work / seconds / limit,
    }


def one_core_run(curves: Sequence[Curve], **sizes: Any) -> float:
    dataset = datasets.mnist()
    test = Evaluation(dataset)
    settings = {**PAPER, **sizes}
    with threadpool_limits(1):
        example_space.simulate_run(dataset, test, curves[:1], **{**settings, "n_rounds": 1}, run=0)
        return seconds_of(
            lambda: example_space.simulate_run(dataset, test, curves, **settings, run=0), 2
        )


def figure_curves() -> list[Curve]:
    study = studies.paper().only(["figure1", "figure2"])
    return list(study.curves)


def against_torch() -> dict[str, Any] | None:
    """One run of one curve, the same statistics: per client with autograd, evaluation each round.

    One thread each. The exact second moment needs every client's answer, also the stragglers'.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    dataset = datasets.mnist()
    curve = ONE_CURVE
    data = draws.training_set(dataset, 30, seed=0, run=0)
    placement = draws.share(curve, data.labels, 10, seed=0, run=0).placement
    shares = draws.shares(curve, placement, data.products)
    answered = draws.answered(curve, 50, 10, seed=0, run=0)
    x, y = torch.tensor(data.inputs), torch.tensor(data.labels)
    test_x, test_y = torch.tensor(dataset.inputs("test")), torch.tensor(dataset.y_test)
    held = [
        (torch.tensor(shares[[i]].indices.astype(np.int64)), torch.tensor(shares[[i]].data).float())
        for i in range(10)
    ]
    accuracy, moments = [], []

    def train() -> None:
        model = torch.nn.Linear(784, 10)
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
        params = list(model.parameters())
        for t in range(50):
            estimate, full = ([torch.zeros_like(p) for p in params] for _ in range(2))
            noise = 0.0
            for i, (examples, weight) in enumerate(held):
                losses = torch.nn.functional.cross_entropy(
                    model(x[examples]), y[examples], reduction="none"
                )
                answer = torch.autograd.grad((weight * losses).sum(), params)
                noise += sum(float((g**2).sum()) for g in answer)
                for k, g in enumerate(answer):
                    full[k] += g
                    if answered[t, i]:
                        estimate[k] += g / 0.5
            sampled = sum(float((g**2).sum()) for g in estimate)
            exact = sum(float((g**2).sum()) for g in full) + noise  # p / (1 - p) = 1
            with torch.no_grad():
                for p, g in zip(params, estimate, strict=True):
                    p -= 0.1 * 0.97**t / 300 * g
                right = (model(test_x).argmax(dim=1) == test_y).float().mean()
        accuracy.append(float(right))
        moments.append((sampled, exact))

    seconds = seconds_of(train, 2)
    curves = figure_curves()
    ours = one_core_run(curves) / len(curves)
    test = Evaluation(dataset)
    check = example_space.simulate_run(dataset, test, [curve], **PAPER, run=0)
    return {
        "PyTorch loop, s per run and curve": seconds,
        "fedcommons, s per run and curve": ours,
        "times faster": seconds / ours,
        "final accuracy, PyTorch": accuracy[-1],
        "final accuracy, fedcommons": float(check.correct[0, -1] / 10_000),
        "last second moment, PyTorch": moments[-1][0],
        "last second moment, fedcommons": float(check.second_moment[0, -1]),
        "last exact second moment, PyTorch": moments[-1][1],
        "last exact second moment, fedcommons": float(check.second_moment_exact[0, -1]),
    }


def growth() -> dict[str, Any]:
    """Time as one size grows, per unit of it."""
    base = figure_curves()
    table: dict[str, Any] = {}
    many = [replace(c, learning_rate=0.1 + k / 1000) for k in range(6) for c in base]
    for n in (15, 30, 60, 120):
        table[f"{n} curves"] = {"ms per curve": one_core_run(many[:n]) / n * 1e3}
    small_study(1)  # loads the data
    for runs in (2, 4, 8):
        table[f"{runs} runs"] = {"s per run": small_study(runs) / runs}
    for n in (10, 20, 40, 80):
        seconds = one_core_run(base, n_clients=n, n_rounds=20)
        table[f"N = {n}"] = {"s per run": seconds}
    for k in (15, 30, 60, 120):
        seconds = one_core_run(base, class_size=k, n_rounds=20)
        table[f"M = {10 * k}"] = {"ms per example": seconds / (10 * k) * 1e3}
    return table


def small_study(runs: int) -> float:
    """Seconds for so many runs of Figure 2, ten rounds each, on one core."""
    study = replace(studies.paper().only(["figure2"]), runs=runs, rounds=10)
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        with folder.opened(study):
            folder.begin(study, {})
            start = time.perf_counter()
            runner.run_study(study, folder, workers=1)
            return time.perf_counter() - start


def memory_of(runs: int = 10, rates: int = 1, clients: int = 10, class_size: int = 30) -> float:
    """Peak memory of a process that runs a small study of these sizes, in MB.

    Figure 2 has 15 curves; with several learning rates it has as many times that.
    """
    code = f"""
import tempfile
from dataclasses import replace
from fedcommons.simulate import runner, studies, tables
from fedcommons.simulate.folder import Folder
study = studies.paper().only(["figure2"])
lines = tuple(
    replace(line, curve=replace(line.curve, learning_rate=0.1 + k / 1000))
    for k in range({rates}) for line in study.figures[0].lines
)
study = replace(
    study, figures=(replace(study.figures[0], lines=lines),), runs={runs}, rounds=2,
    clients={clients}, class_size={class_size},
)
with tempfile.TemporaryDirectory() as path:
    folder = Folder(path)
    with folder.opened(study):
        folder.begin(study, {{}})
        runner.run_study(study, folder, workers=1)
        tables.build(study, folder, runner.study_data(study))
lines = open("/proc/self/status").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return float(result.stdout) / 1024


def peak_memory() -> dict[str, Any]:
    """As one size grows: the runs must not matter, the others at most in proportion."""
    sizes: dict[str, dict[str, int]] = {
        **{f"{n} runs": {"runs": n} for n in (10, 100, 1000)},
        **{f"{15 * n} curves": {"rates": n} for n in (1, 2, 4, 8)},
        **{f"N = {n}": {"clients": n} for n in (10, 20, 40, 80)},
        **{f"M = {10 * n}": {"class_size": n} for n in (15, 30, 60, 120)},
    }
    return {name: {"MB": memory_of(**size)} for name, size in sizes.items()}


def beside(theirs: float, alone: float, stacked: float) -> dict[str, float]:
    return {
        "s per run of 50 rounds": theirs,
        "x ours alone": theirs / alone,
        "x ours, one of many": theirs / stacked,
    }


def frameworks() -> dict[str, Any]:
    """The same curve on other frameworks, where they are installed, and here.

    Ours is on one core: alone, and as one of the curves of Figures 1 and 2, which a run stacks.
    """
    alone = one_core_run([ONE_CURVE])
    curves = figure_curves()
    stacked = one_core_run(curves) / len(curves)
    table: dict[str, Any] = {
        "fedcommons, alone": beside(alone, alone, stacked),
        "fedcommons, one of many curves": beside(stacked, alone, stacked),
    }
    for module, script in FRAMEWORKS:
        if importlib.util.find_spec(module) is None or not (PEERS / script).exists():
            print(
                f"{module} is not installed: benchmarks/peers/README.md says how to compare with it"
            )
            continue
        with tempfile.TemporaryDirectory() as path:
            out = Path(path) / "result.json"
            subprocess.run(
                [sys.executable, PEERS / script, "--rounds", "50", "--json", out],
                check=True,
                capture_output=True,
            )
            content = json.loads(out.read_text())
        table[content["name"]] = beside(50 * content["seconds_per_round"], alone, stacked)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="only the whole reproduction, small")
    options = parser.parse_args()
    results: dict[str, Any] = {"whole reproduction": whole_reproduction(options.runs)}
    if not options.quick:
        torch = against_torch()
        if torch:
            results["against a PyTorch loop"] = torch
        else:
            print(
                "PyTorch is not installed: benchmarks/peers/README.md says how to compare with it"
            )
        results["other frameworks"] = frameworks()
        results["growth"] = growth()
        results["peak memory"] = peak_memory()
    for title, rows in results.items():
        print(f"\n{title}")
        for name, value in rows.items():
            cells = value.items() if isinstance(value, dict) else [("", value)]
            print(f"  {name:36}", *(f"{number:10.3f} {unit}" for unit, number in cells))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory of this process: {peak:.0f} MB")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
