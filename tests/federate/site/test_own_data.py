"""A site's file: read as it is, private unless marked, refused with a reason, in bounded memory."""

import io
import json
import os
import stat
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedcommons.errors import DataError
from fedcommons.federate.protocol.refusals import DataChanged
from fedcommons.federate.site import own_data as module
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.file_rows import FileRows
from fedcommons.federate.site.fingerprints import fingerprints_of
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.store import Store
from tests.federate.conftest import FEDERATION

X = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
Y = np.arange(7) % 3
MARKS = np.arange(7) < 3
KEY = b"k" * 32


@pytest.fixture
def load(tmp_path):
    return lambda path, **options: load_site_data(path, spool=tmp_path / "spool", **options)


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


# Formats


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("largest", [0, 1 << 20])
def test_npz_is_read_as_it_is(tmp_path, load, monkeypatch, save, largest):
    monkeypatch.setattr(module, "IN_MEMORY", largest)
    data = load(npz(tmp_path / "a.npz", save=save, shareable=MARKS))
    assert_is_the_data(data)
    spooled = save is np.savez_compressed and not largest
    assert (tmp_path / "spool").exists() == spooled


@pytest.mark.parametrize("dtype", sorted(module.DTYPES))
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
    monkeypatch.setattr(module, "BLOCK_BYTES", 2 * 32 * 4)
    monkeypatch.setattr(module, "COLUMNS_AT_ONCE", columns)
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


# What must be the same at all sites


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


# Bad files


def single_array(path: Path) -> Path:
    with path.open("wb") as file:
        np.save(file, X)
    return path


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


def shape(text: str, dtype: str = "<f4") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {text}, }}"


def with_metadata(path: Path, pandas: object) -> Path:
    """The same Parquet file with what pandas would say of it."""
    table = pq.read_table(parquet(path))
    text = pandas if isinstance(pandas, str) else json.dumps(pandas)
    pq.write_table(table.replace_schema_metadata({"pandas": text}), path)
    return path


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
    "labels of floats": (lambda p: npz(p, y=Y / 2), "y must be one integer label.*got float64"),
    "labels of objects": (lambda p: npz(p, y=Y.astype(object)), "cannot be read as .npz"),
    "labels in a matrix": (lambda p: npz(p, y=np.stack([Y, Y])), r"y must be .*shape \(2, 7\)"),
    "negative labels": (lambda p: npz(p, y=Y - 1), "y must be labels from 0 .*got -1"),
    "huge labels": (
        lambda p: npz(p, y=np.full(7, 2**63, np.uint64)), "y must be labels .*got 922337203685"
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
    "labels of strings": (lambda p: parquet(p, label=["a"] * 7), "y must be one integer label"),
    "labels of floats": (lambda p: parquet(p, label=Y / 2), "y must be one integer label"),
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
    "negative labels": (lambda p: parquet(p, label=Y - 1), "y must be labels"),
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
    (tmp_path / "a.csv").touch()
    with pytest.raises(DataError, match=r"must be .npz or .parquet"):
        load(tmp_path / "a.csv")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_when_rows_are_numbered(tmp_path, load, monkeypatch, value):
    monkeypatch.setattr(module, "BLOCK_BYTES", 64)  # two rows in a block
    x = X.copy()
    x[4, 2] = value
    path = npz(tmp_path / "a.npz", x=x)
    with pytest.raises(DataError, match=f"{path}: x must be finite, got {value} in example 4"):
        load(path).fingerprints(KEY)


# Fingerprints


def test_fingerprints_do_not_depend_on_blocks(monkeypatch):
    data = SiteData.from_arrays(X, Y)
    whole = data.fingerprints(KEY)
    monkeypatch.setattr(module, "BLOCK_BYTES", 64)
    assert np.array_equal(data.fingerprints(KEY), whole)
    assert np.array_equal(fingerprints_of(np.asfortranarray(X), Y, KEY), whole)


def test_fingerprints_tell_examples_labels_and_keys_apart():
    prints = [fingerprints_of(X, Y, KEY), fingerprints_of(X, Y + 1, KEY),
              fingerprints_of(X, Y, b"l" * 32)]  # fmt: skip
    assert len({f.tobytes() for part in prints for f in part}) == 21
    assert fingerprints_of(X[:0], Y[:0], KEY).shape == (0, 16)


# Files that change


def test_a_file_that_changes_while_it_is_used_is_not_read(tmp_path, load):
    path = npz(tmp_path / "a.npz", shareable=MARKS)
    data = load(path)
    npz(path, x=X[::-1].copy(), shareable=MARKS)
    os.utime(path, ns=(1, 1))
    for read in (lambda: data.x.take(np.array([0])), lambda: data.x.block(0, 2)):
        with pytest.raises(DataError, match="must not change"):
            read()
    path.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        data.x.block(0, 2)


def test_a_file_that_is_too_short_is_not_read(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(bytes(79))
    with pytest.raises(DataError, match="shorter"):
        FileRows(path, 0, np.dtype("f4"), (5, 4))
    rows = FileRows(path, 0, np.dtype("f4"), (4, 4))
    path.write_bytes(bytes(49))  # the last row has one byte left
    for read in (lambda: rows.take(np.array([3])), lambda: rows.block(0, 4)):
        with pytest.raises(DataError, match="shorter"):
            read()


def test_a_short_read_is_continued(tmp_path, monkeypatch):
    path = tmp_path / "rows"
    path.write_bytes(X.tobytes())
    rows = FileRows(path, 0, X.dtype, X.shape)
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, parts, at: whole(file, [parts[0][:3]], at))
    assert np.array_equal(rows.block(0, 7), X)
    assert np.array_equal(rows.take(np.array([6, 1])), X[[6, 1]])


def test_a_changed_file_needs_a_new_epoch_and_a_touched_one_does_not(tmp_path, load):
    path = npz(tmp_path / "a.npz", shareable=MARKS)
    store = Store(tmp_path / "store", create=True)

    def site() -> Site:
        return Site(store, load(path), "a", None)

    offer = site().offer(FEDERATION, node_id=1, run_id=1, with_key=True).checked()
    os.utime(path, ns=(1, 1))
    assert site().rows.checked().digest.hex() == offer.manifest
    assert store.manifests.newest().stamp == load(path).stamp  # compared once
    npz(path, shareable=~MARKS)
    with pytest.raises(DataChanged):
        site().rows.checked()
    npz(path, shareable=MARKS, y=(Y + 1) % 3)
    with pytest.raises(DataChanged):
        site().rows.checked()
    again = site().offer(FEDERATION, node_id=1, run_id=1, with_key=True).checked()
    assert again.manifest != offer.manifest
    store.close()


def test_what_is_unpacked_is_private_and_replaced_with_the_file(tmp_path, load):
    path = parquet(tmp_path / "a.parquet")
    load(path)
    (tmp_path / "spool" / "left-by-a-crash.part").touch()
    load(parquet(path, f0=np.ones(7, np.float32)))
    (spooled,) = (tmp_path / "spool").iterdir()
    assert stat.S_IMODE(spooled.stat().st_mode) == 0o600
    assert stat.S_IMODE(spooled.parent.stat().st_mode) == 0o700
    assert np.fromfile(spooled, np.float32).reshape(7, 4)[:, 0].tolist() == [1] * 7


# Memory


def sparse_npz(path: Path, n: int, width: int) -> None:
    """An .npz with n rows of bytes that take no room on the disk; all may be shared."""
    header = str({"descr": "|u1", "fortran_order": False, "shape": (n, width)}).encode()
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    small = [np.arange(n) % 3, np.ones(n, np.bool_)]
    entries = [("x.npy", start, n * width)]
    for name, array in zip(("y.npy", "shareable.npy"), small, strict=True):
        buffer = io.BytesIO()
        np.save(buffer, array)
        entries.append((name, buffer.getvalue(), 0))
    directory = b""
    with path.open("wb") as file:
        for name, content, hole in entries:
            crc, size = zipfile.crc32(content), len(content) + hole
            fields = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, crc, size, size, len(name), 0)
            offset = file.tell()
            file.write(b"PK\x03\x04" + fields + name.encode() + content)
            file.seek(hole, os.SEEK_CUR)
            directory += b"PK\x01\x02\x14\0" + fields + struct.pack("<HHHII", 0, 0, 0, 0, offset)
            directory += name.encode()
        end = struct.pack("<HHHHIIH", 0, 0, 3, 3, len(directory), file.tell(), 0)
        file.write(directory + b"PK\x05\x06" + end)


MEASURE = """
import sys
from pathlib import Path
import pyarrow.parquet
from fedcommons.federate.protocol.keys import Identity, fresh_epoch_key
from fedcommons.federate.protocol.records import Epoch, Offer
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.store import Store

def peak():
    (line,) = [l for l in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in l]
    return int(line.split()[1]) / 1024

before = peak()
folder, path = map(Path, sys.argv[1:])
site = Site(Store(folder, create=True), load_site_data(path, spool=folder / "spool"), "a", None)
mine = site.offer("hospitals", node_id=1, run_id=1, with_key=True)
other = Identity.create()
fields = {name: getattr(mine.checked(), name) for name in Offer.__slots__}
fields |= dict(site="b", identity=other.name, key=fresh_epoch_key()[0].hex())
epoch = Epoch("hospitals", 1, 0, 1, (mine, Offer(**fields).signed(other)))
envelopes, n_chunks = site.send(epoch.record, [1], 0)
print(before, peak(), mine.checked().n_examples, len(envelopes), n_chunks)
"""
MEASURE_LOADING = """
import sys
from pathlib import Path
import pyarrow.parquet
from fedcommons.federate.site.data_files import load_site_data

def peak():
    (line,) = [l for l in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in l]
    return int(line.split()[1]) / 1024

before = peak()
data = load_site_data(sys.argv[2], spool=Path(sys.argv[1]))
print(before, peak(), data.n_examples)
"""


def peak_megabytes(folder: Path, path: Path, script: str = MEASURE) -> tuple[float, ...]:
    """What loading, numbering and a first chunk add to the peak; examples, envelopes, chunks."""
    result = subprocess.run(
        [sys.executable, "-c", script, folder, path], capture_output=True, text=True, check=True
    )
    before, after, *counts = result.stdout.split()
    return float(after) - float(before), *map(int, counts)


def test_memory_does_not_grow_with_a_plain_file(tmp_path):
    """768 MB of examples, of which 16 are in a chunk: less than 100 MB more."""
    sparse_npz(tmp_path / "a.npz", n=768, width=1 << 20)
    added, n, n_envelopes, n_chunks = peak_megabytes(tmp_path / "store", tmp_path / "a.npz")
    assert (n, n_envelopes, n_chunks) == (768, 1, 52)
    assert added < 100


def test_memory_does_not_grow_with_a_compressed_file(tmp_path):
    n = 192
    np.savez_compressed(
        tmp_path / "a.npz",
        x=np.zeros((n, 1 << 20), np.uint8),
        y=np.zeros(n, np.int64),
        shareable=np.ones(n, np.bool_),
    )
    added, found, n_envelopes, _ = peak_megabytes(tmp_path / "store", tmp_path / "a.npz")
    assert (found, n_envelopes) == (n, 1)
    assert added < 100


@pytest.mark.parametrize(("n", "n_columns"), [(120_000, 200), (1_000_000, 24)])
def test_memory_does_not_grow_with_a_parquet_file_of_one_row_group(tmp_path, n, n_columns):
    """192 MB, wide or tall: less than 80 MB more."""
    columns = {f"f{i}": np.zeros(n) for i in range(n_columns)}
    table = pa.table({**columns, "label": np.zeros(n, np.int64)})
    pq.write_table(
        table, tmp_path / "a.parquet", row_group_size=n, use_dictionary=False, compression="none"
    )
    added, found = peak_megabytes(tmp_path / "spool", tmp_path / "a.parquet", MEASURE_LOADING)
    assert found == n
    assert added < 80
