"""A data file that cannot be right is refused with a reason."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedcommons.errors import DataError
from tests.federate.site.data_files import (
    MARKS,
    X,
    Y,
    assert_is_the_data,
    npz,
    parquet,
    with_header,
    with_metadata,
)


def single_array(path: Path) -> Path:
    with path.open("wb") as file:
        np.save(file, X)
    return path


def shape(text: str, dtype: str = "<f4") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {text}, }}"


def cut(path: Path, n: int) -> Path:
    path.write_bytes(path.read_bytes()[:-n])
    return path


def encrypted(path: Path) -> Path:
    """An .npz whose entries say that they are encrypted."""
    data = bytearray(npz(path).read_bytes())
    for start, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(start)
        while place >= 0:
            data[place + at] |= 1
            place = data.find(start, place + 1)
    path.write_bytes(data)
    return path


NAN = X.copy()


NAN[4, 2] = np.nan


BAD_NPZ = {
    "missing": (lambda p: p, "cannot be read: No such file"),
    "text": (lambda p: (p.write_text("hello"), p)[1], "cannot be read as .npz"),
    "empty": (lambda p: (p.touch(), p)[1], "cannot be read as .npz"),
    "a single array": (single_array, "must be an .npz file"),
    "no x": (lambda p: (np.savez(p, y=Y), p)[1], r"missing \['x'\]"),
    "no y": (lambda p: (np.savez(p, x=X), p)[1], r"missing \['y'\]"),
    "truncated": (lambda p: cut(npz(p), 40), "cannot be read as .npz"),
    "encrypted": (encrypted, "cannot be read as .npz"),
    "lengths differ": (lambda p: npz(p, y=Y[:5]), r"each of the 7 examples, got int64, shape \(5,"),
    "objects": (lambda p: npz(p, x=X.astype(object)), "x must be numbers in C order, got object"),
    "strings": (lambda p: npz(p, x=X.astype(str)), "x must be numbers in C order, got <U"),
    "complex": (lambda p: npz(p, x=X.astype(complex)), "x must be numbers.*got complex128"),
    "big-endian": (lambda p: npz(p, x=X.astype(">f4")), "x must be numbers.*got >f4"),
    "records": (lambda p: npz(p, x=np.zeros((7, 1), "f4,i2")), "x must be numbers"),
    "Fortran order": (lambda p: npz(p, x=np.asfortranarray(X)), "Fortran order"),
    "one dimension": (lambda p: npz(p, x=X[:, 0]), r"x must be numbers \(examples, ...\), got"),
    "no features": (lambda p: npz(p, x=X[:, :0]), r"got float32, \(7, 0\)"),
    "labels of strings": (
        lambda p: npz(p, y=Y.astype(str)), r"y must be numbers, got <U21 such as.*classes=\[...\]"
    ),
    "labels of complex numbers": (
        lambda p: npz(p, y=Y.astype(complex)), "y must be numbers.*complex128"
    ),
    "labels of long floats": (
        lambda p: npz(p, y=Y.astype(np.longdouble)), "y must be numbers.*longdouble|float128"
    ),
    "no labels": (lambda p: npz(p, y=np.empty((7, 0))), r"y must be numbers.*shape \(7, 0\)"),
    "one label": (lambda p: npz(p, y=np.float64(1)), r"y must be numbers.*shape \(\)"),
    "a label that is NaN": (
        lambda p: npz(p, y=np.where(Y == 2, np.nan, 1)), "y must be finite, got nan in example 2"
    ),
    "a label with infinity": (
        lambda p: npz(p, y=np.array([[1, 2]] * 5 + [[0, np.inf], [0, 0]])),
        r"y must be finite, got \[ 0. inf\] in example 5",
    ),
    "labels of objects": (lambda p: npz(p, y=Y.astype(object)), "cannot be read as .npz"),
    "labels in a matrix": (lambda p: npz(p, y=np.stack([Y, Y])), r"y must be .*shape \(2, 7\)"),
    "negative labels": (lambda p: npz(p, y=Y - 1), "y must be class numbers from 0 .*got -1"),
    "huge labels": (
        lambda p: npz(p, y=np.full(7, 2**63, np.uint64)), "y must be at most .*got 922337203685"
    ),
    "marks of numbers": (lambda p: npz(p, shareable=MARKS * 1), "shareable must be boolean.*int64"),
    "marks too few": (lambda p: npz(p, shareable=MARKS[:6]), r"shareable must be.*shape \(6,\)"),
    "marks of objects": (lambda p: npz(p, shareable=MARKS.astype(object)), "cannot be read as"),
    "format 9": (lambda p: with_header(p, version=b"\x09\x00"), "format"),
    "header of nonsense": (lambda p: with_header(p, header="nonsense("), "cannot be read as .npz"),
    "claims more rows": (lambda p: with_header(p, header=shape("(8, 4)")), "as long as its header"),
    "claims fewer rows": (lambda p: with_header(p, header=shape("(6, 4)")), "as long as its heade"),
    "claims an exabyte": (
        lambda p: with_header(p, header=shape("(7, 4611686018427387904, 4)")), "as long as its"
    ),
    "negative shape": (lambda p: with_header(p, header=shape("(-7, -4)")), "as long as its header"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_NPZ)
def test_a_bad_npz_is_refused_with_a_reason(tmp_path, load, kind):
    make, message = BAD_NPZ[kind]
    path = make(tmp_path / "bad.npz")
    with pytest.raises(DataError, match=message) as error:
        load(path)
    assert str(path) in str(error.value)


def test_a_plain_header_is_read(tmp_path, load):
    """So that the headers above are refused for what is wrong with them."""
    assert_is_the_data(load(with_header(tmp_path / "a.npz")), marks=np.zeros(7, np.bool_))


BAD_PARQUET = {
    "text": (lambda p: (p.write_text("hello"), p)[1], "cannot be read as Parquet"),
    "truncated": (lambda p: cut(parquet(p), 40), "cannot be read as Parquet"),
    "no label": (lambda p: parquet(p, label=None), "must have the label column 'label'"),
    "labels of strings": (lambda p: parquet(p, label=["a"] * 7), "y must be numbers, got object"),
    "a missing label": (
        lambda p: parquet(p, label=pa.array([None, *Y[1:]])), "'label' must have no missing values"
    ),
    "a missing mark": (
        lambda p: parquet(p, shareable=pa.array([None, *[True] * 6])), "'shareable' must have no"
    ),
    "marks of numbers": (lambda p: parquet(p, shareable=MARKS * 1), "shareable must be boolean"),
    "marks of strings": (lambda p: parquet(p, shareable=["yes"] * 7), "shareable must be boolean"),
    "strings": (lambda p: parquet(p, f1=["a"] * 7), "'f1' must be numbers, got string"),
    "dates": (lambda p: parquet(p, f1=Y.astype("M8[s]")), "'f1' must be numbers, got timestamp"),
    "lists": (lambda p: parquet(p, f1=[[1.0]] * 7), "'f1' must be numbers, got list"),
    "a missing float": (
        lambda p: parquet(p, f2=pa.array([None, *[1.0] * 6])), "'f2' must have no missing values"
    ),
    "a missing integer": (
        lambda p: parquet(p, f2=pa.array([None, *[1] * 6])), "'f2' must have no missing values"
    ),
    "no features": (lambda p: parquet(p, f0=None, f1=None, f2=None, f3=None), "feature columns"),
    "negative labels": (lambda p: parquet(p, label=Y - 1), "y must be class numbers"),
    "an index": (
        lambda p: parquet(p, __index_level_0__=Y), "'__index_level_0__' is the index.*index=False"
    ),
    "an index with a name": (
        lambda p: with_metadata(p, {"index_columns": ["f1"]}), "'f1' is the index.*index=False"
    ),
    "marks misspelt": (
        lambda p: parquet(p, sharable=MARKS, shareable=None), "'sharable' must be called 'shareab"
    ),
    "marks with a capital": (
        lambda p: parquet(p, Shareable=MARKS, shareable=None), "'Shareable' must be called 'shar"
    ),
    "marks twice": (lambda p: parquet(p, is_shareable=MARKS), "'is_shareable' must be called"),
}  # fmt: skip


def test_an_index_that_is_only_counted_and_booleans_of_other_names_are_no_matter(tmp_path, load):
    counted = {"kind": "range", "name": None, "start": 0, "stop": 7, "step": 1}
    assert_is_the_data(load(with_metadata(tmp_path / "a.parquet", {"index_columns": [counted]})))
    for nonsense in ("{", "[]", {}, {"index_columns": 5}):
        assert_is_the_data(load(with_metadata(tmp_path / "c.parquet", nonsense)))
    other = load(parquet(tmp_path / "b.parquet", stable=MARKS, sharable=X[:, 0]))
    assert other.x.shape == (7, 6)


@pytest.mark.parametrize("kind", BAD_PARQUET)
def test_a_bad_parquet_is_refused_with_a_reason(tmp_path, load, kind):
    make, message = BAD_PARQUET[kind]
    path = make(tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=message) as error:
        load(path)
    assert str(path) in str(error.value)
    assert not list(tmp_path.glob("spool/*.part"))


def test_a_column_that_is_there_twice_is_refused(tmp_path, load):
    table = pa.Table.from_arrays([pa.array(Y)] * 3, names=["label", "f", "f"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="each column once"):
        load(tmp_path / "a.parquet")


def test_another_kind_of_file_is_refused(tmp_path, load):
    (tmp_path / "a.xlsx").touch()
    with pytest.raises(DataError, match=r"must be .npz, .parquet or .csv"):
        load(tmp_path / "a.xlsx")
