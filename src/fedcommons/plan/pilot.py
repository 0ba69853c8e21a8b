"""How many rounds an accuracy takes: a few trainings of the options in question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcommons import checks, coding, estimators, privacy, sharing
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError, DataError
from fedcommons.plan.options import Option
from fedcommons.plan.sites import Sites
from fedcommons.stragglers import Bernoulli
from fedcommons.streams import stream
from fedcommons.tasks import softmax
from fedcommons.training import train

TEST_EXAMPLES = 2000


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
                sites, option, dataset, code, estimator, learning_rate, decay, max_rounds, seed, run
            )
            for run in range(checks.integer("runs", runs, low=1))
        ]
        reached = np.flatnonzero(np.mean(curves, axis=0) >= accuracy)
        found.append(float(reached[0] + 1) if reached.size else np.inf)
    return found


def _accuracies(
    sites: Sites,
    option: Option,
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
    N = sites.n_sites
    rows, owner = _draw_examples(sites, dataset, seed, run)
    labels = dataset.y_train[rows]
    shareable = np.zeros(len(labels), np.bool_)
    for label in range(sites.n_classes):
        mine = labels == label
        shareable[mine] = privacy.proportion(
            labels[mine],
            owner[mine],
            option.part * sites.shareable[:, label],
            n_clients=N,
            rng=stream(seed, "pilot mask", run, label),
        )
    placement = sharing.randomised(
        owner, shareable, int(option.copies), n_clients=N, rng=stream(seed, "pilot sharing", run)
    )
    inputs = dataset.inputs("train", rows)
    owner_share = None
    if code == "owner-corrected":
        residuals = softmax.initial_residuals(labels, dataset.n_classes)
        products = softmax.gradient_products(inputs, residuals)
        owner_share = coding.owner_share_from_products(placement, products)
    shares = coding.by_name(
        code, placement, straggler_prob=sites.straggler_prob, owner_share=owner_share
    )
    tested = stream(seed, "pilot test", 0).permutation(len(dataset.y_test))[:TEST_EXAMPLES]
    task = softmax.SoftmaxRegression(
        inputs, labels, dataset.inputs("test", tested), dataset.y_test[tested], dataset.n_classes
    )
    answered = Bernoulli(sites.straggler_prob).answered(
        max_rounds, N, rng=stream(seed, "pilot stragglers", run)
    )
    rounds = train(
        task,
        shares,
        answered,
        sites.straggler_prob,
        estimator=estimators.ESTIMATORS[estimator],
        learning_rate=learning_rate,
        decay=decay,
    )
    return [task.count_correct(this.params) / len(tested) for this in rounds]


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
