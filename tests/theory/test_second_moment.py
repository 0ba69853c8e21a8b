import numpy as np
import pytest

from fedcommons import coding, estimators
from fedcommons.theory import second_moment
from tests.reference import loops
from tests.scenarios import CODES, SCHEMES, federation


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("seed", range(3))
def test_exact_second_moment_is_the_mean_over_every_straggler_pattern(scheme, code, seed):
    N, M, P = 6, 15, 4
    rng = np.random.default_rng(seed)
    p = np.append(rng.uniform(0, 0.95, N - 1), 0)
    case = federation(n_clients=N, n_examples=M, n_classes=2, c=0.5, seed=seed)
    placement = SCHEMES[scheme](*case, 3, N, rng)
    gradients = rng.normal(size=(M, P))
    shares = CODES[code](placement, p, rng.normal(-1, 1, N))
    answers = shares @ gradients
    enumerated = 0.0
    for answered, prob in loops.straggler_patterns(p):
        value, _ = estimators.estimate(estimators.coded_sum, None, answers, answered, p)
        enumerated += prob * value @ value
    assert second_moment.second_moment(answers, p) == pytest.approx(enumerated, rel=1e-10)
    g = gradients.sum(axis=0)
    variance = second_moment.variance_from_products(shares, gradients @ gradients.T, p)
    assert g @ g + variance == pytest.approx(enumerated, rel=1e-10)


def test_nobody_straggling_leaves_no_variance():
    answers = np.random.default_rng(0).normal(size=(4, 3))
    assert second_moment.variance(answers, 0) == 0
    g = answers.sum(axis=0)
    assert second_moment.second_moment(answers, 0) == pytest.approx(g @ g)


def test_everything_everywhere_is_the_least_that_equal_holders_can_do():
    # c = 1, d = N - 1: every answer is g/N, so the variance is r |g|^2 / N.
    N, gradients = 5, np.random.default_rng(0).normal(size=(10, 3))
    owner = np.arange(10) % N
    placement = SCHEMES["randomised"](
        owner, owner, np.ones(10, bool), N - 1, N, np.random.default_rng(0)
    )
    answers = coding.equal_split(placement) @ gradients
    g = gradients.sum(axis=0)
    assert second_moment.variance(answers, 0.6) == pytest.approx(1.5 * (g @ g) / N)
