"""What adopting fedcommons does to somebody else's app: the three of examples/, before and after.

    python benchmarks/adoption.py [--seeds 10] [--apps pytorch ...] [--estimator NAME] [--json FILE]

Both sides of an app run on the embedded engine as they are, with their own defaults: the same sites
and data, the same initial model, the same absences (a site that is absent does not train), the same
seeds of local training, the same test data, which no site has. A row is the accuracy after ten
rounds, in per cent: before, after, and the mean of their paired differences over seeds with a 95 %
interval of Student's t. Two are as good as each other if the interval lies within half a point,
which is more than two one-sided tests at 5 % ask for.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import logging
import os
import sys
import tempfile
import time
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
import torch
from flwr.app import Error, Message
from flwr.common.logger import FLOWER_LOGGER
from scipy import stats

from fedcommons import datasets
from fedcommons.federate.server import settings
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid, serve

EXAMPLES = Path(__file__).parents[1] / "examples"
APPS = ("pytorch", "sklearn", "tabular")
N_SITES, MARGIN = 10, 0.5
LOPSIDED = 0.3
CASES = (  # what it shows; concentration of labels; p; copies of what may be shared
    ("lopsided, all answer", LOPSIDED, 0.0, 0),
    ("lopsided, half are missing", LOPSIDED, 0.5, 0),
    ("lopsided, half are missing, a fifth shared", LOPSIDED, 0.5, 3),
    ("alike, all answer", None, 0.0, 0),
    ("alike, half are missing", None, 0.5, 0),
)


class Paired(EmbeddedGrid):
    """A grid in which a site's absences and its random numbers are the same on both sides."""

    def decide(self, seed: int, p: float, rounds: int) -> None:
        self.seed, self.asked = seed, dict.fromkeys(self.contexts, 0)
        self.answers = np.random.default_rng([seed, 1]).random((rounds, N_SITES)) >= p

    def _handle(self, message: Message) -> Message | None:
        if message.metadata.message_type.startswith("evaluate"):  # changes no model
            return Message(Error(2, "not asked"), reply_to=message)
        if message.metadata.message_type.startswith("train"):
            node = message.metadata.dst_node_id
            t, k = self.asked[node], list(self.contexts).index(node)
            self.asked[node] += 1
            if not self.answers[t, k]:
                return Message(Error(2, "absent"), reply_to=message)
            seed_all(10_000 * self.seed + 100 * t + k)
        return super()._handle(message)


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002, scikit-learn's


@contextlib.contextmanager
def loaded(app: str, side: str) -> Iterator[dict[str, ModuleType]]:
    """The modules of an app; those of its other side have the same names."""
    sys.path.insert(0, str(EXAMPLES / app / side))
    try:
        names = ("server_app", "client_app", "task")
        yield {name: importlib.import_module(f"{app}_app.{name}") for name in names}
    finally:
        sys.path.pop(0)
        for name in [name for name in sys.modules if name.split(".")[0] == f"{app}_app"]:
            del sys.modules[name]


def score(app: str, task: ModuleType) -> float:
    """The accuracy of the model that an app has saved, on data that no site has, in per cent."""
    if app == "sklearn":
        model = task.create_model(1.0)
        task.set_params(model, list(np.load("final_model.npz").values()))
        return 100 * model.score(task.mnist().inputs("test"), task.mnist().y_test)
    net = (task.Net if app == "pytorch" else task.Classifier)()
    net.load_state_dict(torch.load("final_model.pt"))
    if app == "pytorch":
        unseen, test = task.as_dataset(task.mnist().x_test, task.mnist().y_test), task.test
    else:
        unseen = task.as_dataset(*(part[task.N_RECORDS :] for part in task.table()))
        test = task.evaluator
    return 100 * test(net, torch.utils.data.DataLoader(unseen, 1000))[1]


@functools.cache
def run(
    app: str, side: str, seed: int, concentration: float | None, p: float, copies: int, rounds: int
) -> float:
    """One run of one side of an app, which knows of copies after it adopted fedcommons only."""
    config = tomllib.loads((EXAMPLES / app / side / "pyproject.toml").read_text())["tool"]["flwr"]
    run_config = {**config["app"]["config"], "num-server-rounds": rounds}
    if side == "after":
        run_config["copies"] = copies
    nodes = [{"partition-id": k, "num-partitions": N_SITES} for k in range(N_SITES)]
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        loaded(app, side) as found,
    ):
        os.environ["FLWR_HOME"] = folder
        found["task"].SEED, found["task"].CONCENTRATION = seed, concentration
        grid = Paired(found["client_app"].app, nodes, run_config)
        grid.decide(seed, p, rounds)
        seed_all(seed)
        serve(found["server_app"].app, grid, run_config)
        return score(app, found["task"])


def compared(app: str, case: tuple[Any, ...], seeds: range, rounds: int) -> dict[str, Any]:
    """Both sides of an app over the seeds."""
    _, concentration, p, copies = case
    before, after = (
        np.array([run(app, side, seed, concentration, p, n, rounds) for seed in seeds])
        for side, n in (("before", 0), ("after", copies))
    )
    gain = after - before
    half = float(stats.t.ppf(0.975, len(seeds) - 1) * gain.std(ddof=1) / len(seeds) ** 0.5)
    return {
        "before": float(before.mean()),
        "after": float(after.mean()),
        "difference": float(gain.mean()),
        "half of its 95 % interval": half,
        "as good": bool(abs(gain.mean()) + half < MARGIN),
        "better": bool(gain.mean() > half),
        "of each seed": {"before": before.tolist(), "after": after.tolist()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=10, help="earlier ones were tuned on")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--apps", nargs="+", default=APPS, choices=APPS)
    parser.add_argument("--cases", nargs="+", type=int, default=range(len(CASES)))
    parser.add_argument(
        "--estimator",
        default=settings.DEFAULT_ESTIMATOR,
        help="the one that a federation has unless another is named",
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    FLOWER_LOGGER.setLevel(logging.CRITICAL)
    logging.getLogger("fedcommons").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    settings.DEFAULT_ESTIMATOR = arguments.estimator
    datasets.mnist = functools.cache(datasets.mnist)  # apps are imported anew for every run
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    results: dict[str, Any] = {}
    print("| app | sites | before | after | difference |\n|---|---|---|---|---|")
    for app in arguments.apps:
        for case in (CASES[k] for k in arguments.cases):
            start = time.perf_counter()
            with contextlib.redirect_stdout(None):
                found = compared(app, case, seeds, arguments.rounds)
            results.setdefault(app, {})[case[0]] = found
            words = "as good" if found["as good"] else "better" if found["better"] else ""
            print(
                f"| {app} | {case[0]} | {found['before']:.1f} | {found['after']:.1f} | "
                f"{found['difference']:+.2f} ± {found['half of its 95 % interval']:.2f} {words} |",
                flush=True,
            )
            print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
