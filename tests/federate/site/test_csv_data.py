"""A site's CSV file is read as it is; what cannot be is named with its line and column."""

import numpy as np
import pytest

from fedcommons.errors import ArgumentError, DataError
from fedcommons.federate.site.data_files import data_behind
from fedcommons.federate.site.status import summary_of
from tests.federate.site.data_files import KEY

GOOD = "age,chol,label,shareable\n50,1.5,0,true\n61,2,1,False\n\n47,-3e2,1,1\n"


@pytest.fixture
def read(tmp_path, load):
    def read(text, **options):
        path = tmp_path / "a.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path, **options)

    return read


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (GOOD, {}),
        ("\ufeff" + GOOD.replace("\n", "\r\n"), {}),
        (GOOD.replace(",", ";").replace("1.5", "1,5"), {"separator": ";", "decimal": ","}),
        (GOOD.replace(",", "\t"), {"separator": "\t"}),
        (GOOD.replace("50", '" 50 "'), {}),
        (GOOD.replace("label", "death").replace("shareable", "ok"),
         {"label": "death", "shareable": "ok"}),
    ],
    ids=["plain", "from a spreadsheet", "semicolons", "tabs", "quotes", "other names"],
)  # fmt: skip
def test_a_table_is_read_as_it_is(read, tmp_path, text, options):
    data = read(text, **options)
    assert data.x.block(0, 9).tolist() == [[50, 1.5], [61, 2], [47, -300]]
    assert data.x.dtype == np.float64
    assert (data.y.tolist(), data.layout) == ([0, 1, 1], "float64 2")
    assert data.shareable.tolist() == [True, False, True]
    assert data.features == ("age", "chol")
    behind = data_behind(data.stamp, spool=tmp_path)
    assert behind.fingerprints(KEY).tolist() == data.fingerprints(KEY).tolist()


def test_it_fits_parquet_with_the_same_columns(read, tmp_path, load):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {"age": [50.0, 61, 47], "chol": [1.5, 2, -300], "label": [0, 1, 1]}
    pq.write_table(pa.table({**table, "shareable": [True, False, True]}), tmp_path / "a.parquet")
    one, other = read(GOOD), load(tmp_path / "a.parquet")
    assert (one.layout, one.columns) == (other.layout, other.columns)
    assert one.fingerprints(KEY).tolist() == other.fingerprints(KEY).tolist()


def test_labels_are_integers_if_they_are_written_so(read):
    assert read(GOOD.replace("50,1.5,0", "50,1.5,0.0")).layout == "float64 2 -> float64"
    data = read("t,e,x\n1,1,2\n2.5,0,3\n", label="t,e")
    assert (data.layout, data.y.tolist()) == ("float64 1 -> float64 2", [[1, 1], [2.5, 0]])
    assert read("t,e,x\n1,1,2\n", label=["t", "e"]).layout == "float64 1 -> int64 2"


def test_names_of_classes(read, tmp_path):
    text = "x,label\n1,benign\n2,malignant\n"
    data = read(text, classes=["malignant", "benign"])
    assert (data.y.tolist(), data.n_classes) == ([1, 0], 2)
    assert data_behind(data.stamp, spool=tmp_path).y.tolist() == [1, 0]
    assert read("x,label\n1,2\n2,1\n", classes=["1", "2"]).y.tolist() == [1, 0]
    with pytest.raises(DataError, match="one of 'a', 'b', got 'benign' in example 0"):
        read(text, classes=["a", "b"])


def test_everything_is_private_without_marks(read):
    assert not read("x,label\n1,0\n").shareable.any()


def test_what_there_is_is_said(read):
    said = summary_of(read(GOOD))
    assert said["features"] == "age, chol"
    assert "scales" not in said
    rows = "".join(f"{k},{1000 * k},0\n" for k in range(1, 5))
    apart = summary_of(read(f"crp,platelets,label\n{rows}"))["scales"]
    assert apart == "very different: platelets is about 2.74e+03 in size, crp about 2.74"


BAD = {
    "missing": ("x,label\n1,0\n,1\n", r"a.csv, line 3, column 'x': must not be missing"),
    "a gap": (GOOD.replace("61", "?"), r"line 3, column 'age': must not be missing"),
    "a missing label": (GOOD.replace("2,1", "2,NA"), r"line 3, column 'label': must not be"),
    "a missing mark": (GOOD.replace("False", ""), r"line 3, column 'shareable': must not be missi"),
    "a word": (GOOD.replace("61", "old"), r"line 3, column 'age': must be a number.* got 'old'"),
    "words": ("x,sex,label\n1,f,0\n2,m,1\n", r"'sex': must be a number, got 'f'; words.* one way"),
    "infinity": ("x,label\ninf,0\ninf,1\n", r"line 2, column 'x': must be a number, got 'inf'"),
    "names of classes": (
        "x,label\n1,benign\n", r"line 2, column 'label': must be a number, got 'benign'.*classes=",
    ),
    "NaN targets": ("x,label\n1,0.5\n2,NaN\n", r"line 3, column 'label': must not be missing"),
    "another separator": (
        GOOD.replace(",", ";"), r"must have a comma between its fields, got a semicolon: give",
    ),
    "tabs": (GOOD.replace(",", "\t"), r"got a tab: give separator"),
    "ragged": (GOOD.replace("61,", "61,9,"), r"line 3: must have the header's 4 fields, got 5"),
    "thousands": (GOOD.replace("-3e2", '"1,234.5"'), r"line 5, column 'chol': .*got '1,234.5'"),
    "decimal commas": (GOOD.replace("1.5", '"1,5"'), r"line 2, column 'chol': .*decimal = \",\""),
    "marks of words": (GOOD.replace("False", "no"), r"column 'shareable': must be true or .*'no'"),
    "no label": ("x,y\n1,0\n", r"must have the label column 'label'"),
    "no features": ("label\n0\n", r"must have feature columns"),
    "a column twice": ("x,x,label\n1,1,0\n", r"each column once, got 'x' twice"),
    "nearly the name": (
        GOOD.replace("shareable", "sharable"), r"column 'sharable' must be called 'shareable' if",
    ),
    "negative labels": ("x,label\n1,-1\n", r"y must be class numbers from 0"),
    "no rows": ("x,label\n", r"got no rows"),
    "nothing": ("", r"got no rows"),
    "UTF-16": (GOOD.encode("utf-16"), r"UTF-8"),
    "Latin-1": ("größe,label\n1,0\n".encode("latin-1"), r"line 1: must be text in UTF-8"),
    "binary": (bytes(range(256)), r"a.csv"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_named(read, text, said):
    with pytest.raises(DataError, match=said):
        read(text)


def test_label_columns_that_are_missing_are_named(read):
    with pytest.raises(DataError, match="must have the label columns 'time', 'event' and each"):
        read(GOOD, label="time,event")


@pytest.mark.parametrize("options", [{"separator": "::"}, {"separator": ""}, {"decimal": ";"}])
def test_separators_that_cannot_be_are_refused(read, options):
    with pytest.raises(ArgumentError, match=rf"{next(iter(options))} must be one of"):
        read(GOOD, **options)
