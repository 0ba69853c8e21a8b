"""Sites whose examples have another form are named and left out."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flwr.common.serde import message_to_proto

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.example_schema import usual
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.own_data import SiteData
from tests.federate.tiny import (
    Counting,
    Tiny,
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


class Recording(Counting):
    """Keeps every byte that is carried."""

    def __init__(self, *args):
        super().__init__(*args)
        self.carried = []

    def _carried(self, message):
        self.carried.append(message_to_proto(message).SerializeToString())
        return super()._carried(message)


def tables(tiny: Tiny, folder: Path, **columns: list[str]) -> None:
    """Sites' data as Parquet files, with these feature columns, of which every other row is shared.

    A feature has the same values under the same name, wherever it is.
    """
    for name, features in columns.items():
        n = tiny.data[name].n_examples
        table = {f: np.full(n, float(ord(f[0]))) for f in features}
        marks = {"label": tiny.data[name].y, "shareable": np.arange(n) % 2 == 0}
        path = folder / f"{name}.parquet"
        pq.write_table(pa.table({**table, **marks}), path)
        tiny.data[name] = load_site_data(path, spool=folder / f"spool-{name}")


def test_sites_with_other_columns_are_named_and_left_out(tiny, tmp_path, caplog):
    """Features go by position: with age and bp swapped, b would spoil what it gets and gives."""
    names = ["age", "bp", "crp", "dbp"]
    tables(tiny, tmp_path, a=names, b=["bp", "age", "crp", "dbp"], c=names, d=names)
    with tiny.shared() as federation:
        assert [m.site for m in federation.commit.members] == ["a", "c", "d"]
    why = "its feature columns have other names than the others', or another order"
    assert f"b is left out of the exchange: {why}" in caplog.text
    caplog.clear()
    grid = tiny.grid(Recording)
    with tiny.shared(grid) as federation:  # another run, without an exchange
        _, notes = train(federation, grid, 1)
    assert f"b has no part in the exchange: {why}" in caplog.text
    assert set(outcomes(notes[0]).values()) == {"answered"}
    assert grid.carried
    for name in names:
        assert f'"{name}"'.encode() not in b"".join(grid.carried)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x.astype(np.float32), "its examples are float32 4, the others' float64 4"),
        (lambda x: x[:, :3], "its examples are float64 3, the others' float64 4"),
        (lambda x: x.reshape(-1, 2, 2), "its examples are float64 2x2, the others' float64 4"),
    ],
    ids=["type", "features", "shape"],
)
def test_sites_with_examples_of_another_form_are_named_and_left_out(tiny, caplog, change, said):
    data = tiny.data["a"]
    x = change(data.x.block(0, data.n_examples))
    tiny.data["a"] = SiteData.from_arrays(x, data.y, data.shareable)
    with tiny.shared() as federation:
        assert [m.site for m in federation.commit.members] == ["b", "c", "d"]
        assert set(federation.commit.pairs) == {
            (s, r) for s in range(3) for r in range(3) if s != r
        }
    assert f"a is left out of the exchange: {said}" in caplog.text


def test_of_two_sites_that_do_not_fit_the_error_names_the_second(tiny, tmp_path):
    tables(tiny, tmp_path, a=["age", "bp"], b=["bp", "age"])
    with pytest.raises(FederationError, match=r"left out were {'b': \"its feature columns have"):
        tiny.run(1, grid=tiny.grid(without="cd"), sharing={"copies": 1})


def test_a_site_without_data_takes_part_whatever_the_others_have(tiny):
    tiny.data["a"] = SiteData.none()
    with tiny.shared(copies=0) as federation:
        assert len(federation.commit.members) == 4


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", ("", "")),
        ("a:p b:q", ("p", "")),
        ("b:q a:p", ("p", "")),
        ("a:p b:q c:q", ("q", "")),
        ("a: b: c:q", ("q", "")),
        ("a:p b:q1 c:q2 d:q2", ("q", "2")),
        ("a:p1 b:p1 c:q2 d:q2 e:q", ("q", "2")),
        ("a:p b:p b:p1", ("p", "1")),
        ("b:p2 a:p1", ("p", "1")),
    ],
)
def test_the_usual_layout_is_that_of_most_and_then_of_the_first(said, expected):
    sites = [
        SimpleNamespace(site=name, layout=what[:1], columns=what[1:])
        for name, what in (word.split(":") for word in said.split())
    ]
    assert usual(sites) == expected
