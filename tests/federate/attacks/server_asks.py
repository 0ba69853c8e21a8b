"""A server that asks sites whatever it likes, without the code of an honest one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fedcommons.federate.protocol import versions
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.site import Site
from fedcommons.federate.transport.site_requests import SiteReply, SiteRequests
from fedcommons.federate.transport.weighted_examples import WeightedExamples
from fedcommons.tasks import softmax

N_FEATURES, N_CLASSES = 6, 3
ZERO = {"beta": np.zeros((N_FEATURES + 1, N_CLASSES))}
RATE = 0.5


def clinic_data(seed: int, n: int = 40) -> SiteData:
    """Every fourth example may be shared."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, N_FEATURES))
    return SiteData.from_arrays(x, rng.integers(0, N_CLASSES, n), np.arange(n) % 4 == 0)


def sgd(model: Any, held: WeightedExamples) -> dict[str, Any]:
    """What an honest app trains: softmax regression, by the batches that it is given."""
    beta = model["beta"]
    for x, y, weight in held.batches():
        step = softmax.weighted_gradient(beta, softmax.with_bias(x), y, weight)
        beta = beta - RATE * step / len(y)
    return {"arrays": {"beta": beta}}


class Asking:
    """Asks one site that is under a commit."""

    def __init__(self, site: Site, commit: Commit) -> None:
        self.requests, self.commit = SiteRequests(site), commit
        self.numbers = itertools.count(1)

    def answer(self, model: Any = ZERO, *, config: Any = None, **changes: Any) -> SiteReply:
        fields = {
            "protocol": versions.CURRENT,
            "question": next(self.numbers),
            "commit": self.commit.record,
            "given-up": 0,
            "round": 1,
            "task": "answer",
            "local-steps": 1,
            "batch-size": 0,
            **changes,
        }

        def train(held: WeightedExamples, at: Any = None) -> dict[str, Any]:
            return sgd(model if at is None else at, held)

        return self.requests.answer(fields, model, train, config=config)


def rows_in(gradient: np.ndarray) -> np.ndarray:
    """The inputs that one example's softmax gradient shows, from each class: (classes, features).

    It is the outer product of the example (with a 1 for the bias) and the residuals.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return (gradient[:-1] / gradient[-1]).T


def found_among(x: np.ndarray, guesses: np.ndarray) -> int:
    """How many of these rows are guessed to eight digits."""
    return sum(bool((np.abs(guesses - row).max(axis=1) < 1e-8).any()) for row in x)
