"""What a site says of its own mistakes: to its own log what is wrong, to the server a class."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp

from fedcommons.errors import ArgumentError, DataError, FederationError, StoreError
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.transport.client_app import attach
from tests.federate.tiny import N_CLASSES, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")


def test_the_server_hears_the_class_and_the_site_reads_the_text(tiny, caplog):
    grid = tiny.grid()
    load = tiny.clients[-1]._load

    def load_or_fail(context):
        if context.node_config["site"] == "b":
            raise ArgumentError("node config: data must be a file")
        return load(context)

    tiny.clients[-1]._load = load_or_fail
    with tiny.shared(grid) as federation:
        assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
        assert set(federation.meeting.refused.values()) == {"ArgumentError"}
    assert "ArgumentError: node config: data must be a file" in caplog.text


def test_an_error_of_the_apps_own_is_said_by_its_place_alone(tiny, caplog):
    def broken(_site, _message, _context):
        raise KeyError("secret")

    def quoting(_site, _message, _context):
        raise type("OwnError", (DataError,), {})("secret")

    for n, function, name in ((1, broken, "KeyError"), (2, quoting, "OwnError")):
        grid = tiny.grid(train=function)
        with tiny.shared(grid) as federation, pytest.raises(FederationError):
            train(federation, grid, n)
        assert f"{name} at test_client_app.py:" in caplog.text
    assert "secret" not in caplog.text


def test_a_librarys_error_is_said_with_the_line_of_the_app(tiny, caplog):
    grid = tiny.grid(train=lambda *_: np.linalg.inv(np.zeros((2, 3))))
    with tiny.shared(grid) as federation, pytest.raises(FederationError):
        train(federation, grid, 1)
    assert "LinAlgError at test_client_app.py:" in caplog.text
    assert ", in _linalg.py:" in caplog.text


# Labels


def with_a_label(data: SiteData, label: int) -> SiteData:
    y = data.y.copy()
    y[0] = label
    return replace(data, y=y)


def test_a_label_that_is_no_class_stops_its_own_site_alone(tiny, caplog):
    """Without the check everybody who holds a copy would fail in every round."""
    tiny.data["b"] = with_a_label(tiny.data["b"], N_CLASSES)
    grid = tiny.grid()
    tiny.clients[-1]._n_classes = N_CLASSES
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 1)
    assert outcomes(notes[0]) == dict.fromkeys("acd", "answered")
    assert "y must be labels from 0 to 2, got 3 in example 0" in caplog.text


def test_a_label_from_elsewhere_that_is_no_class_is_refused(tiny):
    """A site whose own app does not check: nobody else takes its examples."""
    tiny.data["b"] = with_a_label(tiny.data["b"], N_CLASSES)
    grid = tiny.grid()
    client = tiny.clients[-1]
    site_of = client.site

    def site(context):
        client._n_classes = None if context.node_config["site"] == "b" else N_CLASSES
        return site_of(context)

    client.site = site
    with tiny.shared(grid) as federation:
        commit = federation.commit
        _, notes = train(federation, grid, 1)
    row_0_went_to = set(commit.draw.recipients_of(1, np.array([0])).ravel().tolist())
    assert row_0_went_to
    assert not {(1, r) for r in row_0_went_to} & set(commit.pairs)
    assert {s for s, what in outcomes(notes[0]).items() if what == "answered"} == set("acd")


def test_a_number_of_classes_is_checked():
    with pytest.raises(ArgumentError, match="n_classes must be an integer >= 1, got 0"):
        attach(ClientApp(), n_classes=0)


def test_a_number_of_classes_is_refused_for_targets(tiny, caplog):
    data = tiny.data["b"]
    x = data.x.take(np.arange(data.n_examples))
    tiny.data["b"] = SiteData.from_arrays(x, data.y / 2, data.shareable)
    grid = tiny.grid()
    tiny.clients[-1]._n_classes = N_CLASSES
    with tiny.shared(grid) as federation:
        assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
        assert set(federation.meeting.refused.values()) == {"DataError"}
    assert "y must be class numbers if n_classes is given, got float64" in caplog.text


def test_names_of_classes_are_numbered_as_the_app_lists_them(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x;label\n0,5;sick\n1,5;well\n")
    config = {"data": str(path), "store": str(tmp_path / "store"), "peers": "first-use"}
    context = Context(1, 1, {**config, "separator": ";", "decimal": ","}, RecordDict(), {})
    client = attach(ClientApp(), classes=["well", "sick"])
    data = client.site(context).data
    client.close()
    assert (data.y.tolist(), data.n_classes) == ([1, 0], 2)
    assert data.x.take(np.arange(2)).tolist() == [[0.5], [1.5]]


def test_names_of_classes_belong_where_the_data_are_made():
    with pytest.raises(ArgumentError, match=r"classes must be given where the examples are made"):
        attach(ClientApp(), data=lambda _: SiteData.none(), classes=["a", "b"])
    with pytest.raises(ArgumentError, match="classes must be different names, got 'ab'"):
        attach(ClientApp(), classes="ab")


# What was unpacked


def test_a_damaged_copy_of_the_data_is_noticed_and_unpacked_anew(tiny, caplog):
    """Parquet and large compressed files are unpacked once, into the store's folder."""
    paths, spools = {}, {}
    for name, data in tiny.data.items():
        columns = [pa.array(column) for column in data.x.take(np.arange(data.n_examples)).T]
        names = [f"f{k}" for k in range(len(columns))]
        table = pa.Table.from_arrays(
            [*columns, pa.array(data.y), pa.array(data.shareable)], [*names, "label", "shareable"]
        )
        paths[name], spools[name] = tiny.folder / f"{name}.parquet", tiny.folder / name / "spool"
        pq.write_table(table, paths[name])

    def grid():
        found = tiny.grid()
        tiny.clients[-1]._load = lambda context: load_site_data(
            paths[context.node_config["site"]], spool=spools[context.node_config["site"]]
        )
        return found

    tiny.run(1, grid=grid())
    for reshare in (False, True):
        tiny.close()
        (spooled,) = spools["b"].iterdir()
        spooled.write_bytes(bytes(255 - byte for byte in spooled.read_bytes()))
        damaged, whole = grid(), grid()
        if reshare:  # nor is it numbered as if it were new
            with tiny.shared(damaged, reshare=True) as federation:
                assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
        else:
            with tiny.shared(damaged) as federation:
                _, notes = train(federation, damaged, 2)
            assert outcomes(notes[0])["b"] == "DataError"
        assert "the unpacked copy of its inputs was damaged" in caplog.text
        tiny.close()
        with tiny.shared(whole, reshare=reshare) as federation:
            _, notes = train(federation, whole, 4 if reshare else 3)
        assert outcomes(notes[0])["b"] == "answered"


def test_other_marks_on_the_same_file_are_taken_in_by_a_new_exchange(tiny, tmp_path):
    """The app's own loading may change though the file does not."""
    data, path = tiny.data["b"], tmp_path / "b.npz"
    np.savez(path, x=data.x.take(np.arange(6)), y=data.y)
    for reshare, every in ((False, 2), (True, 3)):
        loaded = load_site_data(path, spool=tmp_path)
        tiny.data["b"] = replace(loaded, shareable=np.arange(6) % every == 0)
        with tiny.shared(tiny.grid(), reshare=reshare) as federation:
            assert federation.commit.members[1].n_shareable == 6 // every
        tiny.close()


def test_rows_can_be_withdrawn_as_they_were_offered(tiny, tmp_path):
    """Also by a store from a backup, whose file has changed since."""
    data, path = tiny.data["b"], tmp_path / "b.npz"
    x = data.x.take(np.arange(6))
    np.savez(path, x=x, y=data.y, shareable=data.shareable)
    tiny.data["b"] = load_site_data(path, spool=tmp_path)
    tiny.run(1)
    tiny.close()
    np.savez(path, x=x[2:], y=data.y[2:], shareable=data.shareable[2:])
    with tiny.store("b") as store:
        with pytest.raises(StoreError, match="--as-offered goes by the numbers"):
            store.withdrawals.withdraw(np.array([0, 1]))
        assert store.withdrawals.withdraw(np.array([0, 1]), as_offered=True) == 2
