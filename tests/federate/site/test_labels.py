"""Labels may be of any type and shape, which is the same at all sites."""

from dataclasses import replace

import numpy as np
import pytest

from fedcommons.errors import ArgumentError, DataError
from fedcommons.federate.protocol.packing import SharedExamples
from fedcommons.federate.protocol.refusals import DataChanged, LayoutRefused
from fedcommons.federate.site.data_files import data_behind
from fedcommons.federate.site.fingerprints import fingerprints_of
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.status import summary_of
from tests.federate.conftest import epoch_of, sent_by
from tests.federate.site.data_files import KEY, MARKS, X, Y, npz, parquet
from tests.federate.site.envelopes import assert_refused, from_a_to_b, payload

VECTORS = np.stack([Y % 2, Y // 2, 1 - Y % 2], axis=1)
KINDS = {
    "targets": (np.linspace(-1, 1, 7), "float32 4 -> float64"),
    "narrow targets": (np.linspace(-1, 1, 7, dtype=np.float32), "float32 4 -> float32"),
    "several labels": (VECTORS.astype(np.uint8), "float32 4 -> int64 3"),
    "yes and no, several": (VECTORS.astype(np.bool_), "float32 4 -> int64 3"),
    "time and event": (np.stack([X[:, 0] ** 2, Y % 2], 1), "float32 4 -> float64 2"),
    "images": (np.arange(7 * 6.0).reshape(7, 2, 3), "float32 4 -> float64 2x3"),
    "yes and no": (Y > 0, "float32 4"),
    "class numbers": (Y.astype(np.uint16), "float32 4"),
    "big-endian targets": (np.linspace(0, 1, 7).astype(">f8"), "float32 4 -> float64"),
}


@pytest.mark.parametrize(("y", "layout"), KINDS.values(), ids=KINDS)
def test_labels_are_read_as_they_are_and_a_part_of_the_layout(tmp_path, load, y, layout):
    for data in (SiteData.from_arrays(X, y), load(npz(tmp_path / "a.npz", y=y))):
        assert data.layout == layout
        assert data.y.tolist() == y.tolist()
        assert data.form.row_bytes == X[0].nbytes + 8 + data.y[0].nbytes
        assert np.array_equal(data.fingerprints(KEY), fingerprints_of(X, data.y, KEY))


@pytest.mark.parametrize("label", ["time,event", "time, event", ["time", "event"]])
def test_columns_of_a_table_make_up_a_label(tmp_path, load, label):
    path = parquet(tmp_path / "a.parquet", label=None, time=X[:, 0] ** 2, event=Y % 2)
    data = load(path, label=label)
    assert data.y.tolist() == np.stack([X[:, 0] ** 2, Y % 2], 1).tolist()
    assert data.features == ("f0", "f1", "f2", "f3")
    behind = data_behind(data.stamp, spool=tmp_path / "spool")
    assert behind.y.tolist() == data.y.tolist()


def test_a_column_whose_name_has_a_comma_is_one_column(tmp_path, load):
    path = parquet(tmp_path / "a.parquet", label=None, **{"time,event": Y})
    assert load(path, label="time,event").y.tolist() == Y.tolist()


def test_label_columns_that_are_missing_are_named(tmp_path, load):
    path = parquet(tmp_path / "a.parquet", time=X[:, 0])
    with pytest.raises(DataError, match="must have the label columns 'time', 'event' and each"):
        load(path, label="time,event")


# Names of classes

NAMES = np.array(["benign", "malignant", "unclear"])


def test_names_become_the_numbers_that_the_list_gives_them(tmp_path, load):
    classes = ["malignant", "benign", "unclear"]
    expected = [classes.index(name) for name in NAMES[Y]]
    files = [
        npz(tmp_path / "a.npz", y=NAMES[Y]),
        parquet(tmp_path / "a.parquet", label=NAMES[Y].tolist()),
    ]
    for path in files:
        data = load(path, classes=classes)
        assert (data.y.tolist(), data.n_classes, data.layout) == (expected, 3, "float32 4")
        assert data_behind(data.stamp, spool=tmp_path / "spool").y.tolist() == expected
    assert SiteData.from_arrays(X, NAMES[Y], classes=classes).y.tolist() == expected


def test_numbers_are_looked_up_by_their_text(tmp_path, load):
    data = load(npz(tmp_path / "a.npz", y=Y + 1), classes=["3", "1", "2"])
    assert data.y.tolist() == [(value + 1) % 3 for value in Y]


def test_a_name_that_is_no_class_is_refused(tmp_path, load):
    path = npz(tmp_path / "a.npz", y=NAMES[Y])
    with pytest.raises(
        DataError, match=r"one of 'benign', 'malignant', got 'unclear' in example 2"
    ):
        load(path, classes=["benign", "malignant"])


@pytest.mark.parametrize("classes", ["ab", [], ["a", "a"], [1, 2]])
def test_classes_must_be_different_names(classes):
    with pytest.raises(ArgumentError, match="classes must be different names"):
        SiteData.from_arrays(X, NAMES[Y], classes=classes)


# Fingerprints


def test_a_label_of_the_same_values_has_the_same_fingerprint_whatever_its_type():
    y = np.stack([Y, Y % 2], 1)
    same = [y, y.astype(np.float32), y.astype(np.float64), y.astype(np.float16)]
    assert len({fingerprints_of(X, one, KEY).tobytes() for one in same}) == 1
    near = np.linspace(0, 1, 7)
    halves = near.astype(np.float16)
    assert np.array_equal(
        fingerprints_of(X, halves, KEY), fingerprints_of(X, halves.astype(np.float64), KEY)
    )
    different = (fingerprints_of(X, near, KEY) != fingerprints_of(X, halves, KEY)).any(axis=1)
    assert different.tolist() == (near != halves).tolist()


def test_labels_that_are_other_values_are_told_apart():
    prints = [
        fingerprints_of(X[:1], np.array(y), KEY).tobytes()
        for y in (
            [[1.0, 2.0]],
            [[2.0, 1.0]],
            [[1.5, 2.0]],
            [[1.0, 2.5]],
            [1.5],
            [1],
            [2**62],
            [-1.0],
        )
    ]
    assert len(set(prints)) == len(prints)
    same_bytes = np.array([1.5]).view(np.int64)
    assert not np.array_equal(
        fingerprints_of(X[:1], np.array([1.5]), KEY), fingerprints_of(X[:1], same_bytes, KEY)
    )
    assert np.array_equal(
        fingerprints_of(X[:1], np.array([-0.0]), KEY), fingerprints_of(X[:1], np.array([0.0]), KEY)
    )


# Checks


def test_n_classes_is_for_class_numbers():
    for y in (np.linspace(0, 1, 7), VECTORS):
        data = SiteData.from_arrays(X, y)
        summary_of(data)
        with pytest.raises(
            DataError, match=r"class numbers if n_classes is given.*leave n_classes"
        ):
            replace(data, n_classes=3).check_labels()


def test_what_there_is_is_said():
    assert summary_of(SiteData.from_arrays(X, Y))["labels"] == "0, 1, 2"
    assert summary_of(SiteData.from_arrays(X, Y / 2))["labels"] == "0 to 1"
    assert summary_of(SiteData.from_arrays(X, VECTORS))["labels"] == "0 to 1, 0 to 1, 0 to 1"


# In the exchange


def labelled(seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(9, 6)).astype(np.float32)
    return SiteData.from_arrays(x, rng.normal(size=(9, 2)).astype(dtype), np.arange(9) < 6)


def test_what_is_sent_arrives_with_its_labels(make_site):
    sites = [make_site(name, labelled(seed)) for seed, name in enumerate("abc")]
    epoch = epoch_of(sites, copies=1)
    receipts, refused = sites[1].exchange.receive(epoch.record, [sent_by(sites[0], epoch)[1]])
    assert (len(receipts), refused) == (1, {})
    (held,) = sites[1].store.received.chunks(epoch.digest, sites[0].identity_name)
    assert held.numbers.tolist() == epoch.draw.assigned(0, 1).tolist()
    rows = np.flatnonzero(sites[0].data.shareable)[held.numbers]
    assert held.y.dtype == np.float64
    assert held.y.tolist() == sites[0].data.y[rows].tolist()
    assert held.x.tolist() == sites[0].data.x.take(rows).tolist()


def test_a_site_refuses_an_exchange_with_labels_of_another_type(make_site):
    sites = [make_site(name, labelled(seed)) for seed, name in enumerate("ab")]
    sites.append(make_site("c", labelled(2, np.float32)))
    with pytest.raises(
        LayoutRefused, match="site c: its labels are float32 2, the others' float64 2"
    ):
        sites[0].exchange.receive(epoch_of(sites, copies=1).record, [])


def test_labels_that_are_not_finite_are_refused(make_site, caplog):
    sites = [make_site(name, labelled(seed)) for seed, name in enumerate("abc")]
    epoch = epoch_of(sites, copies=1)
    good = payload(sites, epoch)
    y = good.y.copy()
    y[0, 1] = np.nan
    bad = SharedExamples(good.numbers, y, good.x).pack()
    assert_refused(sites[1], epoch, from_a_to_b(sites, epoch, bad), caplog)


def test_targets_that_changed_are_other_data(tmp_path, load, make_site):
    y = np.linspace(0, 1, 7)
    site = make_site("a", load(npz(tmp_path / "a.npz", y=y, shareable=MARKS)))
    site.rows.number()
    digest = site.rows.newest().digest
    site.rows.checked(digest)
    for other in (y + 0.5, y.astype(np.float32)):
        site.rows.data = load(npz(tmp_path / "a.npz", y=other, shareable=MARKS))
        site.rows._compared = b""
        with pytest.raises(DataChanged):
            site.rows.checked(digest)
