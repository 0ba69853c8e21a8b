"""What shared examples of absent owners stand for, by enumeration, and how clients divide time."""

from itertools import combinations, product

import numpy as np
import pytest

from fedcommons import corrections, sharing
from fedcommons.errors import ArgumentError
from fedcommons.schedule import Ticks

OWNER = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
N, M, P = 3, len(OWNER), 2


def placed(shared, copies: int = 2):
    rng = np.random.default_rng(0)
    return sharing.randomised(OWNER, np.isin(np.arange(M), shared), copies, n_clients=N, rng=rng)


def test_over_what_is_shared_the_correction_is_unbiased_with_the_stated_squared_error():
    """All ways in which client 0 shares two of its four and client 1 one of its three."""
    rng = np.random.default_rng(1)
    old, now = rng.normal(size=(2, M, P))
    away = np.array([True, True, False])[OWNER]
    now[~away] = old[~away]
    full, mean, square, n = now.sum(axis=0), np.zeros(P), 0.0, 0
    for ours in combinations(range(4), 2):
        for theirs in range(4, 7):
            weight = corrections.weights(placed([*ours, theirs]))
            v = corrections.estimate(old, now, np.ones(M, bool), away, weight)
            mean, square, n = mean + v, square + ((v - full) ** 2).sum(), n + 1
    assert np.allclose(mean / n, full, rtol=0, atol=1e-12)
    drift = now - old
    stated = sum(
        size * (size - a) / a * drift[i == OWNER].var(axis=0, ddof=1).sum()
        for i, size, a in ((0, 4, 2), (1, 3, 1))
    )
    assert square / n == pytest.approx(stated, rel=1e-12)


def test_pooled_over_a_holders_examples_it_is_unbiased_over_chunks_too_and_has_less_error():
    """All ways in which client 0 shares two of its four, in all cuts of these into two chunks.

    Examples of one client are alike: their gradients have a mean beside which they differ little.
    """
    rng = np.random.default_rng(2)
    mean = rng.normal(size=(3, 1, P))  # at two anchors and now
    *at, now = mean + 0.2 * rng.normal(size=(3, 4, P))
    cuts = [np.array([0, 1]).repeat(2)[list(order)] for order in product(range(4), repeat=4)
            if len(set(order)) == 4]  # fmt: skip
    errors = {"pooled": [], "by example": []}
    for cut in cuts:
        remembered = np.where(cut[:, None] == 0, at[0], at[1])
        for shared in combinations(range(4), 2):
            some = list(shared)
            drift = corrections.correction(now[some], remembered[some], np.full(2, 4 / 2))
            errors["by example"].append(remembered.sum(axis=0) + drift - now.sum(axis=0))
            sizes = np.bincount(cut, minlength=2)
            anchors = np.stack([one[some].sum(axis=0) for one in at])
            drift = corrections.correction(
                now[some].sum(axis=0)[None],
                corrections.mean_at_anchors(anchors, sizes)[None],
                np.array([corrections.pooled_weight(sizes, [2])]),
            )
            errors["pooled"].append(remembered.sum(axis=0) + drift - now.sum(axis=0))
    for found in errors.values():
        assert np.allclose(np.mean(found, axis=0), 0, rtol=0, atol=1e-12)
    square = {name: (np.array(found) ** 2).sum(axis=1).mean() for name, found in errors.items()}
    assert square["pooled"] < 0.5 * square["by example"]


def test_with_one_chunk_and_all_holders_there_pooled_is_the_same():
    rng = np.random.default_rng(3)
    old, now = rng.normal(size=(2, M, P))
    placement, away = placed([0, 2, 3], copies=2), OWNER == 0
    v = corrections.estimate(old, now, np.ones(M, bool), away, corrections.weights(placement))
    held = [placement.held_by(k)[placement.owner[placement.held_by(k)] == 0] for k in (1, 2)]
    sizes, total = np.array([4]), old.sum(axis=0)
    for mine in held:
        total = total + corrections.correction(
            now[mine].sum(axis=0)[None],
            corrections.mean_at_anchors(old[mine].sum(axis=0)[None], sizes)[None],
            np.array([corrections.pooled_weight(sizes, [len(some) for some in held])]),
        )
    assert np.allclose(v, total, rtol=0, atol=1e-12)


def test_all_shared_and_all_new_is_exact_and_nothing_new_changes_nothing():
    rng = np.random.default_rng(1)
    old, now = rng.normal(size=(2, M, P))
    weight = corrections.weights(placed(range(M)))
    everybody, nobody = np.ones(M, bool), np.zeros(M, bool)
    v = corrections.estimate(old, now, everybody, everybody, weight)
    assert np.allclose(v, now.sum(axis=0), rtol=0, atol=1e-12)
    for newer, away in ((nobody, everybody), (everybody, nobody)):
        v = corrections.estimate(old, np.full((M, P), np.nan), newer, away, weight)
        assert np.allclose(v, old.sum(axis=0), rtol=0, atol=1e-12)


def test_who_is_there_takes_what_was_computed_longest_ago_and_nothing_twice():
    placement = placed(range(M), copies=2)  # everybody holds everything
    asked = np.array([[False, True, True], [False, True, True], [True, True, True]])
    ticks = Ticks.of_rounds(asked, asked)
    ticks = Ticks(**{name: getattr(ticks, name) for name in ticks.__slots__} | {"away": ~asked})
    found = corrections.refreshes(ticks, placement, np.array([5, 1, 2]))
    by_tick = [[(r.holder, r.examples.tolist()) for r in now] for now in found]
    assert by_tick == [[(1, [0]), (2, [1, 2])], [(1, [3]), (2, [0, 1])], []]
    with pytest.raises(ArgumentError, match="received must have 3 entries, got 2"):
        corrections.refreshes(ticks, placement, np.ones(2, np.int64))


def test_time_is_divided_in_proportion():
    """Of client 0's six examples elsewhere, half the time away, each of two holders has a half."""
    owner = np.repeat([0, 1, 2], [6, 10, 10])
    rng = np.random.default_rng(0)
    placement = sharing.randomised(owner, owner == 0, 2, n_clients=3, rng=rng)
    share, fitting = np.array([0.5, 0.0, 0.0]), np.array([100.0, 4.0, 3.0])
    found = corrections.divided(placement, share, fitting)
    assert found.n_chunks.tolist() == [1, 3, 4]  # cycles of 6, 11.5 and 11.5 examples
    assert found.received.tolist() == [0, 1, 1]
    assert corrections.divided(placement, share, fitting, cost=2).n_chunks.tolist() == [1, 4, 5]
    assert not corrections.divided(placement, 0, fitting).received.any()
    slow = corrections.divided(placement, share, np.array([0.1, 0.0, np.inf]))
    assert slow.n_chunks.tolist() == [6, 10, 1]


def test_nothing_shared_corrects_nothing_and_anchors_are_counted():
    placement = sharing.none(OWNER, n_clients=N)
    assert not corrections.weights(placement).any()
    assert not corrections.divided(placement, 0.5, np.full(N, 2.0)).received.any()
    assert corrections.kept_vectors([1, 5], n_shared=10) == 26
