"""An app's own data function, as Flower's examples have it, is a site's examples."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fedcommons.errors import ArgumentError, DataError
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.transport.app_data import site_data

X, Y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
TENSORS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
FIFTH = np.arange(6) % 5 == 0


class Rows(Dataset):
    """A dataset that gives what a function makes of k."""

    def __init__(self, example, n=6):
        self.example, self.n = example, n

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        return self.example(k)


def context(run_config=None, **node_config):
    node_config = {name.replace("_", "-"): value for name, value in node_config.items()}
    return Context(1, 2, node_config, RecordDict(), run_config or {})


def read(given, shareable=None):
    return site_data(lambda context: given, context(), shareable)


def arrays(data):
    return data.x.block(0, len(data.y)), data.y


@pytest.mark.parametrize(
    "given",
    [
        (X, Y),
        (X, Y, X[:2], Y[:2]),
        (torch.from_numpy(X), torch.from_numpy(Y)),
        TENSORS,
        DataLoader(TENSORS, batch_size=4, shuffle=True),
        (DataLoader(TENSORS, batch_size=4), DataLoader(TensorDataset(*TENSORS[:2]))),
        (TENSORS, TENSORS, TENSORS),
        torch.utils.data.Subset(TENSORS, range(6)),
        Rows(lambda k: {"image": torch.from_numpy(X[k]), "label": int(Y[k])}),
    ],
)
def test_examples_are_read_in_the_form_that_the_app_has(given):
    data = read(given)
    for found, expected in zip(arrays(data), (X, Y), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert data.x.dtype == np.float32
    assert not data.shareable.any()


def test_labels_of_another_type_and_shape_stay_as_they_are():
    y = Y.astype(np.float32)[:, None]  # as a binary loss wants them
    for given in ((X, y), Rows(lambda k: (X[k], y[k]))):
        found = read(given).y
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, y)


@pytest.mark.parametrize("given", [(X, Y, FIFTH), (TENSORS, FIFTH), (TENSORS, FIFTH.tolist())])
def test_what_may_be_shared_is_said_beside_the_examples(given):
    np.testing.assert_array_equal(read(given).shareable, FIFTH)
    with pytest.raises(ArgumentError, match="shareable must be said once"):
        read(given, True)


def test_what_may_be_shared_is_told_from_inputs_and_labels():
    found = read(TENSORS, lambda x, y: (x[:, 0] > 2) & (y == 2))
    np.testing.assert_array_equal(found.shareable, (X[:, 0] > 2) & (Y == 2))
    assert read(TENSORS, True).shareable.all()
    assert not read(TENSORS, False).shareable.any()
    with pytest.raises(DataError, match="shareable must be boolean, one for each example"):
        read(TENSORS, lambda x, y: [True])


def test_site_data_are_taken_as_they_are():
    data = SiteData.from_arrays(X, Y, FIFTH)
    assert read(data) is data
    with pytest.raises(ArgumentError, match="shareable must be said in the SiteData"):
        read(data, True)


def test_a_site_without_examples_has_no_layout():
    for empty in (Rows(None, 0), (X[:0], Y[:0])):
        assert read(empty, lambda x, y: y > 0).layout == ""


# How the function is called


def test_a_function_gets_what_its_parameters_name():
    def load(partition_id, num_partitions, batch_size, seed=5):
        assert (partition_id, num_partitions, batch_size, seed) == (3, 4, 32, 5)
        return X, Y

    site = context({"batch-size": 32, "seed": 0}, partition_id=3, num_partitions=4)
    for function in (load, functools.partial(load, batch_size=32), lambda *, partition_id: (X, Y)):
        assert site_data(function, site).n_examples == 6
    assert site_data(lambda ctx: (ctx.node_config["partition-id"] * X, Y), site).n_examples == 6
    assert site_data(lambda context, batch_size: (X, Y), site).n_examples == 6


def test_a_parameter_that_nothing_has_is_named():
    with pytest.raises(ArgumentError, match=r"got 'partition_id': there is no partition-id"):
        site_data(lambda partition_id, num_partitions: (X, Y), context(data="file"))


# What is refused


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, r"data must return SiteData; arrays .*, got a NoneType"),
        ((), r"got a tuple of 0"),
        ({"x": X, "y": Y}, r"got a dict of 2"),
        (X, r"got a ndarray"),
        (iter([(X, Y)]), r"got a "),
        (
            Rows(lambda k: (X[k], Y[k], 1)),
            r"as \(x, y\) or a mapping of these two, got a tuple of 3",
        ),
        (Rows(lambda k: X[k]), r"a dataset must have examples of an input and a label"),
        (Rows(lambda k: (X[k, : 1 + k % 2], Y[k])), r"inputs of one shape, got \(1,\) and \(2,\)"),
    ],
)
def test_other_forms_are_refused(given, words):
    with pytest.raises(DataError, match=words):
        read(given)


def test_random_transforms_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="random transforms belong into the training function"):
        read(Rows(lambda k: (X[k] + rng.normal(size=2), Y[k])))
