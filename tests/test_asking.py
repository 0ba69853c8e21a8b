from itertools import combinations, product

import numpy as np
import pytest

from fedcommons import asking, estimators
from fedcommons.asking import BY, Ask, by_norms, missing_prob
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS, Arrivals
from tests.reference import loops

N, P, SIZE = 5, 3, 2
STRAGGLER_PROB = np.array([0.0, 0.3, 0.5, 0.85, 0.6])
NORMS = np.array([3.0, 0.5, np.nan, 0.0, 1.5])
RNG = np.random.default_rng(3)
F, H = RNG.normal(size=(2, N, P)) + 0.5
EVERYBODY = np.ones(N, np.bool_)
BUSY = np.array([False, True, False, False, False])
UNBIASED = [e for e in ESTIMATORS.values() if e.unbiased and not e.needs_everybody]


def askings(ask, probs):
    """Every set that may be asked, with its probability, as written in the definition."""
    here = np.flatnonzero(probs > 0)
    if ask.by == "uniform":
        sets = list(combinations(here, min(ask.number(len(probs)), len(here))))
        for some in sets:
            yield np.isin(np.arange(len(probs)), some), 1 / len(sets)
        return
    for pattern in product([False, True], repeat=len(probs)):
        asked = np.array(pattern)
        yield asked, float(np.prod(np.where(asked, probs, 1 - probs)))


def outcomes(ask, probs, straggler_prob):
    for asked, chance in askings(ask, probs):
        for there, also in loops.straggler_patterns(straggler_prob):
            yield asked, asked & there, chance * also


def moments(ask, estimator, can):
    """The mean and second moment of the estimate over who is asked and who answers."""
    probs = ask.probs(can, STRAGGLER_PROB, NORMS)
    p = missing_prob(probs, STRAGGLER_PROB)
    mean, square, total = np.zeros(P), 0.0, 0.0
    for asked, on_time, chance in outcomes(ask, probs, STRAGGLER_PROB):
        weights = estimator.weigh(Arrivals(on_time, asked, np.zeros(N, np.bool_)), p)
        value = weights.fresh @ np.where(on_time[:, None], F, 0) + weights.remembered @ H
        mean, square, total = mean + chance * value, square + chance * value @ value, total + chance
    assert total == pytest.approx(1)
    return mean, square, probs


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("estimator", UNBIASED, ids=lambda e: e.name)
def test_estimate_is_unbiased_over_who_is_asked_and_who_answers(estimator, by):
    mean, *_ = moments(Ask(SIZE, by), estimator, EVERYBODY)
    assert np.allclose(mean, F.sum(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("by", BY)
def test_what_busy_clients_gave_last_is_all_that_memory_is_biased_by(by):
    mean, *_ = moments(Ask(SIZE, by), estimators.memory, ~BUSY)
    assert np.allclose(mean, F.sum(axis=0) - (F - H)[BUSY].sum(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", ["coded_sum", "memory", "latest"])
def test_second_moment_is_the_mean_over_all_outcomes(name, by):
    ask, estimator = Ask(SIZE, by), ESTIMATORS[name]
    mean, square, probs = moments(ask, estimator, EVERYBODY)
    found = asking.second_moment(estimator, probs, STRAGGLER_PROB, ask.pair_excess(EVERYBODY))
    assert found.of(F, H) == pytest.approx(square, rel=1e-12)
    if name != "latest":  # the formula as it is written, term by term
        z, q = (F if name == "coded_sum" else F - H), probs * (1 - STRAGGLER_PROB)
        variance = ((1 / q - 1) * (z**2).sum(axis=1)).sum()
        if by == "uniform":
            alone = (z**2).sum()
            together = z.sum(axis=0) @ z.sum(axis=0)
            variance -= (N - SIZE) / (SIZE * (N - 1)) * (together - alone)
        assert variance == pytest.approx(square - mean @ mean, rel=1e-12)


def test_second_moment_is_unknown_where_clients_do_not_count_by_themselves():
    ask, average = Ask(SIZE), estimators.responder_average
    probs = ask.probs(EVERYBODY)
    equal = np.full(N, 0.3)
    assert asking.second_moment(average, probs, equal, ask.pair_excess(EVERYBODY)) is None
    assert asking.second_moment(average, probs, equal, 0.0) is not None


@pytest.mark.parametrize("by", BY)
def test_clients_are_asked_as_often_as_is_said(by):
    # 4,000 draws, 4.5 standard errors.
    ask, n, rng = Ask(SIZE, by), 4000, np.random.default_rng(0)
    probs = ask.probs(~BUSY, STRAGGLER_PROB, NORMS)
    drawn = np.array([ask.draw(probs, rng=rng) for _ in range(n)])
    error = np.sqrt(np.maximum(probs * (1 - probs), 1e-12) / n)
    assert (np.abs(drawn.mean(axis=0) - probs) <= 4.5 * error).all()
    assert probs.sum() == pytest.approx(SIZE)
    assert not drawn[:, BUSY].any()
    if by == "uniform":
        assert (drawn.sum(axis=1) == SIZE).all()


def test_probabilities_by_norms_are_the_best_of_so_many_on_average():
    # Against 2,000 others with the same sum, far above the floor.
    rng = np.random.default_rng(1)
    norms, p = rng.uniform(0.5, 2, 6), rng.uniform(0, 0.8, 6)

    def cost(pi):
        return (norms**2 / (pi * (1 - p))).sum()

    best = by_norms(norms, p, 3)
    assert best.sum() == pytest.approx(3)
    assert ((best < 1) == (np.abs(best * np.sqrt(1 - p) / norms - best[0] * np.sqrt(1 - p[0])
            / norms[0]) < 1e-9)).all()  # fmt: skip
    for _ in range(2000):
        other = rng.dirichlet(np.ones(6)) * 3
        if other.max() <= 1:
            assert cost(other) >= cost(best) - 1e-9


@pytest.mark.parametrize("norms", [[0, 0, 0, 0], [np.nan] * 4, [1, 0, 0, 0], [1e-300, 1, 1e9, 0]])
def test_probabilities_by_norms_are_never_small_and_add_up_whatever_the_norms(norms):
    found = by_norms(np.array(norms, np.float64), np.full(4, 0.5), 2)
    assert found.sum() == pytest.approx(2)
    assert (found >= asking.FLOOR * 2 / 4 - 1e-12).all()
    assert (found <= 1).all()


def test_numbers_and_parts():
    assert Ask(7).number(5) == 5
    assert Ask(0.29).number(100) == 29  # not 28, by rounding
    assert Ask(0.01).number(5) == 1
    assert Ask(0.2, least=3).number(10) == 3
    assert not Ask(2).chosen(np.zeros(4), np.zeros(4)).any()
    assert Ask(3).probs(np.array([True, False, True])).tolist() == [1, 0, 1]
    assert Ask(3).pair_excess(np.array([True])) == 0


@pytest.mark.parametrize(
    ("size", "by", "message"),
    [
        (0, "uniform", "ask must be an integer >= 1, got 0"),
        (0.0, "uniform", "ask must be a number, or a part > 0, got 0"),
        (1.5, "uniform", "ask must be"),
        (True, "uniform", "ask must be"),
        (3, "luck", "ask_by must be one of uniform, independent, norms, got 'luck'"),
    ],
)
def test_what_cannot_be_asked_for_is_named(size, by, message):
    with pytest.raises(ArgumentError, match=message):
        Ask(size, by)


def test_estimators_that_cannot_make_up_for_it_are_refused_by_name():
    with pytest.raises(ArgumentError, match="wait_for_all, which waits for everybody"):
        Ask(2).check_goes_with(estimators.wait_for_all)
    for name in ("responder_average", "trimmed_mean"):
        Ask(2).check_goes_with(ESTIMATORS[name])
        with pytest.raises(ArgumentError, match=f"for the estimator {name}, which counts"):
            Ask(2, "norms").check_goes_with(ESTIMATORS[name])
    for name in ("coded_sum", "memory", "latest"):
        Ask(2, "norms").check_goes_with(ESTIMATORS[name])
