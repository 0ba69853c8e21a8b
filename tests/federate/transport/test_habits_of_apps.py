"""What ordinary apps do: several epochs, class weights, metrics, counts of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedcommons.federate.transport.coded_sum import CodedSum
from tests.federate.tiny import N_CLASSES, N_FEATURES, serving, trained_model

pytestmark = pytest.mark.usefixtures("impatient")


def own_loader():
    """As the app's `load_data` would make it; what is in it is not looked at here."""
    own = TensorDataset(torch.zeros(5, N_FEATURES), torch.zeros(5, dtype=torch.int64))
    return DataLoader(own, batch_size=2, shuffle=True, drop_last=True)


def test_epochs_momentum_class_weights_and_dropped_batches_work_as_they_are(tiny):
    """The loop of an ordinary app, which knows of no weights and asks its loader what it likes."""
    lengths, losses = [], []

    def train(site, message, context):
        net = nn.Linear(N_FEATURES, N_CLASSES)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        loader = site.dataloader(context, own_loader())
        labels = loader.dataset.tensors[1]
        counts = torch.bincount(labels, minlength=N_CLASSES).clamp(min=1)
        criterion = nn.CrossEntropyLoss(weight=len(labels) / (N_CLASSES * counts))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        total = 0.0
        for _ in range(3):
            batches = list(loader)
            lengths.append((len(batches), len(loader)))
            assert all(len(y) == 2 for _, y in batches)
            for x, y in batches:
                optimizer.zero_grad()
                loss = criterion(net(x.float()), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
        losses.append(total / (3 * len(loader)))
        metrics = MetricRecord({"train_loss": losses[-1], "num-examples": len(loader.dataset)})
        content = {"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}
        return Message(RecordDict(content), reply_to=message)

    torch.manual_seed(0)
    initial = ArrayRecord(nn.Linear(N_FEATURES, N_CLASSES).state_dict())
    grid = tiny.grid(train=train)
    with tiny.shared(grid) as federation:
        strategy = CodedSum(federation)
        result = serving(grid, lambda: strategy.start(grid, initial, 6))
    assert all(found == said > 0 for found, said in lengths)
    assert len(losses) == 4 * 6
    metrics = result.train_metrics_clientapp
    assert [set(metrics[t]) for t in range(1, 7)] == [{"train_loss"}] * 6
    assert min(losses[:4]) <= metrics[1]["train_loss"] <= max(losses[:4])
    for name, array in result.arrays.items():
        assert np.isfinite(array.numpy()).all()
        assert not np.array_equal(array.numpy(), initial[name].numpy())


def test_the_model_does_not_depend_on_the_examples_that_an_app_counts(tiny):
    usual = trained_model(0.1)

    def train(site, message, context):
        reply = usual(site, message, context)
        count = message.content["config"]["count"]
        if context.node_config["site"] == "a":
            count *= 1000
        reply.content["metrics"] = MetricRecord({"num-examples": count})
        return reply

    grid, found = tiny.grid(train=train), []
    initial = ArrayRecord({"beta": Array(np.zeros((N_FEATURES + 1, N_CLASSES)))})
    with tiny.shared(grid) as federation:
        for count in (1, 7):
            strategy = CodedSum(federation)
            config = ConfigRecord({"count": count})
            result = serving(
                grid, lambda s=strategy, c=config: s.start(grid, initial, 3, train_config=c)
            )
            found.append(result.arrays["beta"].numpy())
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0]).max() > 0
