import signal

import numpy as np
import pytest

from fedcommons.federate.protocol import durable
from fedcommons.federate.site import chunk_memory
from fedcommons.federate.site.chunk_memory import MOST_CHUNKS, ChunkMemory
from tests.federate.tiny import die_at, in_child

N, P = 101, 3


def opened(folder, training="t", held="k"):
    return ChunkMemory(folder, training, held, N, P, np.dtype(np.float64))


def cuts(memory, pace, *, n_own=N, least=1):
    memory.notes = chunk_memory.replace(memory.notes, pace=pace)
    memory.cut(1.0, n_own, least)
    return memory.notes.number


def test_finer_chunks_are_halves_of_coarser_ones_and_none_is_too_small(tmp_path):
    memory = opened(tmp_path)
    seen = []
    for pace in (1e-9, 0.02, 0.05, 0.2, 1.0, 1e9):  # from all in time to nothing
        number = cuts(memory, pace, n_own=80, least=7)
        parts = [set(memory.places(k).tolist()) for k in range(number)]
        assert sorted(p for part in parts for p in part) == list(range(N))
        assert min(len([p for p in part if p < 80]) for part in parts) >= 7
        for before in seen:
            assert all(any(part <= whole for whole in before) for part in parts)
        seen.append(parts)
    assert [len(parts) for parts in seen] == [1, 4, 8, 8, 8, 8]
    assert cuts(memory, 1e9, least=1) == MOST_CHUNKS


def test_a_new_cut_keeps_the_sum_and_an_old_one_stays_where_it_fits(tmp_path):
    rng, memory = np.random.default_rng(0), opened(tmp_path)
    assert cuts(memory, None, least=12) == 8  # nothing is known yet
    for k in range(8):
        memory.remember(k, rng.normal(size=P), 1.0)
    total = memory.sum()
    for pace in (0.05, 0.001, 0.03, 10.0):
        cuts(memory, pace, least=12)
        assert np.allclose(memory.sum(), total)
        assert np.allclose(opened(tmp_path).sum(), total)
    memory.notes = chunk_memory.replace(memory.notes, number=8)
    assert cuts(memory, 1 / 13) == 8  # 13 fit, and a chunk has 13
    assert cuts(memory, 1 / 30) == 8  # two of them would take more than 0.8 of the time
    assert cuts(memory, 1 / 33) == 4


def test_the_pace_is_learnt_and_chunks_take_turns(tmp_path):
    memory = opened(tmp_path)
    cuts(memory, None, least=25)
    assert memory.notes.number == 4
    for k in (0, 1, 2, 3):
        assert memory.notes.turn == k
        memory.remember(k, np.ones(P), len(memory.places(k)) * 0.5)
        assert opened(tmp_path).notes.pace == pytest.approx(0.5)
    assert memory.notes.turn == 0
    memory.remember(0, np.ones(P), 26 * 1.5)
    assert memory.notes.pace == pytest.approx(1.0)


def test_what_is_of_something_else_or_damaged_is_forgotten(tmp_path):
    def filled():
        memory = opened(tmp_path)
        cuts(memory, None, least=25)
        memory.remember(1, np.ones(P), 1.0)
        return memory

    for other in ({"training": "u"}, {"held": "l"}):
        filled()
        assert opened(tmp_path, **other).notes.number == 0
        assert not list((tmp_path / chunk_memory.FOLDER).glob("*.bin"))
    filled()
    chunk_memory.clear(tmp_path, but="k")
    assert opened(tmp_path).sum().tolist() == [1, 1, 1]
    for damage in (b"", b"{", b'{"about": 3}', b'{"about": "k", "number": -1}'):
        filled()
        (tmp_path / chunk_memory.FOLDER / "notes.json").write_bytes(damage)
        assert opened(tmp_path).notes.number == 0
    memory = filled()
    memory._path(4, 1).write_bytes(b"short")
    assert memory.last(1).tolist() == [0, 0, 0]
    chunk_memory.clear(tmp_path)
    assert not (tmp_path / chunk_memory.FOLDER).exists()


@pytest.mark.parametrize("at", ["store.chunk:before", "store.chunk:after", "store.chunks:before"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_death_leaves_the_old_sum_or_the_new_one(tmp_path, at, times):
    memory = opened(tmp_path)
    cuts(memory, None, least=12)
    for k in range(8):
        memory.remember(k, np.full(P, 2.0**k), len(memory.places(k)) * 0.02)
    before = memory.sum()

    def main():
        durable.reached = die_at(at, times)
        again = opened(tmp_path)
        again.remember(0, np.full(P, 1000.0), len(again.places(0)) * 0.02)
        again.cut(1.0, N, 12)  # half as many

    assert in_child(main) == -signal.SIGKILL
    again = opened(tmp_path)
    assert again.notes.number in (4, 8)
    assert again.sum().tolist() in (before.tolist(), (before + 999).tolist())
    again.cut(1.0, N, 12)
    assert again.notes.number == 4
    assert again.sum().tolist() in (before.tolist(), (before + 999).tolist())
