"""Data files of seven examples, as they should be and otherwise."""

import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedcommons.federate.site.own_data import SiteData

X = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)


Y = np.arange(7) % 3


MARKS = np.arange(7) < 3


KEY = b"k" * 32


def npz(path: Path, *, save=np.savez, **arrays: object) -> Path:
    save(path, **{"x": X, "y": Y, **arrays})
    return path


def parquet(path: Path, **columns: object) -> Path:
    features = {f"f{i}": X[:, i] for i in range(4)}
    table = {**features, "label": Y, "shareable": MARKS, **columns}
    pq.write_table(pa.table({k: v for k, v in table.items() if v is not None}), path)
    return path


def assert_is_the_data(data: SiteData, marks: np.ndarray = MARKS, x: np.ndarray = X) -> None:
    assert data.x.dtype == x.dtype
    assert tuple(data.x.shape) == x.shape
    assert data.x.block(0, len(x)).tobytes() == x.tobytes()
    rows = np.array([5, 0, 0, 6])
    assert data.x.take(rows).tobytes() == x[rows].tobytes()
    none = data.x.take(np.empty(0, np.int64))
    assert none.shape == (0, *x.shape[1:])
    assert data.x.block(2, 2).shape == (0, *x.shape[1:])
    assert data.x.block(5, 99).tobytes() == x[5:].tobytes()
    assert data.y.tolist() == Y.tolist()
    assert data.shareable.tolist() == marks.tolist()
    assert data.form.row_bytes == x[0].nbytes + 16


def with_header(path: Path, *, version: bytes = b"\x01\x00", header: str | None = None) -> Path:
    """An .npz whose x has this header before its values."""
    text = header or "{'descr': '<f4', 'fortran_order': False, 'shape': (7, 4), }"
    y = io.BytesIO()
    np.save(y, Y)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("y.npy", y.getvalue())
        head = text.encode() + b"\n"
        archive.writestr(
            "x.npy", b"\x93NUMPY" + version + struct.pack("<H", len(head)) + head + X.tobytes()
        )
    return path


def with_metadata(path: Path, pandas: object) -> Path:
    """The same Parquet file with what pandas would say of it."""
    table = pq.read_table(parquet(path))
    text = pandas if isinstance(pandas, str) else json.dumps(pandas)
    pq.write_table(table.replace_schema_metadata({"pandas": text}), path)
    return path
