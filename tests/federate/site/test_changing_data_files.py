"""A data file that changes while it is in use is noticed."""

import os
import stat

import numpy as np
import pytest

from fedcommons.errors import DataError
from fedcommons.federate.protocol.refusals import DataChanged
from fedcommons.federate.site.file_rows import FileRows
from fedcommons.federate.site.policy import SIMULATED
from fedcommons.federate.site.site import Site
from fedcommons.federate.site.store import Store
from tests.federate.conftest import FEDERATION
from tests.federate.site.data_files import (
    MARKS,
    X,
    Y,
    npz,
    parquet,
)


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
        return Site(store, load(path), "a", None, SIMULATED)

    offer = site().exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True).checked()
    numbered = bytes.fromhex(offer.manifest)
    os.utime(path, ns=(1, 1))
    assert site().rows.checked(numbered).digest == numbered
    assert store.manifests.newest().stamp == load(path).stamp  # compared once
    npz(path, shareable=~MARKS)
    with pytest.raises(DataChanged):
        site().rows.checked(numbered)
    npz(path, shareable=MARKS, y=(Y + 1) % 3)
    with pytest.raises(DataChanged):
        site().rows.checked(numbered)
    again = site().exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True).checked()
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
