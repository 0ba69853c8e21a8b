"""Tables as people have them: what is read, and what is refused by its line and column."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedcommons import datasets
from fedcommons.errors import ArgumentError, DataError

PATIENTS = """hospital,split,age,blood,pain,disease
north,train,50,120,none,no
north,train,60,140,some,yes
north,test,55,130,none,no
south,train,70,150,much,yes
south,train,40,110,none,no
south,test,65,145,some,yes
"""
ROLES = {"label": "disease", "site_column": "hospital", "split_column": "split"}


def csv(tmp_path, text, name="patients.csv"):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path / name


def test_a_table_with_sites_a_split_text_and_categories(tmp_path):
    found = datasets.load(csv(tmp_path, PATIENTS), **ROLES)
    assert found.columns == ("age", "blood", "pain=much", "pain=none", "pain=some")
    assert found.x_train.tolist() == [
        [50, 120, 0, 1, 0],
        [60, 140, 0, 0, 1],
        [70, 150, 1, 0, 0],
        [40, 110, 0, 1, 0],
    ]
    assert found.y_train.tolist() == [0, 1, 1, 0]
    assert found.y_test.tolist() == [0, 1]
    assert found.sites == ("north", "south")
    assert found.site_train.tolist() == [0, 0, 1, 1]
    assert found.site_test.tolist() == [0, 1]
    assert found.encodings == {
        "label": {"column": "disease", "values": ["no", "yes"]},
        "categories": {"pain": ["much", "none", "some"]},
    }


def test_parquet_gives_what_csv_gives(tmp_path):
    path = csv(tmp_path, PATIENTS)
    rows = [line.split(",") for line in PATIENTS.splitlines()]
    columns = dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    table = {k: [int(v) for v in vs] if k in ("age", "blood") else vs for k, vs in columns.items()}
    pq.write_table(pa.table(table), tmp_path / "patients.parquet")
    one, other = (datasets.load(p, **ROLES) for p in (path, tmp_path / "patients.parquet"))
    for name in ("x_train", "y_train", "x_test", "y_test", "site_train", "site_test"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert one.encodings == other.encodings


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
def test_marks_of_spreadsheets_empty_lines_and_an_index_are_taken(tmp_path, mark, ends):
    text = mark + ends.join([b",a,label", b"0,1.5,0", b"", b"1, 2e0 ,1", b""])
    found = datasets.load(csv(tmp_path, text))
    assert found.columns == ("a",)
    assert found.x_train.tolist() == [[1.5], [2.0]]


def test_separator_and_decimal_commas_can_be_given(tmp_path):
    path = csv(tmp_path, "a;label\n1,5;0\n-2,25;1\n")
    found = datasets.load(path, separator=";", decimal=",")
    assert found.x_train.tolist() == [[1.5], [-2.25]]


def test_a_folder_of_two_tables(tmp_path):
    csv(tmp_path, "a,label\n1,x\n2,y\n", "train.csv")
    csv(tmp_path, "label,a\ny,3\n", "test.csv")
    found = datasets.load(tmp_path)
    assert (found.x_test.tolist(), found.y_test.tolist()) == ([[3]], [1])


def test_numbers_may_be_categories_and_columns_may_be_left_out(tmp_path):
    path = csv(tmp_path, "id,code,label\nu1,10,0\nu2,9,1\nu3,10,1\n")
    found = datasets.load(path, categories=["code"], leave_out=["id"])
    assert found.columns == ("code=9", "code=10")  # by size, not by alphabet
    assert found.x_train.tolist() == [[0, 1], [1, 0], [0, 1]]


def test_missing_values_by_each_rule(tmp_path):
    path = csv(tmp_path, "a,b,split,label\n1,u,train,0\n3,,train,1\n?,v,train,1\n,u,test,0\n")
    refused("column 'a' must have no missing values, got 2, the first in line 4", path)
    dropped = datasets.load(
        csv(tmp_path, path.read_text() + "9,u,test,0\n"), split_column="split", missing="drop"
    )
    assert dropped.x_train.tolist() == [[1, 1]]
    assert dropped.encodings["dropped"] == 3
    filled = datasets.load(path, split_column="split", missing="mean")
    # the mean of the training rows alone; a row without a category has zeros
    assert filled.x_train.tolist() == [[1, 1, 0], [3, 0, 0], [2, 0, 1]]
    assert filled.x_test.tolist() == [[2, 1, 0], [9, 1, 0]]
    assert filled.encodings["means"] == {"a": 2.0}


def refused(message, path, kind=DataError, **options):
    with pytest.raises(kind, match=message):
        datasets.load(path, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have a header and a row"),
        ("a,label\n", "must have a header and a row for each example, got no rows"),
        ("a,label\n1,0\n2\n", "line 3: must have the header's 2 fields, got 1"),
        ("a,label\n1,0\n2,1,3\n", "line 3: .* 2 fields, got 3; a value with a comma in it"),
        ("a;label\n1;0\n", 'must have a comma between its fields, got a semicolon: .* ";"'),
        ("a\tlabel\n1\t0\n", r"got a tab: give separator = .\\t"),
        ("a|label\n1|0\n", "got a bar"),
        ("a,a,label\n1,2,0\n", "each column once, got 'a' twice"),
        ("a,,label\n1,2,0\n", "must name every column, got none for column 2"),
        ('a,label\n5,1\n"1,234",0\n', "line 3, column 'a': .*thousands separators, got '1,234'"),
        ('a,label\n"1,5",0\n', "column 'a': must be a number with a decimal point.*got '1,5'"),
        ("a,label\n1 234,0\n", "line 2, column 'a': .*got '1 234'"),
        ("a,label\n1,0\n2,1\nx,1\n", "line 4, column 'a': must be a number as most .* 'x'"),
        ("a,label\n1,0\ninf,1\n", "column 'a': must be a number as most of the column"),
        ("a,label\n1,0\n1_000,1\n", "column 'a': must be a number"),
        ("a,b\n1,0\n", "must have the label column 'label', got .'a', 'b'."),
        ("label\n1\n", "must have feature columns"),
        ("a,label\n1,\n2,1\n", "column 'label' must have no missing values, got 1"),
        (b"a,label\n1,\xff\n", "line 2: must be text in UTF-8"),
        ("a,label\n1,0\n".encode("utf-16"), "must be text in UTF-8, got UTF-16"),
    ],
)
def test_wrong_csv_files_are_named(tmp_path, text, message):
    refused(message, csv(tmp_path, text))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (dict(site_column="clinic"), "must have the site_column 'clinic'"),
        (dict(split_column="part"), "must have the split_column 'part'"),
        (dict(categories=["colour"]), "must have the column of categories 'colour'"),
        (dict(leave_out=["id"]), "must have the column to leave out 'id'"),
        (dict(site_column="one"), "column 'one' must name at least two sites, got .'x'."),
        (dict(site_column="empty"), "column 'empty' must have no missing values, got 6"),
        (dict(site_column="tested"), "training examples, got none of 'far'"),
        (dict(split_column="hospital"), "line 2: column 'hospital' must say train or test"),
        (dict(split_column="one"), "must say train or test, got 'x'"),
        (dict(label="rare"), "line 7: column 'rare' must have labels that training rows have"),
    ],
)
def test_wrong_columns_are_named(tmp_path, rules, message):
    more = ("one,empty,tested,rare", "x,,near,a", "x,,near,b", "x,,far,a", "x,,near,a", "x,,mid,b")
    lines = zip(PATIENTS.splitlines(), (*more, "x,,far,c"), strict=True)
    path = csv(tmp_path, "\n".join(",".join(pair) for pair in lines))
    out = [c for c in ("one", "empty", "tested", "rare") if c not in rules.values()]
    options = {**ROLES, "leave_out": out, **rules}
    if rules.get("split_column") == "hospital":
        options["site_column"] = ""
    if "leave_out" in rules:
        options["leave_out"] = rules["leave_out"]
    refused(message, path, **options)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (dict(test_part=1.0), "test_part must be above 0 and below 1, got 1"),
        (dict(test_part=-0.1), r"test_part must be in \[0, 1\], got -0.1"),
        (dict(test_part="a"), "test_part"),
        (dict(test_part=0.3, split_column="split"), "must not be given both"),
        (dict(missing="guess"), "missing must be one of 'refuse', 'drop', 'mean', got 'guess'"),
        (dict(scale="log"), "scale must be one of"),
        (dict(separator="x"), "separator must be one of"),
        (dict(label=[1]), "label must be a column's name"),
        (dict(categories="a"), "categories must be a list"),
        (dict(site_column="a", leave_out=["a"]), "leave_out and site_column must differ"),
        (dict(sitecolumn="a"), "rules of reading must be among label, .*got 'sitecolumn'"),
    ],
)
def test_wrong_rules_are_named(tmp_path, rules, message):
    refused(message, csv(tmp_path, PATIENTS), ArgumentError, **rules)


def test_a_category_that_only_test_rows_have_is_said(tmp_path):
    path = csv(tmp_path, "a,b,split,label\n1,u,train,0\n2,v,train,1\n3,w,test,1\n")
    found = datasets.load(path, split_column="split")
    assert found.x_test.tolist() == [[3, 0, 0]]
    assert found.encodings["notes"] == [
        "column 'b': 'w' occurs among test rows alone, and counts as none of its categories"
    ]


def test_names_of_rows_are_no_categories(tmp_path):
    rows = "".join(f"p{k},{k % 2}\n" for k in range(101))
    refused("'id' must have at most 100 categories, got 101", csv(tmp_path, f"id,label\n{rows}"))


def test_rules_of_tables_are_refused_elsewhere(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((2, 1)), y=np.arange(2))
    for rule in (dict(label="y"), dict(missing="drop"), dict(site_column="s")):
        refused("must go with a table", tmp_path / "a.npz", ArgumentError, **rule)
    pq.write_table(pa.table({"a": [1.0], "label": [0]}), tmp_path / "t.parquet")
    refused("separator must go with a .csv", tmp_path / "t.parquet", ArgumentError, separator=";")
