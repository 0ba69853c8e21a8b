"""What coding bought in a run of the demo: its rounds again, with plain averaging instead.

The sites' own examples, the steps and who answered when are those of the run; nothing is shared,
and the server takes the mean of the answers that came in time. The models are tested on all of
MNIST's test digits, so that it does not matter who was there in the last round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import datasets
from fedcommons.errors import FederationError
from fedcommons.federate.apps.local_run import run_recorded
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.federate.transport.simulation import PARTITION, PARTITIONS
from fedcommons.npz import read_npz
from fedcommons.tasks import softmax

AVERAGING = {
    "copies": 0,
    "estimator": "responder_average",
    "late": "discard",
    "warm": False,
    "fraction-evaluate": 0.0,
}


@dataclass(frozen=True, slots=True)
class Bought:
    """Accuracies on the test digits.

    Attributes:
        coded: of the run's model.
        averaged: with the mean of who answered in the same rounds.
        complete: with the mean of all, had nobody been missing.
        missing: how many answers did not come in time, `of` so many.
    """

    coded: float
    averaged: float
    complete: float
    missing: int
    of: int

    @property
    def words(self) -> str:
        return (
            f"{self.missing} of {self.of} answers did not come in time: coding reached "
            f"{self.coded:.3f}, averaging who answered would have reached {self.averaged:.3f}, and "
            f"{self.complete:.3f} with nobody missing (accuracy on 10,000 other digits)."
        )


def bought(
    app: Path, results: Path, notes: Sequence[RoundNote], config: Mapping[str, Any]
) -> Bought:
    """`notes` are those of the run, and `config` is what it was told."""
    answered = np.array([[site.answered for site in note.sites] for note in notes if note.sites])
    asked = np.array([[site.asked for site in note.sites] for note in notes if note.sites])

    def averaged(who: np.ndarray) -> float:
        with tempfile.TemporaryDirectory() as folder:
            n = who.shape[1]
            nodes = [{PARTITION: k, PARTITIONS: n} for k in range(n)]
            anew = {**config, **AVERAGING, "state-dir": folder, "num-rounds": len(who)}
            run_recorded(app, nodes, anew, who)
            (model,) = Path(folder).glob("*/training-*/model.npz")
            return accuracy(model)

    return Bought(
        accuracy(results / "model.npz"),
        averaged(answered),
        averaged(np.ones_like(answered)),
        int((asked & ~answered).sum()),
        int(asked.sum()),
    )


def accuracy(model: Path) -> float:
    """Of softmax regression, as the app's task has it, on MNIST's test digits."""
    mnist = datasets.mnist()
    beta = read_npz(model, None, FederationError)["beta"]
    x = softmax.with_bias(mnist.x_test.reshape(len(mnist.x_test), -1) / 255)
    return float(((x @ beta).argmax(axis=1) == mnist.y_test).mean())
