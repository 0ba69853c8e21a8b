"""What sharing saves of an absent client's own part, against every outcome of small cases."""

import itertools

import numpy as np
import pytest

from fedcommons.theory.expected_variance import Geometry
from fedcommons.theory.own_part import gain_when_absent

GEOMETRY = Geometry(np.array([1.0, 2.0]), np.array([[0.6, -0.1], [-0.1, 0.9]]))


def square(weights, labels):
    """E|sum_j w_j g_j|^2 under the geometry, example by example."""
    total = 0.0
    for j, k in itertools.product(range(len(labels)), repeat=2):
        product = GEOMETRY.norm2[labels[j]] if j == k else GEOMETRY.products[labels[j], labels[k]]
        total += weights[j] * weights[k] * product
    return total


def enumerated(labels, n_shared, copies, p, client):
    """E|G^_i - G_i|^2 over who answers and who got which copy, while client i is absent."""
    N, others = len(p), [k for k in range(len(p)) if k != client]
    subsets = list(itertools.combinations(others, copies))
    mean, n = 0.0, 0
    for who in itertools.product(subsets, repeat=n_shared):
        for answers in itertools.product((0, 1), repeat=len(others)):
            there = dict(zip(others, answers, strict=True))
            chance = np.prod([1 - p[k] if there[k] else p[k] for k in others])
            weights = -np.ones(len(labels))
            for j, holders in enumerate(who):
                weights[j] += sum(there[k] / (1 - p[k]) for k in holders) / (copies + 1)
            mean += chance * square(weights, labels)
        n += 1
    assert copies < N
    return mean / n


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_the_gain_is_that_of_every_outcome(copies):
    p = np.array([0.3, 0.5, 0.1, 0.6])
    counts = np.array([[2, 1], [0, 3], [4, 0], [0, 0]])
    shared = np.array([[1, 1], [0, 2], [2, 0], [0, 0]])
    found = gain_when_absent(counts, shared, copies, GEOMETRY, straggler_prob=p)
    for client in range(3):
        # Its shared examples first.
        private = counts[client] - shared[client]
        labels = [label for n in (shared[client], private) for label in np.repeat([0, 1], n)]
        with_copies = enumerated(labels, shared[client].sum(), copies, p, client)
        assert found[client] == pytest.approx(
            1 - with_copies / square(-np.ones(len(labels)), labels)
        )
    assert found[3] == 0


def test_offers_that_are_not_whole_are_rounded_at_random():
    counts, p = np.array([[3, 2], [1, 4], [2, 2]]), np.array([0.4, 0.2, 0.7])
    offered = np.array([[1.5, 0.25], [0.0, 2.0], [1.0, 1.0]])
    alone = GEOMETRY.square(*(counts.astype(float),) * 3)
    mean = np.zeros(3)
    for up in itertools.product((0, 1), repeat=2):
        whole = np.floor(offered)
        whole[0] += up
        chance = np.prod([f if u else 1 - f for u, f in zip(up, (0.5, 0.25), strict=True)])
        gain = gain_when_absent(counts, whole, 2, GEOMETRY, straggler_prob=p)
        mean += chance * (1 - gain) * alone
    found = gain_when_absent(counts, offered, 2, GEOMETRY, straggler_prob=p)
    np.testing.assert_allclose(found, 1 - mean / alone)


def test_nothing_shared_is_nothing_gained_and_unreliable_holders_do_harm():
    counts = np.full((3, 2), 20)
    assert not gain_when_absent(counts, counts, 0, GEOMETRY, straggler_prob=0.5).any()
    assert not gain_when_absent(counts, 0 * counts, 2, GEOMETRY, straggler_prob=0.5).any()
    assert (gain_when_absent(counts, counts, 2, GEOMETRY, straggler_prob=0.2) > 0.7).all()
    assert (gain_when_absent(counts, counts, 1, GEOMETRY, straggler_prob=0.95) < 0).all()
