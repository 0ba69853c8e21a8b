"""How many rounds an accuracy takes: a few trainings of the options in question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from fedcommons import checks, coding, estimators, privacy, sharing
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError, DataError
from fedcommons.placement import Placement
from fedcommons.plan.course import Course, measured
from fedcommons.plan.options import Option
from fedcommons.plan.outcome import Outcome, Question
from fedcommons.plan.sites import Sites
from fedcommons.stragglers import Bernoulli
from fedcommons.streams import stream
from fedcommons.tasks import softmax
from fedcommons.training import train

TEST_EXAMPLES = 2000
LASTING = 3  # rounds in which a target must be reached
POINTS = 7  # of the course that is measured
RATES = (0.016, 0.04, 0.1, 0.25)  # steps, of which the best counts


def rounds_to_accuracy(
    sites: Sites,
    options: Sequence[Option],
    dataset: Dataset,
    accuracy: float,
    *,
    code: str = "equal-split",
    estimator: str = "coded_sum",
    learning_rate: float = 0.1,
    decay: float = 0.97,
    max_rounds: int = 50,
    runs: int = 5,
    seed: int = 0,
) -> list[float]:
    """The mean number of rounds until the mean test accuracy of each option reaches the target.

    Softmax regression on examples of the dataset, as many of each class at each site as the sites
    have; infinite where `max_rounds` do not suffice. All options see the same draws.
    """
    checks.real("accuracy", accuracy, low=0, high=1)
    if estimator not in estimators.ESTIMATORS:
        known = ", ".join(estimators.ESTIMATORS)
        raise ArgumentError(f"estimator must be one of {known}, got {estimator!r}")
    found = []
    for option in options:
        curves = [
            _accuracies(
                sites, option.part, int(option.copies), sites.straggler_prob, dataset, code,
                estimator, learning_rate, decay, max_rounds, seed, run,
            )
            for run in range(checks.integer("runs", runs, low=1))
        ]  # fmt: skip
        found.append(_first(np.mean(curves, axis=0) >= accuracy))
    return found


def crossing(accuracy: FloatArray, target: float, *, lasting: int = LASTING) -> float:
    """Where a curve, (T,), reaches the target and stays there so many points on end.

    A noisy training may touch an accuracy once by luck. Between points the curve is a line, for
    rounds may be few; infinite if it never gets there. Fewer points are enough at the very end.
    """
    reached = accuracy >= target
    for k in range(1, lasting):
        reached[:-k] &= accuracy[k:] >= target
    if not reached.any():
        return np.inf
    k = int(np.argmax(reached))
    if k == 0:
        return 0.0
    before, after = float(accuracy[k - 1]), float(accuracy[k])
    return k - 1 + max(0.0, (target - before) / (after - before)) if after > before else float(k)


def _first(reached: BoolArray) -> float:
    """The round, counted from 1, that is the first in which it is so; infinite if none is."""
    return float(np.argmax(reached) + 1) if reached.any() else np.inf


def course(
    question: Question,
    tried: Sequence[tuple[float, Outcome]],
    dataset: Dataset,
    accuracy: float,
    *,
    max_rounds: int = 50,
    runs: int = 4,
    rates: Sequence[float] = RATES,
    seed: int = 0,
) -> Course:
    """How many rounds an accuracy takes by how noisy estimates are, from a few trainings.

    Softmax regression with the coded sum, as in `rounds_to_accuracy`, each with the best of the
    steps `rates`, until it is reached for `LASTING` rounds on end; rounds are counted in parts, by
    the accuracies before and after. Of the options and deadlines in `tried`, given with their
    parts, it takes `POINTS` that are spread over their noise.
    """
    checks.real("accuracy", accuracy, low=0, high=1)
    usable = sorted((pair for pair in tried if np.isfinite(pair[1].noise)), key=_noise)
    wanted = np.geomspace(max(_noise(usable[0]), 1e-3), max(_noise(usable[-1]), 2e-3), POINTS)
    nearest = [
        min(usable, key=lambda pair: abs(np.log(max(_noise(pair), 1e-3) / x))) for x in wanted
    ]
    chosen = list({_noise(pair): pair for pair in nearest}.values())
    rounds = []
    for part, one in chosen:
        best = np.inf
        for rate in rates:
            curves = [
                _accuracies(
                    question.sites, part, one.copies, one.straggler_prob, dataset, question.code,
                    "coded_sum", rate, 1.0, max_rounds, seed, run,
                )
                for run in range(checks.integer("runs", runs, low=1))
            ]  # fmt: skip
            best = min(best, 1 + crossing(np.mean(curves, axis=0), accuracy))
        rounds.append(best)
    reached = [k for k, n in enumerate(rounds) if np.isfinite(n)]
    if len(reached) < 2:
        raise DataError(
            f"accuracy must be one that at least two of {len(chosen)} trial trainings reach within "
            f"{max_rounds} rounds, got {accuracy:g} reached by {len(reached)}: lower it, or raise "
            "rounds"
        )
    words = (
        f"{len(reached)} trainings of softmax regression on {dataset.name} to accuracy "
        f"{accuracy:g}, {runs} runs each"
    )
    # One that does not reach it needs more rounds than it was given.
    at_least = [n if np.isfinite(n) else float(max_rounds) for n in rounds]
    return measured([pair[1].noise for pair in chosen], at_least, words)


def _noise(pair: tuple[float, Outcome]) -> float:
    return pair[1].noise


@dataclass(frozen=True, slots=True)
class Trial:
    """What one run of a pilot trains, and on how many test examples."""

    task: softmax.SoftmaxRegression
    placement: Placement
    shares: csr_array
    n_tested: int

    def accuracy(self, params: FloatArray) -> float:
        return self.task.count_correct(params) / self.n_tested


def trial(
    sites: Sites,
    part: float,
    copies: int,
    straggler_prob: FloatArray,
    dataset: Dataset,
    code: str,
    seed: int,
    run: int,
) -> Trial:
    """Examples like those of the sites, of which each shares this part of what it may."""
    N = sites.n_sites
    rows, owner = _draw_examples(sites, dataset, seed, run)
    labels = dataset.y_train[rows]
    shareable = np.zeros(len(labels), np.bool_)
    for label in range(sites.n_classes):
        mine = labels == label
        shareable[mine] = privacy.proportion(
            labels[mine],
            owner[mine],
            part * sites.shareable[:, label],
            n_clients=N,
            rng=stream(seed, "pilot mask", run, label),
        )
    placement = sharing.randomised(
        owner, shareable, copies, n_clients=N, rng=stream(seed, "pilot sharing", run)
    )
    inputs = dataset.inputs("train", rows)
    owner_share = None
    if code == "owner-corrected":
        residuals = softmax.initial_residuals(labels, dataset.n_classes)
        products = softmax.gradient_products(inputs, residuals)
        owner_share = coding.owner_share_from_products(placement, products)
    shares = coding.by_name(code, placement, straggler_prob=straggler_prob, owner_share=owner_share)
    tested = stream(seed, "pilot test", 0).permutation(len(dataset.y_test))[:TEST_EXAMPLES]
    task = softmax.SoftmaxRegression(
        inputs, labels, dataset.inputs("test", tested), dataset.y_test[tested], dataset.n_classes
    )
    return Trial(task, placement, shares, len(tested))


def _accuracies(
    sites: Sites,
    part: float,
    copies: int,
    straggler_prob: FloatArray,
    dataset: Dataset,
    code: str,
    estimator: str,
    learning_rate: float,
    decay: float,
    max_rounds: int,
    seed: int,
    run: int,
) -> list[float]:
    """Test accuracy after every round of one run."""
    one = trial(sites, part, copies, straggler_prob, dataset, code, seed, run)
    answered = Bernoulli(straggler_prob).answered(
        max_rounds, sites.n_sites, rng=stream(seed, "pilot stragglers", run)
    )
    rounds = train(
        one.task,
        one.shares,
        answered,
        straggler_prob,
        estimator=estimators.ESTIMATORS[estimator],
        learning_rate=learning_rate,
        decay=decay,
    )
    return [one.accuracy(this.params) for this in rounds]


def _draw_examples(
    sites: Sites, dataset: Dataset, seed: int, run: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the dataset and their owners, as many of each class as the sites have."""
    counts = sites.counts[run % len(sites.counts)].astype(np.int64)
    if counts.shape[1] != dataset.n_classes:
        raise ArgumentError(
            f"the pilot's dataset must have the sites' {counts.shape[1]} classes, "
            f"got {dataset.n_classes}"
        )
    rng = stream(seed, "pilot examples", run)
    rows, owners = [], []
    for label in range(counts.shape[1]):
        members = np.flatnonzero(dataset.y_train == label)
        if counts[:, label].sum() > len(members):
            raise DataError(
                f"{dataset.name}: a pilot needs {counts[:, label].sum()} examples of class "
                f"{label}, got {len(members)}"
            )
        rows.append(rng.choice(members, counts[:, label].sum(), replace=False))
        owners.append(np.repeat(np.arange(len(counts)), counts[:, label]))
    return np.concatenate(rows), np.concatenate(owners)
