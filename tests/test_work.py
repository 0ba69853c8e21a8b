import numpy as np
import pytest

from fedcommons import work
from fedcommons.delays import Law, Units
from fedcommons.errors import ArgumentError
from fedcommons.work import Work

HELD = np.array([100, 7, 0])


def test_sizes():
    fitting = np.array([12.9, 30.0, 2.0])
    assert Work("full").sizes(HELD).tolist() == [100, 7, 0]
    assert Work("mini", 32).sizes(HELD).tolist() == [32, 7, 0]
    for kind in ("sized", "anytime", "chunk", "sagachunk"):
        assert Work(kind).sizes(HELD, fitting).tolist() == [12, 7, 0]
        assert Work(kind).sizes(HELD, np.array([0.2, 0.2, 0.2])).tolist() == [1, 1, 0]


def test_what_fits_a_time_takes_that_time_on_average():
    zero = np.zeros(3)
    law = Law(
        np.array([10.0, 100.0, 1.0]),
        zero + 0.5,
        zero,
        zero + 0.2,
        zero,
        Units(3, np.random.default_rng),
    )
    fits = work.fitting(law, 2.2, 5.0, 3)
    assert law.mean(fits * 5.0) == pytest.approx([2.2] * 3)
    assert work.fitting(law, 0.1, 5.0, 3).tolist() == [0, 0, 0]  # less than the link takes


def test_chunks_are_all_there_is_once_and_alike_in_size():
    for n in range(40):
        for size in (1, 3, 7, 50):
            for least in (1, 4):
                parts = work.chunks(np.arange(n), size, least=least)
                assert np.concatenate(parts).tolist() == list(range(n))
                lengths = [len(part) for part in parts]
                assert max(lengths) - min(lengths) <= 1
                if least <= size:  # at most the size, unless that would leave too few in one
                    assert max(lengths) <= size or len(parts) == max(1, n // least)
                if n >= least:
                    assert min(lengths) >= least


def test_the_mean_of_an_answer_over_chunks_is_all_that_a_client_holds():
    """With r what is remembered of each chunk and h its sum: mean of h + C (g - r) is sum g."""
    g, r = np.random.default_rng(0).normal(size=(2, 6))
    for kind, wanted in (("sagachunk", g.sum()), ("chunk", (g.sum() + 5 * r.sum()) / 6)):
        scale = Work(kind).scale(60, 10, 6)
        assert np.mean(r.sum() + scale * (g - r)) == pytest.approx(wanted)
    assert Work("mini", 10).scale(60, 10, 1) * 10 == 60


def test_what_fits_follows_from_the_model():
    assert work.parse(work.kind_that_fits(linear=True)) == Work("chunk")
    assert work.parse(work.kind_that_fits(linear=False)) == Work("sagachunk")


def test_words_name_work():
    assert work.parse("mini:32") == Work("mini", 32)
    assert work.parse("chunk") == Work("chunk")
    for word in ("mini", "mini:0", "some"):
        with pytest.raises(ArgumentError, match="work must be one of"):
            work.parse(word)
    for kind, size in (("full", 3), ("mini", 0)):
        with pytest.raises(ArgumentError, match="size must"):
            Work(kind, size)
    with pytest.raises(ArgumentError, match="fitting must be given"):
        Work("chunk").sizes(HELD)


def test_work_takes_what_the_ways_leave():
    assert work.time_to_work(10.0) == 5.0
    assert work.time_to_work(10.0, 0.0) == 8.0
    assert work.time_to_work(10.0, 7.5) == 2.0
    assert work.time_to_work(10.0, 12.0) == 0.0
