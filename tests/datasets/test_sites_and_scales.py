"""Natural sites, drawn splits, scales; data in arrays; the four hospitals."""

import numpy as np
import pytest
from sklearn import model_selection

from fedcommons import datasets
from fedcommons.datasets import heart_disease, scaling, splits
from fedcommons.errors import ArgumentError, DataError

RNG = np.random.default_rng(0)


def test_a_drawn_split_takes_its_part_of_every_site_and_label():
    sites, labels = np.repeat([0, 1, 2], [100, 40, 7]), RNG.integers(0, 3, 147)
    test = splits.drawn(0.3, sites, labels, seed=1)
    for site, n in enumerate((100, 40, 7)):
        assert test[sites == site].sum() == round(0.3 * n)
        for label in range(3):
            cell = (sites == site) & (labels == label)
            assert abs(test[cell].sum() - 0.3 * cell.sum()) < 1
    assert np.array_equal(test, splits.drawn(0.3, sites, labels, seed=1))
    assert not np.array_equal(test, splits.drawn(0.3, sites, labels, seed=2))


def test_every_example_of_a_cell_is_as_likely_to_be_tested():
    n = 2000
    hits = sum(splits.drawn(0.5, np.zeros(6, int), np.zeros(6, int), seed=s) for s in range(n))
    assert np.abs(hits / n - 0.5).max() < 4.5 * np.sqrt(0.25 / n)  # of 6: 4.5 standard errors


def test_whoever_is_alone_trains():
    test = splits.drawn(0.9, np.array([0, 0, 0, 1]), np.array([0, 1, 1, 1]), seed=0)
    assert test.tolist().count(True) == 1
    assert not test[0]
    assert not test[3]


def test_arrays_in_one_piece_are_split(tmp_path):
    x, y = RNG.random((40, 2)), np.arange(40) % 2
    site = np.where(np.arange(40) < 10, "b", "a")
    np.savez(tmp_path / "x.npz", x=x, y=y, site=site)
    found = datasets.load(tmp_path / "x.npz", test_part=0.2)
    assert found.sites == ("a", "b")
    assert np.bincount(found.site_test).tolist() == [6, 2]
    assert len(found.y_train) == 32
    pairs = {(*row, label) for row, label in zip(x.tolist(), y.tolist(), strict=True)}
    both = [*zip(found.x_train.tolist(), found.y_train.tolist(), strict=True)]
    both += zip(found.x_test.tolist(), found.y_test.tolist(), strict=True)
    assert {(*row, label) for row, label in both} == pairs


def test_labels_of_arrays_that_are_words_are_numbered_and_kept(tmp_path):
    words = np.array(["well", "sick"] * 10)
    np.savez(tmp_path / "x.npz", x=np.ones((20, 1)), y=words)
    found = datasets.load(tmp_path / "x.npz", test_part=0.2)
    assert np.bincount(found.y_train).tolist() == [8, 8]  # the test part is spread over labels
    assert found.encodings["label"] == {"column": "y", "values": ["sick", "well"]}
    split = dict(x_train=np.ones((2, 1)), y_train=words[:2], x_test=np.ones((1, 1)))
    np.savez(tmp_path / "y.npz", **split, y_test=words[:1])
    found = datasets.load(tmp_path / "y.npz")
    assert (found.y_train.tolist(), found.y_test.tolist()) == ([1, 0], [1])
    np.savez(tmp_path / "z.npz", **split, y_test=np.array(["odd"]))
    with pytest.raises(DataError, match="training examples have, too, got 'odd' in example 0"):
        datasets.load(tmp_path / "z.npz")
    np.savez(tmp_path / "z.npz", **split, y_test=np.array([1]))
    with pytest.raises(DataError, match=r"names of classes in all of y.* got dtype int64"):
        datasets.load(tmp_path / "z.npz")


def test_a_gap_in_arrays_is_named_by_its_place_in_the_file(tmp_path):
    y = np.where(np.arange(40) == 31, np.nan, 1.0)
    np.savez(tmp_path / "x.npz", x=np.ones((40, 1)), y=y)
    with pytest.raises(DataError, match="y must be finite, got a missing value in example 31"):
        datasets.load(tmp_path / "x.npz", test_part=0.5)


@pytest.mark.parametrize(
    ("changes", "rules", "message"),
    [
        (dict(site_train=["a"] * 4), {}, "must name at least two sites"),
        (dict(site_train=["a", "b", "a"]), {}, "site_train"),
        (dict(site_train=["a", "b", "a", ""]), {}, "empty name in example 3"),
        (dict(site_train=[1.5, 2, 1, 2]), {}, "whole numbers or names"),
        (dict(site_test=["a", "b"]), {}, "site_train beside site_test"),
        (dict(site_train=["a", "b"] * 2, site_test=["c", "a"]), {}, "none of 'c'"),
        ({}, dict(test_part=0.5), "must go with data in one piece"),
    ],
)
def test_wrong_sites_in_arrays_are_named(tmp_path, changes, rules, message):
    x, y = np.ones((4, 1)), np.arange(4) % 2
    arrays = dict(x_train=x, y_train=y, x_test=x[:2], y_test=y[:2], **changes)
    np.savez(tmp_path / "x.npz", **{name: np.array(array) for name, array in arrays.items()})
    with pytest.raises((DataError, ArgumentError), match=message):
        datasets.load(tmp_path / "x.npz", **rules)


def test_a_part_that_leaves_no_test_example_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((4, 1)), y=np.arange(4) % 2)
    with pytest.raises(DataError, match=r"must leave test examples, got 0.1 of 4"):
        datasets.load(tmp_path / "x.npz", test_part=0.1)


def test_what_is_saved_is_read_again(tmp_path):
    before = datasets.opened("heart", datasets.Reading(scale="standard"))
    datasets.save(before, tmp_path / "heart.npz")
    after = datasets.load(tmp_path / "heart.npz")
    order = [after.sites.index(name) for name in before.sites]
    assert np.array_equal(np.array(order)[before.site_train], after.site_train)
    assert np.array_equal(before.x_test, after.x_test)
    assert (after.columns, after.encodings) == (before.columns, before.encodings)
    with pytest.raises(ArgumentError, match=r"must end in .npz"):
        datasets.save(before, tmp_path / "heart.csv")


def test_standard_inputs_have_mean_0_and_deviation_1_over_the_training_examples(tmp_path):
    x = RNG.normal([3, 3, 3, 7], [1e-3, 1, 500, 0], (50, 4))
    np.savez(tmp_path / "x.npz", x_train=x, y_train=np.arange(50) % 2, x_test=x[:9], y_test=[0] * 9)
    found = datasets.load(tmp_path / "x.npz", scale="standard")
    assert np.allclose(found.x_train.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(found.x_train.std(axis=0), [1, 1, 1, 0], atol=1e-5)
    assert np.array_equal(found.x_test, found.x_train[:9])  # by the same numbers
    assert found.encodings["scale"]["mean"]["input 2"] == pytest.approx(x[:, 2].mean())


def test_bytes_are_scaled_as_models_get_them(tmp_path):
    x = RNG.integers(0, 256, (20, 2, 2)).astype(np.uint8)
    np.savez(tmp_path / "x.npz", x_train=x, y_train=np.arange(20) % 2, x_test=x[:3], y_test=[0] * 3)
    plain, scaled = (datasets.load(tmp_path / "x.npz", scale=s) for s in ("none", "standard"))
    inputs = plain.inputs("train", dtype=np.float64)
    expected = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    assert scaled.x_train.shape == x.shape
    assert np.allclose(scaled.inputs("train"), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "warns"), [((1, 1), False), ((1, 99), False), ((1, 300), True), ((0.01, 1), False)]
)
def test_very_different_scales_are_named(sizes, warns):
    x = np.outer([1.0, -1.0] * 5, sizes)
    y = np.arange(10) % 2
    data = datasets.Dataset("x", x, y, x, y, columns=("smoothness", "area"))
    said = scaling.remark(data)
    assert bool(said) == warns
    assert not warns or ("area is about 300" in said and "smoothness about 1" in said)


def test_the_heart_data_are_flambys_in_numbers():
    """Its README: 199/104, 172/89, 30/16 and 85/45 rows of 13 inputs."""
    data = datasets.heart()
    assert np.bincount(data.site_train).tolist() == [199, 172, 30, 85]
    assert np.bincount(data.site_test).tolist() == [104, 89, 16, 45]
    assert data.x_train.shape[1] == len(data.columns) == 13
    sick = [data.y_train[data.site_train == k].sum() + data.y_test[data.site_test == k].sum()
            for k in range(4)]  # fmt: skip
    assert np.round(np.array(sick) / [303, 261, 46, 130], 2).tolist() == [0.46, 0.38, 0.98, 0.78]


@pytest.mark.parametrize("hospital", heart_disease.HOSPITALS)
def test_the_rows_that_train_are_those_of_scikit_learn(hospital):
    """FLamby's rule; Switzerland has too few without a disease to stratify by it."""
    table = heart_disease._rows(heart_disease.HOSPITALS[hospital])
    sick = (table[:, heart_disease.DISEASE] > 0).astype(int)
    expected, _ = model_selection.train_test_split(
        np.arange(len(sick)),
        test_size=1 - 0.66,
        train_size=0.66,
        random_state=43,
        shuffle=True,
        stratify=None if hospital == "Switzerland" else sick,
    )
    assert heart_disease.training_rows(sick).tolist() == sorted(expected)


def test_pooled_training_on_the_heart_data_comes_to_flambys_accuracy():
    """.7953 is the mean of five seeds in its results; 254 patients: a standard error of .025."""
    data = datasets.opened("heart", datasets.Reading(scale="standard"))
    x, x_test = (np.c_[x, np.ones(len(x))] for x in map(data.inputs, ("train", "test")))
    w = np.zeros(14)
    for _ in range(200):
        w -= 0.5 * x.T @ (1 / (1 + np.exp(-x @ w)) - data.y_train) / len(x)
    assert abs(np.mean((x_test @ w > 0) == data.y_test) - 0.7953) < 0.025
