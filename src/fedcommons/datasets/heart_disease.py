"""UCI Heart Disease, prepared and split as FLamby's Fed-Heart-Disease (du Terrail et al., 2022).

Four hospitals; who has a heart disease is to be told from 10 of the 13 measurements, of which two
are categories: 13 inputs in all. The other three are mostly missing outside Cleveland. What FLamby
does is known from its source (github.com/owkin/FLamby, commit edacf54): rows with a gap are left
out, then 66 % of each hospital's rows train, drawn by scikit-learn's `train_test_split` from seed
43, of each label in proportion where a hospital has more than two rows of both.
"""

from __future__ import annotations

from importlib import resources

import numpy as np

from fedcommons import partition
from fedcommons.checks import FloatArray, IntArray
from fedcommons.datasets.dataset import Dataset

HOSPITALS = {  # the name here -> UCI's file
    "Cleveland": "processed.cleveland.data",
    "Hungary": "processed.hungarian.data",
    "Switzerland": "processed.switzerland.data",
    "Long Beach": "processed.va.data",
}
MEASURED = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")
CATEGORIES = {"cp": (2, 3, 4), "restecg": (1, 2)}  # their values but the first
DISEASE = 13  # the column that says so: above 0
TRAIN, SEED = 0.66, 43


def heart() -> Dataset:
    """The heart disease data of four hospitals: 486 training and 254 test rows, 2 classes.

    CC BY 4.0, A. Janosi, W. Steinbrunn, M. Pfisterer and R. Detrano;
    `data/heart-disease/README.md` beside this file.
    """
    tables = [_rows(file) for file in HOSPITALS.values()]
    labels = [(table[:, DISEASE] > 0).astype(np.int64) for table in tables]
    trains = [training_rows(y) for y in labels]
    site = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    x, y = np.concatenate([_inputs(table) for table in tables]), np.concatenate(labels)
    train = np.concatenate(
        [np.isin(np.arange(len(y)), rows) for y, rows in zip(labels, trains, strict=True)]
    )
    return Dataset(
        "heart",
        x[train],
        y[train],
        x[~train],
        y[~train],
        sites=tuple(HOSPITALS),
        site_train=site[train],
        site_test=site[~train],
        columns=tuple(_names()),
        encodings={"label": {"column": "num", "values": ["no disease", "disease"]}},
    )


def training_rows(labels: IntArray) -> IntArray:
    """The rows of a hospital that train: the same as scikit-learn 1.x draws.

    NumPy's `RandomState` gives the same numbers in every version.
    """
    n = len(labels)
    rng = np.random.RandomState(SEED)
    n_test, n_train = int(np.ceil((1 - TRAIN) * n)), int(np.floor(TRAIN * n))
    counts = np.bincount(labels, minlength=2)
    if counts.min() <= 2:
        return np.sort(rng.permutation(n)[n_test : n_test + n_train])
    # By largest remainder; of two equal ones the generator would draw, which none here are.
    of_train = partition.round_to_sum(counts / n, n_train)
    taken = [
        np.flatnonzero(labels == label)[rng.permutation(count)[: of_train[label]]]
        for label, count in enumerate(counts)
    ]
    return np.sort(np.concatenate(taken))


def _rows(file: str) -> FloatArray:
    """A hospital's rows without gaps, (rows, 14); gaps in the columns left out do not count."""
    source = resources.files("fedcommons.datasets") / "data" / "heart-disease" / file
    lines = source.read_text(encoding="ascii").split()
    values = [[np.nan if v in ("?", "") else float(v) for v in line.split(",")] for line in lines]
    table = np.array(values)
    return table[np.isfinite(table[:, [*range(len(MEASURED)), DISEASE]]).all(axis=1)]


def _inputs(table: FloatArray) -> FloatArray:
    columns = []
    for k, name in enumerate(MEASURED):
        values = CATEGORIES.get(name)
        columns += [table[:, k]] if values is None else [table[:, k] == v for v in values]
    return np.column_stack(columns).astype(np.float64)


def _names() -> list[str]:
    return [
        name if value is None else f"{name}={value}"
        for name in MEASURED
        for value in CATEGORIES.get(name, (None,))
    ]
