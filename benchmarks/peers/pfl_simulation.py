"""One run of one curve on pfl-research's simulated backend, a few rounds.

    python benchmarks/peers/pfl_simulation.py [--rounds 8] [--json FILE]

A client's local training is one full-batch step of SGD with rate 1, so what it sends is minus its
gradient. pfl's federated averaging divides the sum of these by their number; here the sum stands
and the central rate has the factor 1 / (M (1 - p)). Who straggles is not in the round's cohort. The
first round is a warm-up, in which pfl also evaluates each client's model before and after, and
not the central one; it counts as start-up and the others are timed. One process with one thread.
"""

from __future__ import annotations

import time
from typing import Any

import one_curve
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam.base import HyperParam, NNTrainHyperParams
from pfl.metrics import Metrics, StringMetricName, Weighted
from pfl.model.pytorch import PyTorchModel

ACCURACY = "accuracy"


class Model(one_curve.Softmax):
    def metrics(self, x: torch.Tensor, y: torch.Tensor, *_: torch.Tensor) -> dict[str, Weighted]:
        return {ACCURACY: Weighted(self.count_correct(x, y), len(y))}


class SumOfAnswers(FederatedAveraging):
    """Federated averaging without the division by the number of answers."""

    def process_aggregated_statistics(
        self,
        central_context: Any,  # noqa: ARG002
        aggregate_metrics: Metrics,  # noqa: ARG002
        model: PyTorchModel,
        statistics: Any,
    ) -> tuple[PyTorchModel, Metrics]:
        return model.apply_model_update(statistics)


class CohortSize(HyperParam, TrainingProcessCallback):
    """How many clients answer in the round at hand."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.round = sizes, 0

    def value(self) -> int:
        return self.sizes[self.round]

    def after_central_iteration(self, *_: Any, central_iteration: int) -> tuple[bool, Metrics]:
        self.round = central_iteration + 1
        return False, Metrics()


class Clock(TrainingProcessCallback):
    """When each round ended, and the central accuracy from the second on."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.accuracy: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, *_: Any, central_iteration: int
    ) -> tuple[bool, Metrics]:
        if central_iteration > 0:
            metric = aggregate_metrics[StringMetricName(f"Central val | {ACCURACY}")]
            self.accuracy.append(float(metric.overall_value))
        self.ends.append(time.perf_counter())
        return False, Metrics()


def train(rounds: int) -> Clock:
    curve, answered = one_curve.CURVE, one_curve.answered(rounds)
    module = Model()
    rate = curve.learning_rate / one_curve.M / (1 - curve.straggler_prob)
    optimizer = torch.optim.SGD(module.parameters(), rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, curve.decay)
    model = PyTorchModel(module, torch.optim.SGD, optimizer, schedule)
    clients = [PyTorchTensorDataset(tensors) for tensors in one_curve.holdings()]
    data = FederatedDataset(clients.__getitem__, iter(answered.nonzero()[1]).__next__)
    size, clock = CohortSize(answered.sum(axis=1).tolist()), Clock()
    evaluation = CentralEvaluationCallback(PyTorchTensorDataset(one_curve.test_set()))
    SumOfAnswers().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds,  # of the clients: only in round 0
            train_cohort_size=size,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=1.0, local_batch_size=None),
        callbacks=[size, evaluation, clock],
        send_metrics_to_platform=False,
    )
    return clock


def main() -> None:
    options = one_curve.arguments(__doc__)
    torch.set_num_threads(1)
    start = time.perf_counter()
    clock = train(options.rounds)
    one_curve.report(
        "pfl-research simulation",
        ("pfl", "torch"),
        options,
        startup=clock.ends[0] - start,
        seconds=[b - a for a, b in zip(clock.ends, clock.ends[1:], strict=False)],
        accuracy=clock.accuracy,
    )


if __name__ == "__main__":
    main()
