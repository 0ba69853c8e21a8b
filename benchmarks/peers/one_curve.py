"""The work that every peer does: one run of one curve of the paper.

N = 10 clients with one class of MNIST each, 30 images per class, c = 0.2 shared with d = 3 others.
In a round each client that answers (p = 0.5) takes one gradient of the weighted loss over what it
holds, the server steps along the sum / (1 - p) and tests the model on all 10,000 test images.
"""

from __future__ import annotations

import argparse
import json
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from fedcommons import datasets
from fedcommons.simulate import draws, example_space, scoring
from fedcommons.simulate.curves import Curve

CURVE = Curve("single-class", 0.0, 0.5, 0.2, 3)
N, CLASS_SIZE = 10, 30
M = 10 * CLASS_SIZE
DRAW = {"seed": 0, "run": 0}
TOLERANCE = 0.002
FULL_RUN = 50

Tensors = tuple[torch.Tensor, ...]


@cache
def holdings() -> list[Tensors]:
    """What every client holds: inputs, labels and coding weights 1 / d_j."""
    data = draws.training_set(datasets.mnist(), CLASS_SIZE, **DRAW)
    placement = draws.share(CURVE, data.labels, N, **DRAW).placement
    shares = draws.shares(CURVE, placement, data.products)
    held = []
    for client in range(N):
        row = slice(shares.indptr[client], shares.indptr[client + 1])
        examples, weights = shares.indices[row], shares.data[row].astype(np.float32)
        arrays = data.inputs[examples], data.labels[examples], weights
        held.append(tuple(torch.from_numpy(array) for array in arrays))
    return held


def answered(rounds: int) -> np.ndarray:
    """Who answers: (rounds, N). At seed 0, run 0 somebody does in each of the first 50 rounds."""
    return draws.answered(CURVE, rounds, N, **DRAW)


def test_set() -> Tensors:
    dataset = datasets.mnist()
    return torch.from_numpy(dataset.inputs("test")), torch.from_numpy(dataset.y_test)


class Softmax(torch.nn.Linear):
    """Multinomial logistic regression from zero weights."""

    def __init__(self) -> None:
        super().__init__(784, 10)
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.zeros_(self.bias)

    def loss(self, x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The weighted sum of the examples' losses."""
        return weights @ torch.nn.functional.cross_entropy(self(x), y, reduction="none")

    @torch.no_grad()
    def count_correct(self, x: torch.Tensor, y: torch.Tensor) -> int:
        return int((self(x).argmax(dim=1) == y).sum())


def fedcommons_accuracy(rounds: int) -> np.ndarray:
    """The test accuracy after every round by this project's engine: (rounds,)."""
    dataset = datasets.mnist()
    test = scoring.Evaluation(dataset)
    sizes = {"n_clients": N, "class_size": CLASS_SIZE, "n_rounds": rounds}
    result = example_space.simulate_run(dataset, test, [CURVE], **sizes, **DRAW)
    return result.correct[0, 1:] / len(dataset.y_test)


def arguments(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds must be at least 2, got {options.rounds}")
    return options


def report(
    name: str,
    packages: tuple[str, ...],
    options: argparse.Namespace,
    *,
    startup: float,
    seconds: list[float],
    accuracy: list[float],
) -> None:
    """Print and keep the figures of the timed rounds, which are the last ones.

    Stops with an error where the accuracy after any of them is not that of fedcommons: then the
    work was not the same.
    """
    ours = fedcommons_accuracy(options.rounds)
    per_round = float(np.mean(seconds))
    difference = float(np.abs(ours[-len(accuracy) :] - accuracy).max())
    result = {
        "name": name,
        "seconds_per_round": per_round,
        "startup_seconds": startup,
        "final_accuracy": accuracy[-1],
        "rounds": options.rounds,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
    }
    rows = {
        "s to start, first answer included": startup,
        f"s per round, mean of {len(seconds)}": per_round,
        "s per round, best": min(seconds),
        f"s per run of {FULL_RUN} rounds, scaled": FULL_RUN * per_round,
        f"accuracy after round {options.rounds}": accuracy[-1],
        "the same by fedcommons": float(ours[-1]),
        "largest difference in a timed round": difference,
    }
    print(f"\n{name} ({', '.join(f'{p} {v}' for p, v in result['versions'].items())})")
    for row, value in rows.items():
        print(f"  {row:36} {value:10.4f}")
    if difference > TOLERANCE:
        raise SystemExit(f"accuracy differs from fedcommons by {difference} > {TOLERANCE}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
