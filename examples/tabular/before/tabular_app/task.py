"""The model, the data and the training loop: PyTorch as usual."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import make_classification
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

N_RECORDS = 3000
N_FEATURES = 14
CONCENTRATION = 0.3  # of each group's proportions over the sites; None: sites are alike
SEED = 0


class Classifier(nn.Module):
    """Two hidden layers; the chance that a record is positive."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Linear(N_FEATURES, 128)
        self.layer2 = nn.Linear(128, 64)
        self.output = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.layer1(x))
        x = torch.relu(self.layer2(x))
        return torch.sigmoid(self.output(x))


@cache
def table() -> tuple[np.ndarray, np.ndarray]:
    """Records with 14 features, standardised; whether each is positive."""
    x, y = make_classification(
        20_000,
        N_FEATURES,
        n_informative=8,
        n_clusters_per_class=4,
        class_sep=0.8,
        flip_y=0.05,
        random_state=7,
    )
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return x.astype(np.float32), y


def partition(x: np.ndarray, y: np.ndarray, partition_id: int, num_partitions: int) -> np.ndarray:
    """The rows of one site; sites differ in outcomes and in who their people are."""
    rng = np.random.default_rng(SEED)
    group = 2 * (x[:, 0] > 0) + y
    mine = []
    for value in np.unique(group):
        rows = rng.permutation(np.flatnonzero(group == value))
        shares = np.full(num_partitions, 1 / num_partitions)
        if CONCENTRATION is not None:
            shares = rng.dirichlet(CONCENTRATION * num_partitions * shares)
        ends = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        mine.append(np.split(rows, ends)[partition_id])
    return rng.permutation(np.concatenate(mine))


def as_dataset(x: np.ndarray, y: np.ndarray) -> TensorDataset:
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y).float().view(-1, 1))


def load_data(partition_id: int, num_partitions: int):
    """Loaders of one site's records: four in five to train on, the others to test."""
    x, y = (part[:N_RECORDS] for part in table())
    rows = partition(x, y, partition_id, num_partitions)
    ours, theirs = np.split(rows, [int(0.8 * len(rows))])
    train_loader = DataLoader(as_dataset(x[ours], y[ours]), batch_size=32, shuffle=True)
    return train_loader, DataLoader(as_dataset(x[theirs], y[theirs]), batch_size=32)


def trainer(net: Classifier, train_loader: DataLoader, num_epochs: int = 1) -> None:
    """Train the model on the training set."""
    criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    net.train()
    for _ in range(num_epochs):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()


def evaluator(net: Classifier, test_loader: DataLoader) -> tuple[float, float]:
    """The model's loss and accuracy on the test set."""
    criterion = nn.BCELoss(reduction="sum")
    loss, correct, total = 0.0, 0, 0
    net.eval()
    with torch.no_grad():
        for x, y in test_loader:
            outputs = net(x)
            loss += criterion(outputs, y).item()
            correct += int(((outputs > 0.5) == y).sum())
            total += len(y)
    return loss / total, correct / total
