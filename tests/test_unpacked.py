"""A small file does not fill the memory: what it expands to is seen before it is expanded."""

import gzip
import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedcommons import datasets, unpacked
from fedcommons.datasets.files import read_idx
from fedcommons.errors import DataError
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.npz import read_npy, read_npz
from fedcommons.parquet import read_parquet
from fedcommons.plan.files import read_labels

TOO_MUCH = r"must expand to at most \d+ bytes"
ZEROS = np.zeros(3_000_000)
SMALL = 1 << 20


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    """A megabyte instead of a gigabyte, so that the tests need little themselves."""
    monkeypatch.setattr(unpacked, "ALWAYS", SMALL)


def idx_bomb(path: Path) -> Path:
    head = b"\0\0\x08\x01" + struct.pack(">I", ZEROS.nbytes)
    path.write_bytes(gzip.compress(head + bytes(ZEROS.nbytes), mtime=0))
    return path


def refused(read, *arguments, match=TOO_MUCH):
    """Refused without ever having taken as much memory as the file expands to."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=match) as caught:
            read(*arguments)
        assert tracemalloc.get_traced_memory()[1] < ZEROS.nbytes / 2
    finally:
        tracemalloc.stop()
    return str(caught.value)


def test_an_npz_bomb_is_refused_by_its_name(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, answered=ZEROS)
    assert str(path) in refused(read_npz, path, ["answered"], DataError)


def test_arrays_that_are_too_much_together_are_refused(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, **{f"a{k}": ZEROS[:100_000] for k in range(10)})
    refused(read_npz, path, [f"a{k}" for k in range(10)], DataError)
    assert read_npz(path, ["a3"], DataError)["a3"].size == 100_000


def test_a_sites_npz_bomb_is_refused(tmp_path):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=ZEROS.reshape(-1, 3), y=np.zeros(3, np.int64))
    assert str(path) in refused(lambda: load_site_data(path, spool=tmp_path / "spool"))
    assert not list((tmp_path).glob("spool/*"))


def test_a_gzip_bomb_is_refused(tmp_path):
    path = idx_bomb(tmp_path / "images.gz")
    assert str(path) in refused(read_idx, path)


def test_a_parquet_bomb_is_refused(tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"label": ZEROS}), path)
    assert path.stat().st_size < 50_000
    assert str(path) in refused(read_parquet, path, DataError)
    refused(datasets.load, path)
    refused(lambda: load_site_data(path, spool=tmp_path / "spool"))


def test_what_is_not_compressed_has_no_limit(tmp_path):
    values = np.random.default_rng(0).random(300_000)
    assert values.nbytes > SMALL
    np.savez(tmp_path / "a.npz", values=values)
    assert read_npz(tmp_path / "a.npz", ["values"], DataError)["values"].tobytes() == (
        values.tobytes()
    )
    np.save(tmp_path / "a.npy", values)
    assert read_npy(tmp_path / "a.npy", DataError).tobytes() == values.tobytes()


def test_gzip_files_that_follow_one_another_are_one(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two") + bytes(512))
    assert unpacked.read_bytes(path, DataError) == b"one two"
    path.write_bytes(gzip.compress(b"one ")[:-9])
    with pytest.raises(DataError, match="ends within"):
        unpacked.read_bytes(path, DataError)


HUGE = ("(4611686018427387904,)", "(1099511627776, 3)", "(-1,)", "(3000000000,)")


@pytest.mark.parametrize("shape", HUGE)
@pytest.mark.parametrize("dtype", ["<f8", "|V0"])
def test_a_header_that_lies_gets_no_memory(tmp_path, shape, dtype):
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    array = np.lib.format.MAGIC_PREFIX + b"\x01\x00" + struct.pack("<H", len(text)) + text
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", array + bytes(64))
    (tmp_path / "labels.npy").write_bytes(array + bytes(64))
    said = "cannot be read as .npz"
    refused(read_npz, tmp_path / "a.npz", ["x"], DataError, match=said)
    refused(read_labels, tmp_path / "labels.npy", match=said)


def test_damage_behind_the_values_is_noticed(tmp_path):
    """NumPy reads no further than the header says; the checksum is of all."""
    path = tmp_path / "a.npz"
    file = io.BytesIO()
    np.save(file, np.arange(4))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", file.getvalue())
    content = bytearray(path.read_bytes())
    content[content.find(np.arange(4).tobytes()) + 24] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="Bad CRC"):
        read_npz(path, ["x"], DataError)
