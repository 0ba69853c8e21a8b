import gzip
import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedcommons import datasets
from fedcommons.datasets.files import read_idx
from fedcommons.errors import ArgumentError, DataError

RNG = np.random.default_rng(0)
ARRAYS = {
    "x_train": RNG.integers(0, 256, (7, 2, 3)).astype(np.uint8),
    "y_train": np.array([0, 1, 2, 0, 1, 2, 0], np.uint8),
    "x_test": RNG.integers(0, 256, (3, 2, 3)).astype(np.uint8),
    "y_test": np.array([2, 2, 1], np.uint8),
}


def assert_is_the_sample(dataset: datasets.Dataset) -> None:
    for name, array in ARRAYS.items():
        assert np.array_equal(getattr(dataset, name), array)
    assert dataset.n_classes == 3
    assert np.array_equal(dataset.inputs("test"), ARRAYS["x_test"].reshape(3, 6) / np.float32(255))


def idx_bytes(array: np.ndarray, code: int = 0x08) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.tobytes()


def test_npz(tmp_path):
    np.savez(tmp_path / "mine.npz", **ARRAYS)
    dataset = datasets.load(tmp_path / "mine.npz")
    assert dataset.name == "mine.npz"
    assert_is_the_sample(dataset)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_folder(tmp_path, suffix):
    pack = gzip.compress if suffix else bytes
    for name, file in (
        ("x_train", "train-images-idx3-ubyte"),
        ("y_train", "train-labels-idx1-ubyte"),
        ("x_test", "t10k-images-idx3-ubyte"),
        ("y_test", "t10k-labels-idx1-ubyte"),
    ):
        (tmp_path / (file + suffix)).write_bytes(pack(idx_bytes(ARRAYS[name])))
    assert_is_the_sample(datasets.load(tmp_path))


@pytest.mark.parametrize(
    ("code", "dtype"), [(0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]
)
def test_idx_types(tmp_path, code, dtype):
    values = np.array([[1, -2], [3, 100]], dtype)
    (tmp_path / "f").write_bytes(idx_bytes(values, code))
    assert np.array_equal(read_idx(tmp_path / "f"), values)


def write_parquet(path, split):
    x = ARRAYS[f"x_{split}"].reshape(-1, 6)
    columns = {f"pixel{k}": x[:, k] for k in range(6)}
    pq.write_table(pa.table({"digit": ARRAYS[f"y_{split}"], **columns}), path)


def test_parquet(tmp_path):
    write_parquet(tmp_path / "train.parquet", "train")
    write_parquet(tmp_path / "test.parquet", "test")
    flat = {n: a.reshape(len(a), 6) if a.ndim > 1 else a for n, a in ARRAYS.items()}
    for dataset in (
        datasets.load(tmp_path, label="digit"),
        datasets.load(tmp_path / "train.parquet", label="digit", test=tmp_path / "test.parquet"),
    ):
        for name, array in flat.items():
            assert np.array_equal(getattr(dataset, name), array)
    alone = datasets.load(tmp_path / "train.parquet", label="digit")
    assert len(alone.x_test) == len(alone.y_test) == 0


def test_parquet_columns_may_come_in_another_order_in_the_test_file(tmp_path):
    pq.write_table(
        pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0], "label": [0, 1]}), tmp_path / "t.parquet"
    )
    pq.write_table(pa.table({"b": [6.0], "label": [1], "a": [5.0]}), tmp_path / "u.parquet")
    dataset = datasets.load(tmp_path / "t.parquet", test=tmp_path / "u.parquet")
    assert dataset.x_test.tolist() == [[5.0, 6.0]]


@pytest.mark.parametrize("index", ["__index_level_0__", "patient"])
def test_the_index_that_pandas_writes_is_no_feature(tmp_path, index):
    columns = {"a": [1.0, 2.0], "label": [0, 1]}
    about = {"pandas": json.dumps({"index_columns": [index]})}
    pq.write_table(pa.table(columns), tmp_path / "plain.parquet")
    indexed = pa.table({**columns, index: [7, 8]})
    pq.write_table(indexed.replace_schema_metadata(about), tmp_path / "t.parquet")
    assert datasets.load(tmp_path / "t.parquet").x_train.tolist() == [[1.0], [2.0]]
    of_ranges = {"pandas": json.dumps({"index_columns": [{"kind": "range", "stop": 2}]})}
    pq.write_table(pa.table(columns).replace_schema_metadata(of_ranges), tmp_path / "r.parquet")
    assert datasets.load(tmp_path / "r.parquet").x_train.tolist() == [[1.0], [2.0]]


def refused(message, path, **options):
    with pytest.raises(DataError, match=message):
        datasets.load(path, **options)


def test_missing_and_foreign_files_are_named(tmp_path):
    refused("absent.npz does not exist", tmp_path / "absent.npz")
    (tmp_path / "x.tsv").write_text("a,b")
    refused("must be .npz, .csv, .parquet or a folder of IDX.*, got .*x.tsv", tmp_path / "x.tsv")
    (tmp_path / "x.npz").write_text("a,b")
    refused("x.npz cannot be read as .npz", tmp_path / "x.npz")
    refused("must hold a file train-images", tmp_path)
    np.savez(tmp_path / "part.npz", x_train=ARRAYS["x_train"])
    refused("missing .*'y_train'", tmp_path / "part.npz")
    np.savez(tmp_path / "object.npz", **{**ARRAYS, "x_test": np.array([{}, {}, {}])})
    refused("cannot be read", tmp_path / "object.npz")
    refused("test goes with a table", tmp_path / "part.npz", test="x.parquet")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(y_train=ARRAYS["y_train"][:-1]), "same length, got 7 and 6"),
        (
            dict(y_train=ARRAYS["y_train"] + 0.5),
            "y_train and y_test must be of one kind, got float64",
        ),
        (dict(y_test=np.array([0, -1, 2])), "y_test must be labels >= 0, got -1"),
        (dict(x_train=np.full((7, 2), np.nan)), "missing value in example 0"),
        (dict(x_train=np.array([[1, 2]] * 6 + [[1, np.inf]])), "missing value in example 6"),
        (dict(x_train=np.full((7, 2), -1e39)), "x.npz: x_train must be at most .*, got 1e.39"),
        (dict(x_train=ARRAYS["x_train"].ravel()[:7]), r"must be \(examples, ...\)"),
        (dict(x_train=np.full((7, 2), "a")), "must be real numbers"),
        (dict(x_test=np.zeros((3, 5))), "examples of one shape"),
        (dict(x_train=np.zeros((0, 6)), y_train=np.zeros(0, int)), "must have examples, got none"),
        (dict(y_train=np.zeros((7, 1), int)), "y_train and y_test must be of one kind"),
        (
            dict(y_test=np.array([0, 10**12, 2])),
            r"labels must be numbers of classes.* examples \(10\) or 1000, got 1000000000000",
        ),
        (
            dict(x_test=ARRAYS["x_test"].astype(np.int64)),
            r"x_train and x_test must both be bytes \(uint8\).*, got uint8 and int64",
        ),
    ],
)
def test_wrong_arrays_are_named(tmp_path, changes, message):
    np.savez(tmp_path / "x.npz", **{**ARRAYS, **changes})
    refused(message, tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be an IDX file"),
        (b"\x01\x02\x03\x04", "must be an IDX file, got the first bytes '01020304'"),
        (b"\0\0\x08\x03\0\0\0\x01", "cut-off file"),
        (idx_bytes(ARRAYS["x_train"])[:-1], r"must have 58 bytes for shape \(7, 2, 3\), got 57"),
        (idx_bytes(ARRAYS["x_train"]) + b"x", "got 59"),
        (gzip.compress(idx_bytes(ARRAYS["x_train"]))[:-9], "cannot be read"),
        (b"\0\0\x08\x04" + b"\xff" * 16, "must have"),
    ],
    ids=["empty", "no-idx", "no-shape", "too-short", "too-long", "cut-gzip", "huge-shape"],
)
def test_damaged_idx_files_are_named(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(tmp_path / "file")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": [1.0]}, "must have the label column 'label', got .'a'."),
        ({"label": [1]}, "must have feature columns"),
        ({"label": [1], "a": [[1]]}, "column 'a' must hold numbers or text, got list"),
        ({"label": [1, 2], "a": [1.0, None]}, "column 'a' must have no missing values, got 1"),
        ({"label": [1, None], "a": [1.0, 2.0]}, "column 'label' must have no missing values"),
        ({"label": [-1], "a": [1.0]}, "must be labels >= 0, got -1"),
    ],
)
def test_wrong_parquet_files_are_named(tmp_path, table, message):
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    refused(message, tmp_path / "t.parquet")


def test_damaged_and_missing_parquet_files_are_named(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    refused("cannot be read as Parquet", tmp_path / "t.parquet")
    pq.write_table(pa.table({"label": [1], "a": [1.0]}), tmp_path / "t.parquet")
    refused("u.parquet does not exist", tmp_path / "t.parquet", test=tmp_path / "u.parquet")
    pq.write_table(pa.table({"label": [1], "b": [1.0]}), tmp_path / "u.parquet")
    refused("columns alone, got also .'b'.", tmp_path / "t.parquet", test=tmp_path / "u.parquet")
    pq.write_table(pa.table({"label": [1]}), tmp_path / "u.parquet")
    refused("feature columns .'a'.", tmp_path / "t.parquet", test=tmp_path / "u.parquet")


def test_a_wrong_split_is_named():
    dataset = datasets.Dataset("mine", **ARRAYS)
    with pytest.raises(ArgumentError, match="split must be 'train' or 'test', got 'val'"):
        dataset.inputs("val")
