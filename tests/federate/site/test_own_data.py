"""A data file is read as it is, and everything in it is private unless marked."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedcommons.errors import DataError
from fedcommons.federate.protocol.packing import DTYPES
from fedcommons.federate.site import npz_data, own_data, parquet_data
from fedcommons.federate.site.fingerprints import fingerprints_of
from fedcommons.federate.site.own_data import SiteData
from tests.federate.site.data_files import (
    KEY,
    MARKS,
    X,
    Y,
    assert_is_the_data,
    npz,
    parquet,
)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("largest", [0, 1 << 20])
def test_npz_is_read_as_it_is(tmp_path, load, monkeypatch, save, largest):
    monkeypatch.setattr(npz_data, "IN_MEMORY", largest)
    data = load(npz(tmp_path / "a.npz", save=save, shareable=MARKS))
    assert_is_the_data(data)
    spooled = save is np.savez_compressed and not largest
    assert (tmp_path / "spool").exists() == spooled


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_any_numbers_are_read(tmp_path, load, dtype):
    x = (np.arange(56) % 2).reshape(7, 2, 4).astype(dtype)
    assert_is_the_data(load(npz(tmp_path / "a.npz", x=x, shareable=MARKS)), x=x)


def test_parquet_is_read_as_it_is(tmp_path, load):
    assert_is_the_data(load(parquet(tmp_path / "a.parquet")))
    assert_is_the_data(load(parquet(tmp_path / "b.parquet")))


def test_parquet_columns_of_several_types_are_read_as_the_widest(tmp_path, load):
    data = load(parquet(tmp_path / "a.parquet", f0=np.arange(7, dtype=np.int16)))
    assert data.x.dtype == np.float32
    assert data.x.block(0, 7)[:, 0].tolist() == list(range(7))


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_parquet_in_several_parts_is_the_same(tmp_path, load, monkeypatch, columns):
    monkeypatch.setattr(parquet_data, "BLOCK_BYTES", 2 * 32 * 4)
    monkeypatch.setattr(parquet_data, "COLUMNS_AT_ONCE", columns)
    assert_is_the_data(load(parquet(tmp_path / "a.parquet")))


def test_columns_may_have_other_names(tmp_path, load):
    path = parquet(tmp_path / "a.parquet", target=Y, consent=MARKS, label=None, shareable=None)
    data = load(path, label="target", shareable="consent")
    assert_is_the_data(data)
    other = load(path, label="target", shareable="something")  # the marks are a feature then
    assert other.stamp != data.stamp
    assert other.x.shape == (7, 5)
    assert not other.shareable.any()
    assert_is_the_data(load(path, label="target", shareable="consent"))


def test_everything_is_private_unless_marked(tmp_path, load):
    assert not SiteData.from_arrays(X, Y).shareable.any()
    assert not load(npz(tmp_path / "a.npz")).shareable.any()
    assert not load(npz(tmp_path / "b.npz", sharable=np.ones(7, np.bool_))).shareable.any()
    assert not load(parquet(tmp_path / "a.parquet", shareable=None)).shareable.any()


def test_marks_are_those_of_the_moment():
    marks = MARKS.copy()
    data = SiteData.from_arrays(X, Y, marks)
    marks[:] = True
    assert data.shareable.tolist() == MARKS.tolist()


def test_the_layout_is_the_type_and_shape_of_an_example_and_the_names_in_order(tmp_path, load):
    plain = load(npz(tmp_path / "a.npz"))
    assert (plain.layout, plain.columns) == ("float32 4", "")
    images = SiteData.from_arrays(np.zeros((2, 28, 28), np.uint8), [0, 1])
    assert (images.layout, images.columns) == ("uint8 28x28", "")
    assert (SiteData.none().layout, SiteData.none().columns) == ("", "")

    def digest(names: list[str], **options: str) -> str:
        table = pa.table(dict.fromkeys(names, Y))
        pq.write_table(table, tmp_path / "b.parquet")
        data = load(tmp_path / "b.parquet", **options)
        assert data.layout == f"int64 {len(names) - 1}"
        return data.columns

    usual = digest(["age", "bp", "label"])
    assert digest(["label", "age", "bp"]) == usual  # the label's place and name do not matter
    assert digest(["age", "target", "bp"], label="target") == usual
    others = [["bp", "age", "label"], ["age", "BP", "label"], ["agebp", "x", "label"]]
    assert len({usual, *map(digest, others)}) == 4
    assert "age" not in usual


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_when_rows_are_numbered(tmp_path, load, monkeypatch, value):
    monkeypatch.setattr(own_data, "BLOCK_BYTES", 64)  # two rows in a block
    x = X.copy()
    x[4, 2] = value
    path = npz(tmp_path / "a.npz", x=x)
    with pytest.raises(DataError, match=f"{path}: x must be finite, got {value} in example 4"):
        load(path).fingerprints(KEY)


def test_fingerprints_do_not_depend_on_blocks(monkeypatch):
    data = SiteData.from_arrays(X, Y)
    whole = data.fingerprints(KEY)
    monkeypatch.setattr(own_data, "BLOCK_BYTES", 64)
    assert np.array_equal(data.fingerprints(KEY), whole)
    assert np.array_equal(fingerprints_of(np.asfortranarray(X), Y, KEY), whole)


def test_fingerprints_tell_examples_labels_and_keys_apart():
    prints = [fingerprints_of(X, Y, KEY), fingerprints_of(X, Y + 1, KEY),
              fingerprints_of(X, Y, b"l" * 32)]  # fmt: skip
    assert len({f.tobytes() for part in prints for f in part}) == 21
    assert fingerprints_of(X[:0], Y[:0], KEY).shape == (0, 16)
