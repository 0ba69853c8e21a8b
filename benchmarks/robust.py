"""What hostile sites do to a training, and what it costs to withstand them.

    python benchmarks/robust.py [--quick] [--honest] [--json FILE]

MNIST, 300 examples of 10 sites, softmax regression; 20 % shared with 3 others (d = 3), sites
missing independently with p = 0.3, learning rate 0.1 falling by 3 % a round, 50 rounds. Of the ten
none, one or two are hostile whenever they answer: they send their answer times -10, a constant as
large as their answer times 100, or the gradient of wrong labels. With `--honest` nobody is, and
what is measured is how large honest answers get per unit of share, relative to the bound.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from fedcommons import bounds, coding, estimators, partition, privacy, sharing
from fedcommons.batches import batches
from fedcommons.datasets import mnist
from fedcommons.placement import Placement
from fedcommons.tasks import softmax

N, M, ROUNDS, CLASSES = 10, 300, 50, 10
DATA = mnist()
Attack = Callable[[np.ndarray, np.ndarray], np.ndarray]  # the honest answer, its rows' one
ATTACKS: dict[str, Attack | None] = {
    "nobody": None,
    "sign flip x10": lambda f, _wrong: -10 * f,
    "constant": lambda f, _wrong: np.full_like(f, 100 * np.linalg.norm(f) / np.sqrt(f.size)),
    "label flip": lambda _f, wrong: wrong,
}
LINES = ("coded sum", "bounded", "memory", "bounded memory", "trimmed mean")


class Federation:
    """Who holds what in one run, and what sites answer."""

    def __init__(self, seed: int, split: str, c: float, d: int) -> None:
        rng = np.random.default_rng(seed)
        rows = rng.choice(len(DATA.y_train), M, replace=False)
        if split == "single-class":  # as many of each class
            rows = np.concatenate(
                [
                    rng.choice(np.flatnonzero(DATA.y_train == k), M // CLASSES)
                    for k in range(CLASSES)
                ]
            )
        self.x = softmax.with_bias(DATA.inputs("train", rows, dtype=np.float64))
        self.y = DATA.y_train[rows]
        part = {"single-class": partition.single_class, "IID": partition.iid}.get(split)
        owner = (
            part(self.y, N, rng=rng) if part else partition.dirichlet(self.y, N, alpha=0.1, rng=rng)
        )
        shareable = privacy.proportion(self.y, owner, c, n_clients=N, rng=rng)
        placement: Placement = sharing.randomised(owner, shareable, d, n_clients=N, rng=rng)
        shares = coding.equal_split(placement)
        self.held = [
            (shares.indices[a:b], shares.data[a:b])
            for a, b in itertools.pairwise(shares.indptr.tolist())
        ]
        self.weights = np.array([share.sum() for _, share in self.held])
        self.rng = rng

    def answers(self, beta: np.ndarray, steps: int = 1, size: int | None = None, rate: float = 0.1):
        """(N, P): gradients, or W_i times how far local steps went, over the rate."""
        found = []
        for rows, share in self.held:
            weight, counts = coding.loss_weights(share)
            local = beta.copy()
            for some in batches(len(rows), size, steps, rng=self.rng):
                x, y, w = self.x[rows[some]], self.y[rows[some]], weight[some]
                local -= rate * softmax.weighted_gradient(local, x, y, w) / max(len(some), 1)
            found.append(
                (counts * (beta - local) / rate).ravel() if len(rows) else 0 * beta.ravel()
            )
        return np.array(found)

    def wrong(self, beta: np.ndarray) -> np.ndarray:
        """(N, P) of wrong labels, each the next class."""
        return np.array(
            [
                softmax.weighted_gradient(
                    beta, self.x[rows], (self.y[rows] + 1) % CLASSES, share
                ).ravel()
                for rows, share in self.held
            ]
        )


def accuracy(beta: np.ndarray) -> float:
    return float(((TEST_X @ beta).argmax(axis=1) == DATA.y_test).mean())


TEST_X = softmax.with_bias(DATA.inputs("test", dtype=np.float64))


def trained(line: str, attack: str, n_hostile: int, split: str, seed: int) -> tuple[float, int]:
    """The accuracy after the last round, and how many answers were clipped."""
    made = Federation(seed, split, 0.2, 3)
    rng = np.random.default_rng([seed, 7])
    p, hostile = 0.3, ATTACKS[attack]
    kind = {
        "coded sum": estimators.coded_sum,
        "memory": estimators.memory,
        "trimmed mean": estimators.trimmed_mean,
    }[line.removeprefix("bounded ") if line != "bounded" else "coded sum"]
    sizes, n_clipped = bounds.Sizes.start(N), 0
    beta = np.zeros((made.x.shape[1], CLASSES))
    state = estimators.start(kind, N, beta.size)
    for t in range(ROUNDS):
        f = made.answers(beta)
        answered = rng.random(N) >= p
        if hostile is not None:
            wrong = made.wrong(beta)
            for i in range(n_hostile):
                f[i] = hostile(f[i], wrong[i])
        if line.startswith("bounded"):
            size = bounds.per_unit(np.linalg.norm(f, axis=1), made.weights)
            sizes = sizes.observe(size, answered)
            factors = np.where(answered, sizes.factors(size, bounds.FACTOR), 1.0)
            n_clipped += int((factors < 1).sum())
            f = f * factors[:, None]
        estimate, state = estimators.estimate(kind, state, f, answered, p, weights=made.weights)
        beta = beta - 0.1 * 0.97**t / M * estimate.reshape(beta.shape)
    return accuracy(beta), n_clipped


def honest_ratios(quick: bool) -> Iterator[tuple[str, float, int, int]]:
    """How far above the median honest answers are: (setting, largest ratio, clipped, answers)."""
    seeds = range(1 if quick else 3)
    grid = itertools.product(
        ("single-class", "Dirichlet .1", "IID"),
        ((0.0, 1), (0.2, 3)),
        (0.3, 0.9),
        (0.1, 1.0, 3.0),
        ((1, None), (5, None), (5, 8), (20, 4)),
    )
    for split, (c, d), p, rate, (steps, size) in grid:
        largest, clipped, n = 0.0, 0, 0
        for seed in seeds:
            made = Federation(seed, split, c, d)
            rng = np.random.default_rng([seed, 8])
            sizes = bounds.Sizes.start(N)
            beta = np.zeros((made.x.shape[1], CLASSES))
            state = np.zeros((N, beta.size))
            for t in range(ROUNDS):
                f = made.answers(beta, steps, size, rate)
                answered = rng.random(N) >= p if t else np.ones(N, np.bool_)
                unit = bounds.per_unit(np.linalg.norm(f, axis=1), made.weights)
                sizes = sizes.observe(unit, answered)
                factors = np.where(answered, sizes.factors(unit, bounds.FACTOR), 1.0)
                clipped += int((factors < 1).sum())
                n += int(answered.sum())
                if limit := sizes.limit():
                    largest = max(largest, float(unit[answered].max(initial=0)) / limit)
                total, state = estimators.estimate(estimators.memory, state, f, answered, p)
                beta = beta - rate * 0.97**t / M * total.reshape(beta.shape)
        yield f"{split}, c {c:g}, p {p:g}, rate {rate:g}, {steps} of {size}", largest, clipped, n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, few settings")
    parser.add_argument("--honest", action="store_true", help="how large honest answers get")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    if options.honest:
        for what, largest, clipped, n in honest_ratios(options.quick):
            print(f"{what:50} {largest:6.2f} of the bound, {clipped} of {n} clipped", flush=True)
            found[what] = [largest, clipped, n]
    else:
        seeds = range(2 if options.quick else 10)
        for split, attack in itertools.product(("single-class", "IID"), ATTACKS):
            for n_hostile in (0,) if ATTACKS[attack] is None else (1, 2):
                what = f"{split}, {attack}" + (f", {n_hostile} of 10" if n_hostile else "")
                line = []
                for name in LINES:
                    runs = [trained(name, attack, n_hostile, split, seed) for seed in seeds]
                    scores = np.array([score for score, _ in runs])
                    sem = scores.std(ddof=1) / np.sqrt(len(scores))
                    found[f"{what}: {name}"] = [scores.mean(), sem, sum(n for _, n in runs)]
                    line.append(f"{name} {100 * scores.mean():.1f} ({100 * sem:.1f})")
                print(f"{what:34} " + "; ".join(line), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
