"""The model and the data: scikit-learn as usual."""

from functools import cache

import numpy as np
from sklearn.linear_model import LogisticRegression

from fedcommons import datasets

N_IMAGES = 3000
CONCENTRATION = 0.3  # of each digit's proportions over the sites; None: sites are alike
AT_LEAST = 2  # images of every digit at every site: a fit needs all classes
SEED = 0
UNIQUE_LABELS = list(range(10))
N_FEATURES = 784


def create_model(penalty: float) -> LogisticRegression:
    """A model that goes on from its parameters for one pass over the data; zeros at first."""
    model = LogisticRegression(C=1 / penalty, solver="saga", max_iter=1, warm_start=True)
    model.classes_ = np.array(UNIQUE_LABELS)
    model.coef_ = np.zeros((len(UNIQUE_LABELS), N_FEATURES))
    model.intercept_ = np.zeros(len(UNIQUE_LABELS))
    return model


def get_params(model: LogisticRegression) -> list[np.ndarray]:
    return [model.coef_, model.intercept_]


def set_params(model: LogisticRegression, params: list[np.ndarray]) -> None:
    model.coef_, model.intercept_ = params


@cache
def mnist() -> datasets.Dataset:
    return datasets.mnist()


def partition(labels: np.ndarray, partition_id: int, num_partitions: int) -> np.ndarray:
    """The rows of one site; of every digit some sites have many and others few."""
    rng = np.random.default_rng(SEED)
    few, many = [], []
    for label in UNIQUE_LABELS:
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = np.full(num_partitions, 1 / num_partitions)
        if CONCENTRATION is not None:
            shares = rng.dirichlet(CONCENTRATION * num_partitions * shares)
        first, rest = np.split(rows, [AT_LEAST * num_partitions])
        ends = np.round(np.cumsum(shares)[:-1] * len(rest)).astype(int)
        few.append(first[partition_id::num_partitions])
        many.append(np.split(rest, ends)[partition_id])
    return np.concatenate([*few, rng.permutation(np.concatenate(many))])  # the few to train on


def load_data(partition_id: int, num_partitions: int):
    """One site's images: four in five to train on, the others to test."""
    rows = partition(mnist().y_train[:N_IMAGES], partition_id, num_partitions)
    x = mnist().inputs("train", rows, dtype=np.float64)
    y, n = mnist().y_train[rows], int(0.8 * len(rows))
    return x[:n], y[:n], x[n:], y[n:]
