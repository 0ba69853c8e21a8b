"""The variance before anything is drawn is the mean over everything that can be drawn."""

import numpy as np
import pytest

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


def shares(code: str, placement: coding.Placement) -> coding.csr_array:
    w = coding.owner_share_from_products(placement, products())
    return coding.by_name(code, placement, straggler_prob=P, owner_share=w)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("code", ["equal-split", "owner-corrected"])
def test_it_is_the_mean_over_every_sharing_outcome(code, d):
    every = [
        second_moment.variance_from_products(shares(code, placement), products(), P)
        for placement in loops.sharing_outcomes(OWNER, SHAREABLE, d, N)
    ]
    found = ev.expected_variance(ALL, counts(SHAREABLE), d, GEOMETRY, straggler_prob=P, code=code)
    assert found == pytest.approx(np.mean(every), rel=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_reliability_split_is_right_to_one_percent(d):
    # 5,000 subsets an owner: sampling adds below .1 %, taking (E b)^2 as q E b^2 the rest.
    every = [
        second_moment.variance_from_products(shares("reliability-split", placement), products(), P)
        for placement in loops.sharing_outcomes(OWNER, SHAREABLE, d, N)
    ]
    found = ev.expected_variance(
        ALL, counts(SHAREABLE), d, GEOMETRY, straggler_prob=P, code="reliability-split"
    )
    assert found == pytest.approx(np.mean(every), rel=0.01)


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


def test_a_mask_that_is_rounded_at_random_counts_as_such():
    # Half an example is offered: none or one, with probability 1/2 each.
    counted, offered = np.array([[2.0], [1.0]]), np.array([[0.5], [0.0]])
    geometry = ev.Geometry(np.array([2.0]), np.array([[1.5]]))
    found = ev.answers_norm2(counted, offered, 1, geometry)[0]
    rounded = [
        ev.answers_norm2(counted, np.array([[float(n)], [0.0]]), 1, geometry)[0] for n in (0, 1)
    ]
    assert found == pytest.approx(np.mean(rounded), rel=1e-12)


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
