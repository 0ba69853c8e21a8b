"""Tables of delays are read as spreadsheets write them; mistakes are named with line and site."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedcommons import delay_table, delays
from fedcommons.errors import ArgumentError, DataError

TABLE = "site,examples,spread,link,failures,away,away-seconds\na,10,.5,.2,.1,0,0\nb,2,0,1,0,.3,80\n"


def written(tmp_path, text):
    path = tmp_path / "delays.csv"
    path.write_text(text, encoding="utf-8-sig")
    return path


def units(n_clients):
    return delays.Units(n_clients, lambda block: np.random.default_rng(block))


def test_a_table_gives_a_law(tmp_path):
    table = delay_table.read(written(tmp_path, TABLE))
    assert table.names == ("a", "b")
    law = table.law(100.0, units(2))
    # 50 examples: a takes 5 s and half as much more, and a link that fails once in ten; b 25 + 1 s.
    np.testing.assert_allclose(law.mean(np.full(2, 5000.0)), [7.5 + 0.2 / 0.9, 26])
    np.testing.assert_array_equal(table.away, [0, 0.3])
    again = table.of(("b", "a"))
    assert again.names == ("b", "a")
    np.testing.assert_array_equal(again.rate, [2, 10])
    with pytest.raises(ArgumentError, match="got none for 'c'"):
        table.of(("a", "c"))


@pytest.mark.parametrize(
    "text",
    [
        "Hospital;Examples;Link seconds\nA;2,5;0,26\nB;1;1\n",
        "hospital\texamples a second\tLINK\nA\t2.5\t0.26\nB\t1\t1\n",
        "where,examples,link\nA,2.5,0.26\nB,1,1\n",
    ],
)
def test_spreadsheets_are_read(tmp_path, text):
    table = delay_table.read(written(tmp_path, text))
    assert table.names == ("A", "B")
    np.testing.assert_array_equal(table.rate, [2.5, 1])
    np.testing.assert_array_equal(table.link, [0.26, 1])
    assert not table.spread.any()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("site,examples\na,1\nb,0\n", r"line 3 \(b\): examples must be > 0, got 0"),
        ("site,examples\na,1\nb,fast\n", r"line 3 \(b\): examples must be a number, got 'fast'"),
        ("site,examples,spread\na,1,0\n\nb,1,-1\n", r"line 4 \(b\): spread must be >= 0 and fin"),
        ("site,examples,failures\na,1,1\n", r"\(a\): failures must be in \[0, 1\), got 1"),
        ("site,examples,away\na,1,.5\n", r"\(a\): away-seconds must be > 0"),
        ("site,speed\na,1\n", "must have one column of rates"),
        ("site,examples,multiply-adds\na,1,1\n", "must have one column of rates"),
        ("site,examples,sread\na,1,1\n", "must have no other columns .* got 'sread'"),
        ("site,examples\na,1\na,2\n", "each site once, got 'a' 2 times"),
        ("site,hospital,examples\na,x,1\n", "must have no other columns .* got 'hospital'"),
        ("client,hospital,examples\na,x,1\n", "one column of sites' names"),
        ("site;examples;link\na;1.250;0\n", "line 2: examples must be clear, got '1.250'"),
        ("site;examples;link\na;1,5;0\nb;2.5;0\n", "one kind of decimals, got '1,5' in line 2"),
        ('site,examples\na,"1,250,000"\n', "without thousands separators"),
        ("site,examples\n", "a row for each site"),
        ("site,examples,link,link-seconds\na,1,1,1\n", "must have one of link, link_seconds"),
    ],
)
def test_mistakes_are_named_with_line_and_site(tmp_path, text, said):
    with pytest.raises(DataError, match=said):
        delay_table.read(written(tmp_path, text))


def test_the_published_table_takes_the_time_that_is_published():
    law = delay_table.published(25).law(1.0, units(25))
    np.testing.assert_allclose(law.mean(np.zeros(25)), 0.26)
    np.testing.assert_allclose(law.mean(np.full(25, 25e6))[[0, 24]], [1.5 + 0.26, 30 + 0.26])


@pytest.mark.parametrize(
    ("asked_at", "took", "message"),
    [
        ([0.0, 5.0, 4.0], [1.0, 1.0, 1.0], "must not go back in time: row 3 of b was asked at 4"),
        ([0.0, 1.0, 2.0], [1.0, 0.0, 1.0], "took must be > 0, got 0 of b"),
        ([0.0, 1.0, 2.0], [1.0, np.nan, 1.0], r"r\.parquet: took must be finite"),
        ([0.0, np.inf, 2.0], [1.0, 1.0, 1.0], r"r\.parquet: asked_at must be finite"),
    ],
)
def test_a_recording_that_cannot_be_is_refused_with_its_name(tmp_path, asked_at, took, message):
    table = pa.table({"site": ["a", "b", "b"], "asked_at": asked_at, "took": took})
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(DataError, match=message):
        delay_table.read_recording(tmp_path / "r.parquet")
