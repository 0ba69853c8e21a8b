"""The model, the data and the training loop: PyTorch as usual."""

from functools import cache

import numpy as np
import torch
from torch import nn
from torch.nn.functional import max_pool2d, relu
from torch.utils.data import DataLoader, TensorDataset, random_split

from fedcommons import datasets

N_IMAGES = 3000
CONCENTRATION = 0.3  # of each digit's proportions over the sites; None: sites are alike
SEED = 0


class Net(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2)
        return self.fc2(relu(self.fc1(x.flatten(1))))


def as_dataset(x: np.ndarray, y: np.ndarray) -> TensorDataset:
    images = torch.from_numpy(np.asarray(x, np.float32) / 255).unsqueeze(1)
    return TensorDataset((images - 0.5) / 0.5, torch.from_numpy(y))


@cache
def mnist() -> datasets.Dataset:
    return datasets.mnist()


def partition(labels: np.ndarray, partition_id: int, num_partitions: int) -> np.ndarray:
    """The rows of one site; of every digit some sites have many and others few or none."""
    rng = np.random.default_rng(SEED)
    mine = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = np.full(num_partitions, 1 / num_partitions)
        if CONCENTRATION is not None:
            shares = rng.dirichlet(CONCENTRATION * num_partitions * shares)
        ends = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        mine.append(np.split(rows, ends)[partition_id])
    return np.concatenate(mine)


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """Loaders of one site's images: four in five to train on, the others to test."""
    x, y = mnist().x_train[:N_IMAGES], mnist().y_train[:N_IMAGES]
    rows = partition(y, partition_id, num_partitions)
    dataset, seeded = as_dataset(x[rows], y[rows]), torch.Generator().manual_seed(SEED)
    trainset, testset = random_split(dataset, [0.8, 0.2], seeded)
    trainloader = DataLoader(trainset, batch_size=batch_size, shuffle=True)
    return trainloader, DataLoader(testset, batch_size=batch_size)


def train(net: Net, trainloader: DataLoader, epochs: int, lr: float) -> float:
    """Train the model on the training set; the mean loss."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net: Net, testloader: DataLoader) -> tuple[float, float]:
    """The model's loss and accuracy on the test set."""
    criterion = nn.CrossEntropyLoss(reduction="sum")
    loss, correct = 0.0, 0
    net.eval()
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images)
            loss += criterion(outputs, labels).item()
            correct += int((outputs.argmax(dim=1) == labels).sum())
    return loss / len(testloader.dataset), correct / len(testloader.dataset)
