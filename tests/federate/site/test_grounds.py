"""Grounds are read from any data file; they are no features, and bad ones are refused by name."""

import numpy as np
import pyarrow as pa
import pytest

from fedcommons.errors import DataError
from fedcommons.federate.site.data_files import data_behind
from fedcommons.federate.site.grounds import Grounds
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.status import summary_of
from tests.federate.site.data_files import KEY, MARKS, npz, parquet

GROUND = [
    "CC BY 4.0",
    None,
    " ",
    "consent 17",
    "=1+1",
    "Einwilligung für \u00bbA\u00ab",
    "CC BY 4.0",
]
READ = ["CC BY 4.0", "", "", "consent 17", "=1+1", "Einwilligung für \u00bbA\u00ab", "CC BY 4.0"]


def csv_file(path, name="ground", values=GROUND):
    rows = [f"{k}.5,{k % 3},{int(MARKS[k])},{values[k] or ''}" for k in range(7)]
    path.write_text("\n".join([f"f0,label,shareable,{name}", *rows]) + "\n", encoding="utf-8")
    return path


def grounds_of(data):
    assert data.ground is not None
    return [data.ground[row] for row in range(len(data.ground))]


def test_every_kind_of_file_may_say_grounds(load, tmp_path):
    assert grounds_of(load(npz(tmp_path / "a.npz", ground=np.array(READ)))) == READ
    table = load(parquet(tmp_path / "a.parquet", ground=GROUND))
    assert grounds_of(table) == READ
    assert len(table.features) == 4
    assert grounds_of(load(csv_file(tmp_path / "a.csv"))) == READ
    without = load(npz(tmp_path / "b.npz"))
    assert without.ground is None
    assert not without.grounds(np.arange(7)).stated.any()


def test_grounds_are_no_part_of_what_examples_are(load, tmp_path):
    with_them = load(parquet(tmp_path / "a.parquet", ground=GROUND))
    found = with_them.fingerprints(KEY)
    without = load(parquet(tmp_path / "b.parquet"))
    np.testing.assert_array_equal(found, without.fingerprints(KEY))
    assert (with_them.layout, with_them.columns) == (without.layout, without.columns)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_column_may_have_another_name_also_when_the_file_is_read_again(load, tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        csv_file(path, "licence")
    else:
        parquet(path, licence=GROUND)
    data = load(path, ground="licence")
    assert grounds_of(data) == READ
    again = data_behind(data.stamp, spool=tmp_path / "spool")
    assert grounds_of(again) == READ


@pytest.mark.parametrize(
    ("ground", "said"),
    [
        (np.arange(7), "ground must be text, one for each example, got int64"),
        (np.array([[x] for x in READ]), "ground must be text, .* shape"),
        (np.array(READ[:6]), "ground must be one for each of 7 examples, got 6"),
        (np.array([*READ[:6], "x" * 201]), "ground must be at most 200 characters, got 201 in ex"),
        (
            np.array([*READ[:6], "a\nb"]),
            "ground must be without characters that cannot be seen, got .* example 6",
        ),
        (
            np.array([*READ[:6], "a\u202eb"]),
            "ground must be without characters that cannot be seen",
        ),
    ],
)
def test_bad_grounds_are_refused_with_the_files_name(load, tmp_path, ground, said):
    with pytest.raises(DataError, match=f"a.npz: {said}"):
        load(npz(tmp_path / "a.npz", ground=ground))


def test_a_column_of_numbers_is_no_ground(load, tmp_path):
    with pytest.raises(DataError, match="column 'ground' must be text, got int64"):
        load(parquet(tmp_path / "a.parquet", ground=pa.array(range(7))))
    with pytest.raises(DataError, match="data: ground must be text, got 3 in example 1"):
        SiteData.from_arrays(np.eye(2), [0, 1], ground=["a", 3])


def test_grounds_are_kept_without_those_that_nothing_has():
    grounds = Grounds.checked(READ, 7, "data").take(np.array([4, 1, 3, 4]))
    names, numbers = grounds.pack()
    again = Grounds.unpack(names, numbers)
    assert [again[k] for k in range(4)] == ["=1+1", "", "consent 17", "=1+1"]
    assert set(again.names) == {"", "=1+1", "consent 17"}


def test_the_check_of_a_file_counts_them(load, tmp_path):
    data = load(npz(tmp_path / "a.npz", ground=np.array(READ), shareable=MARKS))
    assert summary_of(data)["shareable_with_ground"] == 1
    assert "shareable_with_ground" not in summary_of(load(npz(tmp_path / "b.npz")))
