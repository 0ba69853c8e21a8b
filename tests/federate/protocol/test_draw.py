"""Who gets a copy: uniform, the same for everybody, and the same whichever part is looked at."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcommons.federate.protocol import draw as module
from fedcommons.federate.protocol.draw import Draw


def draw_of(n: int = 40, n_sites: int = 5, copies: int = 2, seed: int = 3) -> Draw:
    names = tuple(f"site-{i}" for i in range(n_sites))
    return Draw(seed, copies, names, tuple(n + i for i in range(n_sites)))


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 16 share numbers, so that a few examples cross many."""
    monkeypatch.setattr(module, "BLOCK", 16)


def test_subsets_are_uniform_over_the_other_sites():
    """Pearson's chi-square over all 10 subsets of 3 of 5 others: 30,000 draws, size 0.001."""
    n = 30_000
    draw = draw_of(n=n, n_sites=6, copies=3, seed=11)
    for sender in (0, 3, 5):
        others = [site for site in range(6) if site != sender]
        code = {subset: i for i, subset in enumerate(combinations(others, 3))}
        rows = draw.recipients(sender, 0, n).tolist()
        counts = np.bincount([code[tuple(row)] for row in rows], minlength=len(code))
        assert stats.chisquare(counts).pvalue > 0.001
        blocks = [counts_of(draw, sender, b, code) for b in range(2)]
        assert stats.chi2_contingency(np.array(blocks)).pvalue > 0.001  # in every block alike


def counts_of(draw, sender, block, code):
    rows = draw.recipients(sender, block * module.BLOCK, min((block + 1) * module.BLOCK, 30_000))
    return np.bincount([code[tuple(row)] for row in rows.tolist()], minlength=len(code))


@pytest.mark.parametrize("copies", [0, 1, 2, 4])
@pytest.mark.parametrize("sender", range(5))
def test_a_row_is_a_sorted_subset_of_the_other_sites(copies, sender):
    rows = draw_of(copies=copies).recipients(sender, 0, 40)
    assert rows.shape == (40, copies)
    assert (np.diff(rows, axis=1) > 0).all()
    assert ((rows >= 0) & (rows < 5) & (rows != sender)).all()


@given(st.integers(0, 44), st.integers(0, 44), st.integers(0, 4))
def test_any_slice_equals_the_whole_table(start, stop, sender):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", 16)
        draw = draw_of()
        n = draw.n_shareable[sender]
        start, stop = min(start, n), min(stop, n)
        whole = draw.recipients(sender, 0, n)
        assert np.array_equal(draw.recipients(sender, start, stop), whole[start:stop])


@given(st.sets(st.integers(0, 39)), st.integers(0, 4))
def test_any_rows_equal_the_whole_table(numbers, sender):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", 16)
        draw, numbers = draw_of(), np.array(sorted(numbers), np.int64)
        whole = draw.recipients(sender, 0, draw.n_shareable[sender])
        assert np.array_equal(draw.recipients_of(sender, numbers), whole[numbers])


@pytest.mark.usefixtures("small_blocks")
def test_assigned_agrees_with_recipients():
    draw = draw_of()
    for sender in range(5):
        n = draw.n_shareable[sender]
        whole = draw.recipients(sender, 0, n).tolist()
        for recipient in range(5):
            expected = [j for j in range(n) if recipient in whole[j]]
            assert draw.assigned(sender, recipient).tolist() == expected
            assert draw.n_assigned(sender, recipient) == len(expected)
            for start, stop in ((0, 16), (5, 7), (15, 17), (3, 40), (16, 1000), (20, 20), (9, 3)):
                part = [j for j in expected if start <= j < stop]
                assert draw.assigned(sender, recipient, start, stop).tolist() == part


def test_nobody_gets_what_nobody_shares():
    draw = Draw(1, 1, ("a", "b"), (0, 3))
    assert draw.assigned(0, 1).tolist() == []
    assert draw.n_assigned(0, 1) == 0
    assert draw.recipients(0, 0, 0).shape == (0, 1)
    assert draw.assigned(1, 0).tolist() == [0, 1, 2]


@pytest.mark.usefixtures("small_blocks")
def test_the_draw_changes_with_the_seed_the_sender_and_the_block():
    def table(seed: int, sites: str) -> np.ndarray:
        return Draw(seed, 2, tuple(sites), (40,) * 5).recipients(4, 0, 40)

    one = table(1, "abcde")
    assert not np.array_equal(one, table(2, "abcde"))
    assert not np.array_equal(one, table(1, "abcdf"))
    assert not np.array_equal(one[:16], one[16:32])


def test_the_draw_of_a_site_does_not_depend_on_what_the_others_have():
    one, two = draw_of(), draw_of()
    two = Draw(two.seed, two.copies, two.sites, (40, 1, 2, 3, 4))
    assert np.array_equal(one.recipients(0, 0, 40), two.recipients(0, 0, 40))
