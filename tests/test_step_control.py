"""Steps that are no longer than clients' secants allow."""

import numpy as np
import pytest

from fedcommons import step_control
from fedcommons.step_control import KEPT, MOST, SKETCH, Secants, secant, sketch


def test_a_number_follows_the_largest_secant_and_forgets_slowly():
    found = Secants.start(3).observe(np.array([2.0, np.nan, 1.0]))
    found = found.observe(np.array([1.0, np.nan, 5.0]))
    np.testing.assert_allclose(found.values, [2 * KEPT, np.nan, 5.0])
    np.testing.assert_allclose(found.observe(np.full(3, np.nan)).values, found.values)


def test_one_claim_cannot_end_training():
    claims = Secants(np.array([1.0, 2.0, 3.0, 1e30]))
    assert claims.bounded.tolist() == [1.0, 2.0, 3.0, MOST * 2.0]
    assert claims.longest_step(np.ones(4)) == pytest.approx(4 / (6 + MOST * 2))
    assert Secants(np.array([1.0, 1e30, np.nan])).bounded[1] == 1e30  # nobody to compare with
    rng = np.random.default_rng(0)
    for n in (3, 4, 5, 8):
        numbers = np.append(rng.lognormal(0, 2, n).round(1), np.nan)
        others = [np.nanmedian(np.delete(numbers, i)) for i in range(n)]
        wanted = np.minimum(numbers[:n], MOST * np.array(others))
        np.testing.assert_allclose(Secants(numbers).bounded, np.append(wanted, np.nan), rtol=1e-15)


def test_nothing_known_is_no_limit():
    assert Secants.start(2).longest_step(np.ones(2)) == np.inf
    assert np.isnan(secant(1.0, 2.0, 0.0))
    assert np.isnan(secant(1.0, 0.0, 2.0))


def test_for_quadratic_losses_the_number_is_the_curvature_and_descent_is_stable():
    """g_i(x) = n_i a_i x: l_i = a_i, and 1/L is the step that ends in one round."""
    a, n = np.array([1.0, 5.0, 3.0]), np.array([2.0, 1.0, 4.0])
    x, anchor = 3.0, 1.0
    found = [
        secant(abs(n_i * a_i * (x - anchor)), n_i, abs(x - anchor))
        for a_i, n_i in zip(a, n, strict=True)
    ]
    step = Secants.start(3).observe(np.array(found)).longest_step(n)
    assert x - step * (n @ a) * x / n.sum() == pytest.approx(0)


def test_sketches_tell_distances():
    """Over 400 pairs the squared distances have the true mean, to 4 standard errors."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(400):
        x, y = rng.normal(size=(2, 300))
        ratios.append(((sketch(x) - sketch(y)) ** 2).sum() / ((x - y) ** 2).sum())
    error = np.std(ratios) / 20
    assert abs(np.mean(ratios) - 1) < 4 * error
    assert np.std(ratios) < 1.5 * np.sqrt(2 / SKETCH)
    np.testing.assert_allclose(sketch(2 * x), 2 * sketch(x))
    assert step_control.sketch(np.zeros(0)).tolist() == [0.0] * SKETCH
