from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcommons import coding, sharing
from fedcommons.placement import Placement
from fedcommons.theory import lambdas
from tests.reference import loops
from tests.scenarios import CODES, SCHEMES, federation

# Two clients with a private and two shareable examples each; the others own nothing.
OWNER = np.array([0, 0, 0, 1, 1, 1])
SHAREABLE = np.array([False, True, True, False, True, True])
PAIRS = {
    "same_private": (0, 0),
    "diff_private": (0, 3),
    "same_mixed": (0, 1),
    "diff_mixed": (0, 4),
    "self_shared": (1, 1),
    "same_shared": (1, 2),
    "diff_shared": (1, 4),
}


@pytest.mark.parametrize("p", [0.0, 0.3, 0.7])
@pytest.mark.parametrize(("N", "d"), [(2, 0), (2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3)])
def test_expected_lambdas_are_the_mean_over_every_outcome(N, d, p):
    outcomes = [
        lambdas.realised(coding.equal_split(placement), p)
        for placement in loops.sharing_outcomes(OWNER, SHAREABLE, d, N)
    ]
    mean = np.mean(outcomes, axis=0)
    exact = asdict(lambdas.expected(n_clients=N, copies=d, straggler_prob=p))
    for kind, pair in PAIRS.items():
        assert exact[kind] == pytest.approx(mean[pair], rel=1e-12), kind


@pytest.mark.parametrize(("N", "d", "p"), [(10, 3, 0.5), (7, 5, 0.2), (20, 1, 0.9)])
def test_expected_lambdas_against_monte_carlo(N, d, p):
    # n = 3000 placements, 4 standard errors.
    n, rng = 3000, np.random.default_rng([N, d])
    drawn = np.array(
        [
            lambdas.realised(
                coding.equal_split(sharing.randomised(OWNER, SHAREABLE, d, n_clients=N, rng=rng)), p
            )
            for _ in range(n)
        ]
    )
    exact = asdict(lambdas.expected(n_clients=N, copies=d, straggler_prob=p))
    for kind, (j, k) in PAIRS.items():
        values = drawn[:, j, k]
        sem = values.std(ddof=1) / np.sqrt(n)
        assert abs(values.mean() - exact[kind]) <= 4 * sem + 1e-12, kind


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_realised_lambdas_are_the_moments_of_the_straggling(scheme, code):
    # lambda_jk = E[Z_j Z_k] with Z_j = sum_i I_i b_ij / (1 - p_i): all patterns enumerated.
    N, rng = 5, np.random.default_rng(0)
    p = np.array([0.0, 0.2, 0.5, 0.7, 0.9])
    case = federation(n_clients=N, n_examples=9, n_classes=2, c=0.5, seed=2)
    shares = CODES[code](SCHEMES[scheme](*case, 2, N, rng), p, rng.normal(size=N))
    dense, moments = shares.toarray(), np.zeros((9, 9))
    for answered, prob in loops.straggler_patterns(p):
        Z = (answered / (1 - p)) @ dense
        moments += prob * np.outer(Z, Z)
    assert np.allclose(lambdas.realised(shares, p), moments, rtol=1e-10, atol=1e-12)


@given(st.integers(2, 40), st.integers(0, 39), st.floats(0, 0.99))
def test_expected_lambdas_respect_proposition_1(N, d, p):
    d %= N
    exact = lambdas.expected(n_clients=N, copies=d, straggler_prob=p)
    lower, upper = lambdas.bounds(copies=d, straggler_prob=p)
    slack = 1e-9 / (1 - p)
    for kind, value in asdict(exact).items():
        assert asdict(lower)[kind] - slack <= value <= asdict(upper)[kind] + slack, kind
    assert exact.diff_mixed <= exact.same_mixed + slack
    assert exact.diff_shared <= exact.same_shared + slack


def test_pairwise_for_one_placement_diff_can_exceed_same():
    # docs/deviations.md, 6: examples 1 (of client 0) and 4 (of client 1) meet at two clients,
    # examples 1 and 2, both of client 0, meet at their owner only.
    placement = Placement.from_copies(OWNER, [1, 2, 4], [2, 3, 2], n_clients=4)
    values = lambdas.realised(coding.equal_split(placement), 0.5)
    assert values[1, 4] == values[1, 2]
    placement = Placement.from_copies(OWNER, [1, 1, 2, 2, 4, 4], [1, 2, 3, 4, 0, 2], n_clients=5)
    values = lambdas.realised(coding.equal_split(placement), 0.5)
    assert values[1, 4] > values[1, 2]


@pytest.mark.parametrize(("d", "p"), [(1, 0.5), (3, 0.5), (4, 0.2)])
def test_bounds_are_the_propositions(d, p):
    lower, upper = lambdas.bounds(copies=d, straggler_prob=p)
    mixed = (1 + d * (1 - p)) / ((1 - p) * (d + 1))
    assert asdict(lower) == pytest.approx(
        dict(same_private=1 / (1 - p), diff_private=1, same_mixed=mixed, diff_mixed=1,
             self_shared=1, same_shared=1, diff_shared=1)
    )  # fmt: skip
    assert asdict(upper) == pytest.approx(
        dict(same_private=1 / (1 - p), diff_private=1, same_mixed=mixed, diff_mixed=mixed,
             self_shared=mixed, same_shared=mixed, diff_shared=mixed)
    )  # fmt: skip


@pytest.mark.parametrize(("N", "d"), [(3, 1), (3, 2), (4, 2)])
def test_the_bounds_hold_for_every_placement(N, d):
    lower, upper = (asdict(b) for b in lambdas.bounds(copies=d, straggler_prob=0.6))
    for placement in loops.sharing_outcomes(OWNER, SHAREABLE, d, N):
        values = lambdas.realised(coding.equal_split(placement), 0.6)
        for kind, pair in PAIRS.items():
            assert lower[kind] - 1e-12 <= values[pair] <= upper[kind] + 1e-12


def test_no_straggling_and_no_sharing():
    nobody = asdict(lambdas.expected(n_clients=6, copies=3, straggler_prob=0))
    assert set(nobody.values()) == {1.0}
    unshared = lambdas.expected(n_clients=6, copies=0, straggler_prob=0.5)
    assert {v for k, v in asdict(unshared).items() if not k.startswith("diff")} == {2.0}
    assert {v for k, v in asdict(unshared).items() if k.startswith("diff")} == {1.0}


def test_one_client():
    for p, d in product((0.0, 0.5), (0,)):
        assert lambdas.expected(n_clients=1, copies=d, straggler_prob=p).same_mixed == 1 / (1 - p)
