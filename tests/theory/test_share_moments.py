"""Moments from some groups of holders agree with those from all."""

import numpy as np
import pytest

from fedcommons.theory import share_moments
from fedcommons.theory.expected_variance import Geometry, expected_variance
from fedcommons.theory.share_moments import ReliabilitySplit

N = 14
RNG = np.random.default_rng(1)
P = RNG.uniform(0, 0.95, N)
P[:2] = 0
OFFERED = RNG.integers(0, 9, (N, 3)).astype(float)


def moments(d: int):
    return ReliabilitySplit(P, d).moments(OFFERED)


@pytest.mark.parametrize("d", [1, 3, 6, 13])
def test_shares_of_an_example_sum_to_one(d):
    found = moments(d)
    given = found.own[0] @ OFFERED + found.received[0].sum(axis=0)
    np.testing.assert_allclose(given, OFFERED.sum(axis=0))


@pytest.mark.parametrize("d", [1, 3, 6])
def test_drawn_groups_agree_with_all_groups(d, monkeypatch):
    # About 14,000 members of drawn groups, 500 for each client and half: 4 standard errors of a
    # mean of shares, whose standard deviation is at most 1/2, are .09.
    every = moments(d)
    monkeypatch.setattr(share_moments, "ENTRIES", 14)
    monkeypatch.setattr(share_moments, "DRAWS", 1000)
    drawn = moments(d)
    assert len(every.own) == 1
    assert len(drawn.own) == 2
    np.testing.assert_allclose(drawn.own, np.tile(every.own, (2, 1)), atol=0.09)
    np.testing.assert_allclose(drawn.own_square, every.own_square, atol=0.09)
    for half in drawn.received:
        np.testing.assert_allclose(half, every.received[0], rtol=0.1, atol=0.9)


@pytest.mark.parametrize("d", [1, 8])
def test_with_many_clients_the_mean_over_owners_stands_for_each(d, monkeypatch):
    n_clients = share_moments.PAIRS_UP_TO
    counts = RNG.integers(0, 6, (n_clients, 3)).astype(float)
    p = RNG.uniform(0.05, 0.95, n_clients)
    geometry = Geometry(np.ones(3), np.full((3, 3), 0.5))

    def variance() -> float:
        return expected_variance(
            counts, counts, d, geometry, straggler_prob=p, code="reliability-split"
        )

    for_each = variance()
    monkeypatch.setattr(share_moments, "PAIRS_UP_TO", 0)
    assert variance() == pytest.approx(for_each, rel=1e-4)
    assert variance() != for_each
