"""How fast the batched engine is: an MLP's runs together against a plain PyTorch loop.

    python benchmarks/models.py [--runs 20] [--rounds 20] [--json FILE]

The same work on one core: coded gradient descent at the paper's size (N = 10 clients, M = 300
examples of MNIST, (c, d) = (0.2, 3), p = 0.5), the same model, from the same parameters, with the
same stragglers. The loop goes run by run, round by round and client by client, with autograd, over
the clients that answer. Alone, and with counting after every round what the model gets right of
1,000 and of all 10,000 test images, where both are bound by the same kind of products. Ratios are
within one run of this script; times are the processor's, the best of two.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from fedcommons import datasets
from fedcommons.datasets import Dataset
from fedcommons.simulate import batched, draws, models
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.models.mlp import HIDDEN
from fedcommons.streams import stream

CURVE = Curve("single-class", 0.0, 0.5, 0.2, 3, learning_rate=0.5, model="mlp")
SIZES: dict[str, Any] = {"n_clients": 10, "class_size": 30, "seed": 0}


def loop(dataset: Dataset, curve: Curve, runs: int, rounds: int) -> list[list[int]]:
    """Test examples right after each round of each run, by a plain loop."""
    test_x, test_y = torch.tensor(dataset.inputs("test")), torch.tensor(dataset.y_test)
    ours = models.load("mlp", (28, 28), 10)
    correct = []
    for run in range(runs):
        data = draws.training_set(dataset, 30, seed=0, run=run)
        placement = draws.share(curve, data.labels, 10, seed=0, run=run).placement
        shares = draws.shares(curve, placement, data.products)
        answered = draws.answered(curve, rounds, 10, seed=0, run=run)
        x, y = torch.tensor(data.inputs), torch.tensor(data.labels)
        held = []
        for i in range(10):
            row = slice(shares.indptr[i], shares.indptr[i + 1])
            examples = torch.tensor(shares.indices[row].astype(np.int64))
            held.append((x[examples], y[examples], torch.tensor(shares.data[row]).float()))
        model = torch.nn.Sequential(
            torch.nn.Linear(784, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10)
        )
        params = list(model.parameters())
        start = ours.initial(rng=stream(0, "model", run))
        w1, b1, w2, b2 = np.split(start, np.cumsum([784 * HIDDEN, HIDDEN, HIDDEN * 10]))
        with torch.no_grad():
            params[0].copy_(torch.tensor(w1.reshape(784, HIDDEN).T))
            params[1].copy_(torch.tensor(b1))
            params[2].copy_(torch.tensor(w2.reshape(HIDDEN, 10).T))
            params[3].copy_(torch.tensor(b2))
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


def measure(runs: int, rounds: int) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    mnist = datasets.mnist()
    table = {}
    with threadpool_limits(1):
        for name, n_test in (
            ("training", 0),
            ("training, 1,000 test images a round", 1000),
            ("training, 10,000 test images a round", 10_000),
        ):
            data = Dataset(
                "mnist", mnist.x_train, mnist.y_train, mnist.x_test[:n_test], mnist.y_test[:n_test]
            )
            ours, right = best_of_two(together, data, CURVE, runs, rounds)
            theirs, right_loop = best_of_two(loop, data, CURVE, runs, rounds)
            table[name] = {
                "loop, ms per run and round": theirs / runs / rounds * 1e3,
                "fedcommons, ms per run and round": ours / runs / rounds * 1e3,
                "times faster": theirs / ours,
            }
            if n_test:
                gap = np.abs(np.array(right) - np.array(right_loop)).max() / n_test
                table[name]["largest difference in accuracy"] = float(gap)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
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
