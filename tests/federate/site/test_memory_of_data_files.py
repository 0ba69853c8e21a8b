"""Memory does not grow with the data file."""

import io
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


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
from dataclasses import replace
from fedcommons.federate.protocol.joint_draw import promise
from fedcommons.federate.protocol.keys import Identity, fresh_epoch_key
from fedcommons.federate.protocol.records import Epoch, Offer
from fedcommons.federate.site.policy import SIMULATED
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.store import Store

def peak():
    (line,) = [l for l in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in l]
    return int(line.split()[1]) / 1024

before = peak()
folder, path = map(Path, sys.argv[1:])
data = load_site_data(path, spool=folder / "spool")
site = Site(Store(folder, create=True), data, "a", None, SIMULATED)
mine = site.exchange.offer("hospitals", node_id=1, run_id=1, with_key=True)
other = Identity.create()
fields = {name: getattr(mine.checked(), name) for name in Offer.__slots__}
fields |= dict(site="b", identity=other.name, key=fresh_epoch_key()[0].hex())
fields |= dict(promise=promise(other.name, bytes(32)))
proposal = Epoch("hospitals", 1, 1, (mine, Offer(**fields).signed(other)))
value = site.exchange.reveal(proposal.record)
epoch = replace(proposal, values=(value, bytes(32)))
envelopes, n_chunks = site.exchange.send(epoch.record, [1], 0)
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
    """192 MB, wide or tall: less than 100 MB more."""
    columns = {f"f{i}": np.zeros(n) for i in range(n_columns)}
    table = pa.table({**columns, "label": np.zeros(n, np.int64)})
    pq.write_table(
        table, tmp_path / "a.parquet", row_group_size=n, use_dictionary=False, compression="none"
    )
    added, found = peak_megabytes(tmp_path / "spool", tmp_path / "a.parquet", MEASURE_LOADING)
    assert found == n
    assert added < 100
