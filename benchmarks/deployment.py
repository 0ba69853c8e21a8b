"""How long a round takes in a real deployment: ours, and Flower's own.

    python benchmarks/deployment.py [--rounds 21] [--json FILE]

One SuperLink and five SuperNodes on this machine, with TLS and node authentication. Two runs take
turns, round by round: coded rounds, and Flower's FedAvg over `send_and_receive` with the same model
on the same examples. Each run's first round, in which the app is installed, is left out. What
copies cost in computing is measured apart: a site holds 1 + dc times as many examples as it owns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fedcommons import datasets
from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.supervisor import wait_until

APPS = Path(__file__).parent / "deployment_apps"
SITES = [f"site-{k}" for k in range(5)]
N_OWN, COPIES, SHAREABLE = 60, 3, 0.2
RATIO_AT_MOST, SECONDS_AT_MOST = 1.15, 7.5


def write_benchmark_app(folder: Path, turns: Path) -> Path:
    """The app of `federate new` with the server and client of this benchmark."""
    name = folder.name
    write_app(folder)
    for part in ("server", "client"):
        shutil.copy(APPS / f"{name}_{part}.py", folder / name / f"{part}_app.py")
    shutil.copy(APPS / "turns.py", folder / name / "turns.py")
    with (folder / "pyproject.toml").open("a") as file:  # the run config is its last table
        file.write(f"turns = {json.dumps(str(turns))}\n")
    return folder


def write_data(folder: Path) -> dict[str, Path]:
    """60 digits of two classes for each site, a fifth of which may be shared, as files."""
    mnist, rng = datasets.mnist(), np.random.default_rng(0)
    paths = {site: folder / f"{site}.npz" for site in SITES}
    for k, path in enumerate(paths.values()):
        rows = rng.permutation(np.flatnonzero(mnist.y_train % len(SITES) == k))[:N_OWN]
        marks = np.arange(N_OWN) % 5 == 0
        np.savez(path, x=mnist.x_train[rows], y=mnist.y_train[rows], shareable=marks)
    return paths


def measure(n_rounds: int) -> dict[str, Any]:
    """Seconds of every round of both runs, and of a gradient on what sites own and hold."""
    with Deployment() as deployment:
        deployment.add_sites(SITES, data=write_data(deployment.folder))
        turns = deployment.folder / "turns"
        turns.mkdir()
        (turns / "turn").write_text("coded")
        config = {"state-dir": str(deployment.folder / "state"), "num-rounds": n_rounds}
        config |= {"sites": len(SITES), "copies": COPIES}
        apps = {
            name: write_benchmark_app(deployment.folder / name, turns)
            for name in ("coded", "plain")
        }
        coded = deployment.start_run(apps["coded"], config)
        held = [deployment.nodes[site].folder / "held.npz" for site in SITES]
        wait_until("first answers", lambda: all(path.exists() for path in held), 300)
        plain = deployment.start_run(apps["plain"], config)
        for run in (coded, plain):
            ended = deployment.finish_run(run, 60 * n_rounds)
            if not ended.is_completed:
                sys.exit(f"the run is {ended.status}:\n{ended.log}")
        rounds = {
            name: [json.loads(line) for line in (turns / f"{name}.jsonl").read_text().splitlines()]
            for name in apps
        }
        return {"rounds": rounds, "compute": [compute(path) for path in held]}


def compute(held: Path) -> dict[str, float]:
    """How many examples a site owns and holds, and the seconds of a gradient on either."""
    spec = importlib.util.spec_from_file_location("plain_client", APPS / "plain_client.py")
    assert spec is not None
    assert spec.loader is not None
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    with np.load(held) as file:
        x, y = file["x"], file["y"]
    beta = np.zeros((785, 10))
    seconds = {}
    for name, n in (("own", N_OWN), ("held", len(y))):
        times = []
        for _ in range(200):
            start = time.perf_counter()
            client.gradient(beta, x[:n], y[:n])
            times.append(time.perf_counter() - start)
        seconds[name] = float(np.median(times))
    return {"own": N_OWN, "held": len(y), "own_s": seconds["own"], "held_s": seconds["held"]}


def summarise(found: dict[str, Any]) -> dict[str, Any]:
    """Means, their ratio, and its 95 % interval from the paired rounds' log ratios."""
    ours, flowers = (
        np.array([r["seconds"] for r in found["rounds"][name][1:]]) for name in ("coded", "plain")
    )
    logs = np.log(ours / flowers)
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    compute_factor = np.mean([c["held_s"] / c["own_s"] for c in found["compute"]])
    return {
        "rounds": len(logs),
        "ours_s": float(ours.mean()),
        "flower_s": float(flowers.mean()),
        "ratio": float(np.exp(logs.mean())),
        "ratio_low": float(np.exp(logs.mean() - half)),
        "ratio_high": float(np.exp(logs.mean() + half)),
        "all_answered": all(
            r["answered"] == len(SITES)
            for name in ("coded", "plain")
            for r in found["rounds"][name]
        ),
        "held_over_own": float(np.mean([c["held"] / c["own"] for c in found["compute"]])),
        "expected_held_over_own": 1 + COPIES * SHAREABLE,
        "compute_held_over_own": float(compute_factor),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21, help="of each; the first does not count")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--strict", action="store_true", help="fail beyond a limit")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what was started
    found = measure(arguments.rounds)
    result = summarise(found)
    print(f"{len(SITES)} nodes, {result['rounds']} rounds of each, in turns")
    print(f"coded round            {result['ours_s']:6.2f} s   (at most {SECONDS_AT_MOST})")
    print(f"Flower's FedAvg round  {result['flower_s']:6.2f} s")
    print(
        f"ratio                  {result['ratio']:6.3f}     95 % interval "
        f"{result['ratio_low']:.3f} to {result['ratio_high']:.3f} (at most {RATIO_AT_MOST})"
    )
    print(
        f"apart: copies          {result['held_over_own']:6.2f}     times as many examples "
        f"(1 + dc = {result['expected_held_over_own']:.2f}), "
        f"{result['compute_held_over_own']:.2f} times the seconds of a gradient"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({**result, **found}, indent=2) + "\n")
    if not result["all_answered"]:
        sys.exit("not every node answered in every round")
    within = result["ours_s"] <= SECONDS_AT_MOST and result["ratio_high"] <= RATIO_AT_MOST
    if arguments.strict and not within:
        sys.exit("beyond a limit")


if __name__ == "__main__":
    main()
