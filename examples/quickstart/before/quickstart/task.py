"""The model, the data and the training loop: PyTorch as usual."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from fedcommons import datasets

Batch = tuple[torch.Tensor, torch.Tensor]


class Net(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 5, stride=2)
        self.linear = nn.Linear(8 * 12 * 12, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.relu(self.convolution(x)).flatten(1))


def as_inputs(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(x, np.float32) / 255).unsqueeze(1)


def partition(partition_id: int, num_partitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Every digit is at one client only: 60 images of each."""
    mnist = datasets.mnist()
    mine = [
        np.flatnonzero(mnist.y_train == digit)[:60]
        for digit in range(10)
        if digit % num_partitions == partition_id
    ]
    rows = np.concatenate(mine)
    return mnist.x_train[rows], mnist.y_train[rows]


def load_data(partition_id: int, num_partitions: int, batch_size: int = 32) -> Iterable[Batch]:
    x, y = partition(partition_id, num_partitions)
    dataset = TensorDataset(as_inputs(x), torch.from_numpy(y))
    return DataLoader(dataset, batch_size=batch_size, shuffle=True)


def train(net: Net, batches: Iterable[Batch], lr: float) -> float:
    """One pass over the batches; the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def test(net: Net) -> float:
    """Accuracy on the test set."""
    mnist = datasets.mnist()
    with torch.no_grad():
        right = net(as_inputs(mnist.x_test)).argmax(dim=1).numpy() == mnist.y_test
    return float(right.mean())
