"""How fast the batched engine is: runs together against a plain PyTorch loop.

    python benchmarks/models.py [--runs 20] [--rounds 50] [--json FILE]

The same work on one core: coded gradient descent at the paper's size (N = 10 clients, M = 300
examples of MNIST, (c, d) = (0.2, 3), p = 0.5, 50 rounds), the same model, from the same parameters,
with the same stragglers. The loop goes run by run, round by round and client by client, with
autograd, over the clients that answer. Alone, and with counting after every round what the model
gets right of 1,000 and of all 10,000 test images. There both are bound by products: the MLP's are
done once for the examples of a run (perceptron_on_examples.py) and are fewer by the factor that is
printed, which more rounds raise. The CNN and a torch module by import path, the same MLP, are
trained by PyTorch in both, in at most 5 runs of 10 rounds. Ratios are within one run of this
script; times are the processor's, the best of two.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from fedcommons import coding, datasets
from fedcommons.datasets import Dataset
from fedcommons.simulate import batched, draws, models
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.models.mlp import HIDDEN
from fedcommons.streams import stream
from fedcommons.tasks.cross_entropy import CrossEntropy

CURVE = Curve("single-class", 0.0, 0.5, 0.2, 3, learning_rate=0.5)
SIZES: dict[str, Any] = {"n_clients": 10, "class_size": 30, "seed": 0}


def perceptron(n_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """The model mlp as a torch module."""
    layers = (nn.Linear(math.prod(input_shape), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, n_classes))
    return nn.Sequential(nn.Flatten(), *layers)


def module(name: str, run: int) -> tuple[nn.Module, tuple[int, ...]]:
    """The model as a run begins with it, and the shape of its inputs."""
    ours: Any = models.load(name, (28, 28), CrossEntropy(10))
    start = torch.tensor(ours.initial(rng=stream(0, "model", run)))
    found = perceptron(10, (28, 28)) if name == "mlp" else ours.make()
    parameters = list(found.parameters())
    for p, part in zip(parameters, start.split([p.numel() for p in parameters]), strict=True):
        inputs_first = name == "mlp" and p.dim() == 2
        p.data.copy_(part.view(*p.shape[::-1]).T if inputs_first else part.view_as(p))
    return found, (28, 28) if name == "mlp" else ours.input_shape


def loop(dataset: Dataset, curve: Curve, runs: int, rounds: int) -> list[list[int]]:
    """Test examples right after each round of each run, by a plain loop."""
    test_y = torch.tensor(dataset.y_test)
    correct = []
    for run in range(runs):
        data = draws.training_set(dataset, 30, seed=0, run=run)
        placement = draws.share(curve, data.labels, 10, seed=0, run=run).placement
        shares = coding.by_name(curve.code, placement, straggler_prob=curve.straggler_prob)
        answered = draws.answered(curve, rounds, 10, seed=0, run=run)
        model, shape = module(curve.model, run)
        params = list(model.parameters())
        x, y = torch.tensor(data.inputs).view(-1, *shape), torch.tensor(data.labels)
        test_x = torch.tensor(dataset.inputs("test")).view(-1, *shape)
        held = []
        for i in range(10):
            row = slice(shares.indptr[i], shares.indptr[i + 1])
            examples = torch.tensor(shares.indices[row].astype(np.int64))
            held.append((x[examples], y[examples], torch.tensor(shares.data[row]).float()))
        right = []
        for t in range(rounds):
            estimate = [torch.zeros_like(p) for p in params]
            for i in np.flatnonzero(answered[t]):
                inputs, labels, weight = held[i]
                losses = torch.nn.functional.cross_entropy(model(inputs), labels, reduction="none")
                answer = torch.autograd.grad((weight * losses).sum(), params)
                for total, part in zip(estimate, answer, strict=True):
                    total += part / (1 - curve.straggler_prob)
            with torch.no_grad():
                for p, total in zip(params, estimate, strict=True):
                    p -= curve.learning_rate * curve.decay**t / 300 * total
                if len(test_y):
                    right.append(int((model(test_x).argmax(dim=1) == test_y).sum()))
        correct.append(right)
    return correct


def together(dataset: Dataset, curve: Curve, runs: int, rounds: int) -> list[list[int]]:
    """The same by the batched engine, in its blocks."""
    size = batched.block_size(1, 30)
    found: list[list[int]] = []
    for first in range(0, runs, size):
        block = range(first, min(runs, first + size))
        results = batched.simulate_block(dataset, [curve], **SIZES, n_rounds=rounds, runs=block)
        found += [result.correct[0, 1:].tolist() for result in results]
    return found


def best_of_two(work: Any, *arguments: Any) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(2):
        start = time.process_time()
        result = work(*arguments)
        best = min(best, time.process_time() - start)
    return best, result


def compare(mnist: Dataset, name: str, n_test: int, runs: int, rounds: int) -> dict[str, float]:
    data = Dataset(
        "mnist", mnist.x_train, mnist.y_train, mnist.x_test[:n_test], mnist.y_test[:n_test]
    )
    curve = replace(CURVE, model=name)
    ours, right = best_of_two(together, data, curve, runs, rounds)
    theirs, right_loop = best_of_two(loop, data, curve, runs, rounds)
    row = {
        "loop, ms per run and round": theirs / runs / rounds * 1e3,
        "fedcommons, ms per run and round": ours / runs / rounds * 1e3,
        "times faster": theirs / ours,
    }
    if n_test:
        gap = np.abs(np.array(right) - np.array(right_loop)).max() / n_test
        row["largest difference in accuracy"] = float(gap)
    if n_test and name == "mlp":
        F, M, H = 784, 300, HIDDEN
        row["times fewer products in counting"] = F * H / (M * H + F * (M + H) / rounds)
    return row


def measure(runs: int, rounds: int) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    mnist = datasets.mnist()
    table = {}
    with threadpool_limits(1):
        for name in ("mlp", "cnn", "models:perceptron"):
            few = name != "mlp"
            for n_test in (0, 1000) if few else (0, 1000, 10_000):
                title = f"{name}, {n_test:,} test images a round" if n_test else name
                size = (min(runs, 5), min(rounds, 10)) if few else (runs, rounds)
                table[title] = compare(mnist, name, n_test, *size)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    table = measure(options.runs, options.rounds)
    for title, rows in table.items():
        print(f"\n{title}")
        for name, number in rows.items():
            print(f"  {name:36}{number:10.3f}")
    if options.json:
        options.json.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
