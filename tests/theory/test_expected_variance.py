"""The variance before anything is drawn is the mean over everything that can be drawn."""

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedcommons import coding
from fedcommons.errors import ArgumentError
from fedcommons.theory import expected_variance as ev
from fedcommons.theory import second_moment
from tests.reference import loops

LABELS = np.array([0, 0, 0, 1, 1, 2, 2])
OWNER = np.array([0, 0, 1, 1, 2, 2, 3])
SHAREABLE = np.array([True, False, True, False, True, True, False])
N, L = 4, 3
NORM2 = np.array([2.0, 3.0, 1.5])
BETWEEN = np.array([[1.2, -0.4, 0.1], [-0.4, 2.1, -0.3], [0.1, -0.3, 0.6]])
GEOMETRY = ev.Geometry(NORM2, BETWEEN)
P = np.array([0.1, 0.5, 0.7, 0.3])


def products() -> np.ndarray:
    """<g_j, g_k>, the same for all pairs of two classes."""
    found = BETWEEN[LABELS[:, None], LABELS]
    np.fill_diagonal(found, NORM2[LABELS])
    return found


def counts(mask: np.ndarray) -> np.ndarray:
    found = np.zeros((N, L))
    np.add.at(found, (OWNER[mask], LABELS[mask]), 1)
    return found


ALL = counts(np.ones(len(LABELS), np.bool_))


def shares(code: str, placement: coding.Placement) -> csr_array:
    w = coding.owner_share_from_products(placement, products())
    return coding.by_name(code, placement, straggler_prob=P, owner_share=w)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("code", coding.CODES)
def test_it_is_the_mean_over_every_sharing_outcome(code, d):
    every = [
        second_moment.variance_from_products(shares(code, placement), products(), P)
        for placement in loops.sharing_outcomes(OWNER, SHAREABLE, d, N)
    ]
    found = ev.expected_variance(ALL, counts(SHAREABLE), d, GEOMETRY, straggler_prob=P, code=code)
    assert found == pytest.approx(np.mean(every), rel=1e-12)


def enumerated_norm2(counted, offered, d, geometry, code, p) -> np.ndarray:
    """The mean of |f_i|^2 over every rounding of the mask and every sharing of each: (N,)."""
    n_clients = len(counted)
    owner, labels = (
        np.repeat(cells.ravel(), counted.ravel().astype(int)) for cells in np.indices(counted.shape)
    )
    G = geometry.products[labels[:, None], labels]
    np.fill_diagonal(G, geometry.norm2[labels])
    total = np.zeros(n_clients)
    for up in product([False, True], repeat=counted.size):
        up = np.reshape(up, counted.shape)
        fraction = offered % 1
        chance = np.prod(np.where(up, fraction, 1 - fraction))
        if chance == 0:
            continue
        quota = np.floor(offered) + up
        rank = np.concatenate([np.arange(n) for n in counted.ravel().astype(int)])
        outcomes = list(loops.sharing_outcomes(owner, rank < quota[owner, labels], d, n_clients))
        for placement in outcomes:
            w = coding.owner_share_from_products(placement, G)
            b = coding.by_name(code, placement, straggler_prob=p, owner_share=w).toarray()
            total += chance * ((b @ G) * b).sum(axis=1) / len(outcomes)
    return total


SMALL = ev.Geometry(np.array([2.0, 3.0]), np.array([[1.5, -0.4], [-0.4, 2.1]]))
ROUNDED = [
    ([[2], [1]], [[0.5], [0]], 1, ev.Geometry(np.array([2.0]), np.array([[1.5]]))),
    ([[2], [3], [1]], [[0.5], [1.2], [0.9]], 1, ev.Geometry(np.array([2.0]), np.array([[1.5]]))),
    ([[2, 1], [0, 2], [1, 1]], [[1.4, 0.7], [0, 1.0], [0.3, 0.5]], 1, SMALL),
    ([[2, 1], [0, 2], [1, 1]], [[1.4, 0.7], [0, 1.0], [0.3, 0.5]], 2, SMALL),
    ([[2, 1], [1, 1], [0, 1], [1, 0]], [[0.5, 0.5], [0.2, 0], [0, 1], [0.6, 0]], 2, SMALL),
]


@pytest.mark.parametrize(("counted", "offered", "d", "geometry"), ROUNDED)
@pytest.mark.parametrize("code", ["equal-split", "reliability-split"])
def test_a_mask_that_is_rounded_at_random_counts_as_such(counted, offered, d, geometry, code):
    counted, offered = np.array(counted, float), np.array(offered, float)
    p = P[: len(counted)]
    np.testing.assert_allclose(
        ev.answers_norm2(counted, offered, d, geometry, code=code, straggler_prob=p),
        enumerated_norm2(counted, offered, d, geometry, code, p),
        rtol=1e-12,
    )


@pytest.mark.parametrize(("counted", "offered", "d", "geometry"), ROUNDED)
def test_the_owner_corrected_code_is_averaged_over_roundings(counted, offered, d, geometry):
    # 100 masks, whose numbers are evenly spread: seen within .3 % for every client.
    counted, offered = np.array(counted, float), np.array(offered, float)
    p = P[: len(counted)]
    np.testing.assert_allclose(
        ev.answers_norm2(counted, offered, d, geometry, code="owner-corrected", straggler_prob=p),
        enumerated_norm2(counted, offered, d, geometry, "owner-corrected", p),
        rtol=0.005,
    )


def test_equal_reliability_makes_the_reliability_split_the_equal_one():
    arguments = (ALL, counts(SHAREABLE), 2, GEOMETRY)
    assert ev.expected_variance(
        *arguments, straggler_prob=0.3, code="reliability-split"
    ) == ev.expected_variance(*arguments, straggler_prob=0.3)


def test_without_copies_every_code_is_the_same():
    found = {
        ev.expected_variance(ALL, counts(SHAREABLE), 0, GEOMETRY, straggler_prob=P, code=code)
        for code in coding.CODES
    }
    assert len(found) == 1
    alone = second_moment.variance_from_products(
        shares("equal-split", next(iter(loops.sharing_outcomes(OWNER, SHAREABLE, 0, N)))),
        products(),
        P,
    )
    assert found.pop() == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("code", coding.CODES)
def test_a_placement_that_is_there_has_its_own_variance(code):
    for placement in list(loops.sharing_outcomes(OWNER, SHAREABLE, 2, N))[:5]:
        found = ev.placement_variance(placement, LABELS, GEOMETRY, straggler_prob=P, code=code)
        exact = second_moment.variance_from_products(shares(code, placement), products(), P)
        assert found == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("code", coding.CODES)
def test_parts_and_partitions_at_once_are_those_one_by_one(code):
    counted = np.stack([ALL, ALL[::-1]])
    offered = 0.7 * counted
    parts = (0.3, 1.0)
    found = ev.variance_of_parts(counted, offered, parts, 2, GEOMETRY, straggler_prob=P, code=code)
    one_by_one = [
        [
            ev.expected_variance(c, part * o, 2, GEOMETRY, straggler_prob=P, code=code)
            for c, o in zip(counted, offered, strict=True)
        ]
        for part in parts
    ]
    np.testing.assert_allclose(found, one_by_one, rtol=1e-12)


def test_geometry_from_products_averages_pairs_of_different_examples():
    found = ev.geometry_from_products(products(), LABELS)
    np.testing.assert_allclose(found.norm2, NORM2)
    np.testing.assert_allclose(found.products, BETWEEN)
    assert ev.gradient_norm2(ALL.sum(axis=0), found) == pytest.approx(products().sum())


def test_mistakes_are_named():
    with pytest.raises(ArgumentError, match="offered must be in"):
        ev.expected_variance(ALL, ALL + 1, 1, GEOMETRY, straggler_prob=P)
    with pytest.raises(ArgumentError, match="code must be one of"):
        ev.expected_variance(ALL, ALL, 1, GEOMETRY, straggler_prob=P, code="none")
    with pytest.raises(ArgumentError, match="two examples of each class"):
        ev.geometry_from_products(np.eye(2), [0, 1])
