import numpy as np
import pytest

from fedcommons import estimators
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS, Arrivals, estimate, start
from fedcommons.reliability import Reliability
from fedcommons.theory import second_moment
from tests.odd_parts import ODD_ESTIMATORS
from tests.reference import loops
from tests.scenarios import CODES, SCHEMES, federation

N, M, PARAMS = 5, 14, 3
ALL = [*ESTIMATORS, *ODD_ESTIMATORS]
UNKNOWN_MOMENT = {"tests.odd_parts:first_half", "trimmed_mean", "filled", "blended"}
AVERAGES = {"responder_average", "fedbuff", "fedasync"}  # with equal p alone it is known
UNEQUAL = np.array([0.0, 0.3, 0.5, 0.85, 0.6])
EQUAL = np.full(N, 0.4)


def problem(scheme: str, code: str, p: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (M, P) and the clients' coded answers (N, P)."""
    rng = np.random.default_rng(seed)
    case = federation(n_clients=N, n_examples=M, n_classes=3, c=0.6, seed=seed)
    placement = SCHEMES[scheme](*case, 2, N, rng)
    gradients = rng.normal(size=(M, PARAMS))
    shares = CODES[code](placement, p, rng.normal(-1, 1, N))
    return gradients, shares @ gradients


def exact_moments(estimator, answers, p, state):
    """Mean and second moment over all 2^N straggler patterns."""
    mean, square, total = np.zeros(PARAMS), 0.0, 0.0
    for answered, prob in loops.straggler_patterns(p):
        arrived = np.where(answered[:, None] | estimator.needs_everybody, answers, np.nan)
        value, _ = estimate(estimator, state, arrived, answered, p, weights=np.ones(N))
        mean, square, total = mean + prob * value, square + prob * value @ value, total + prob
    assert total == pytest.approx(1)
    return mean, square


@pytest.mark.parametrize("p", [UNEQUAL, EQUAL, np.zeros(N)], ids=["unequal", "equal", "zero"])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", [name for name in ALL if ESTIMATORS[name].unbiased])
def test_estimate_is_unbiased(name, scheme, code, p):
    gradients, answers = problem(scheme, code, p)
    estimator = ESTIMATORS[name]
    states = [start(estimator, N, PARAMS)]
    if estimator.remembers:  # whatever the past was
        states += [answers, np.random.default_rng(9).normal(size=answers.shape)]
    for state in states:
        mean, _ = exact_moments(estimator, answers, p, state)
        assert np.allclose(mean, gradients.sum(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("p", [UNEQUAL, EQUAL], ids=["unequal", "equal"])
@pytest.mark.parametrize("name", ALL)
def test_second_moment_is_the_mean_over_all_straggler_patterns(name, p, code):
    _, answers = problem("optimal", code, p)
    estimator = ESTIMATORS[name]
    state = np.random.default_rng(1).normal(size=answers.shape) if estimator.remembers else None
    _, square = exact_moments(estimator, answers, p, state)
    found = estimator.second_moment(p)
    if name in UNKNOWN_MOMENT or (name in AVERAGES and np.ptp(p) > 0):
        assert found is None  # not silently wrong
        return
    assert found.of(answers, state) == pytest.approx(square, rel=1e-10)
    if name in ("coded_sum", "memory"):
        theory = second_moment.second_moment(answers, p, remembered=state)
        assert theory == pytest.approx(square, rel=1e-10)


@pytest.mark.parametrize("name", ALL)
def test_what_is_remembered_moves_as_far_as_the_estimator_says(name):
    estimator, answered = ESTIMATORS[name], np.array([True, False, True, True, False])
    if not estimator.remembers:
        pytest.skip("nothing is remembered")
    rng = np.random.default_rng(5)
    before, answers = rng.normal(size=(2, N, PARAMS))
    arrived = np.where(answered[:, None], answers, np.nan)
    _, after = estimate(estimator, before, arrived, answered, EQUAL)
    arrivals = Arrivals.now_or_never(answered)
    rate = answered if estimator.moves is None else estimator.moves(arrivals)
    for i in range(N):
        wanted = before[i] + rate[i] * (answers[i] - before[i])
        assert np.allclose(after[i], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_an_estimator_says_what_it_is(name):
    estimator = ESTIMATORS[name]
    assert isinstance(estimator.caption, str)
    assert estimator.caption or name == "coded_sum"  # the paper's needs no words


@pytest.mark.parametrize("code", CODES)
def test_responder_average_shrinks_for_equal_p(code):
    gradients, answers = problem("optimal", code, EQUAL)
    mean, _ = exact_moments(estimators.responder_average, answers, EQUAL, None)
    assert np.allclose(mean, (1 - 0.4**N) * gradients.sum(axis=0), rtol=0, atol=1e-12)


def test_responder_average_is_biased_for_unequal_p():
    gradients, answers = problem("randomised", "equal_split", UNEQUAL)
    g = gradients.sum(axis=0)
    mean, _ = exact_moments(estimators.responder_average, answers, UNEQUAL, None)
    assert np.linalg.norm(mean - g) > 0.1 * np.linalg.norm(g)
    # It is not a matter of scale: no factor makes it right.
    assert np.linalg.norm(mean - (mean @ g) / (g @ g) * g) > 0.1 * np.linalg.norm(g)


def test_coded_sum_is_the_papers_equations():
    rng = np.random.default_rng(0)
    case = federation(n_clients=N, n_examples=M, n_classes=3, c=0.6, seed=3)
    placement = SCHEMES["optimal"](*case, 2, N, rng)
    gradients = rng.normal(size=(M, PARAMS))
    answers = CODES["equal_split"](placement, None, None) @ gradients
    for answered, _ in loops.straggler_patterns(UNEQUAL):
        value, state = estimate(estimators.coded_sum, None, answers, answered, UNEQUAL)
        H = loops.dense_holdings(placement)
        assert np.allclose(value, loops.coded_sum(H, gradients, answered, UNEQUAL))
        assert state is None


def test_a_wrong_p_leaves_the_stated_factor():
    gradients, answers = problem("randomised", "equal_split", EQUAL)
    wrong, mean = 0.7, np.zeros(PARAMS)
    for answered, prob in loops.straggler_patterns(EQUAL):
        mean += prob * estimate(estimators.coded_sum, None, answers, answered, wrong)[0]
    assert np.allclose(mean, (1 - 0.4) / (1 - 0.7) * gradients.sum(axis=0))


class TestMemory:
    def test_remembers_the_last_answer_of_everybody(self):
        answers = np.arange(6.0).reshape(3, 2)
        state = start(estimators.memory, 3, 2)
        answered = np.array([True, False, True])
        _, state = estimate(estimators.memory, state, answers, answered, 0.5)
        assert state.tolist() == [[0, 1], [0, 0], [4, 5]]
        _, state = estimate(estimators.memory, state, answers + 10, ~answered, 0.5)
        assert state.tolist() == [[0, 1], [12, 13], [4, 5]]

    def test_warm_memory_is_exact_at_the_initial_model(self):
        gradients, answers = problem("randomised", "owner_corrected", UNEQUAL)
        state = start(estimators.memory, N, PARAMS, warm=answers)
        for answered, _ in loops.straggler_patterns(UNEQUAL):
            value, _ = estimate(estimators.memory, state, answers, answered, UNEQUAL)
            assert np.allclose(value, gradients.sum(axis=0))

    def test_variance_vanishes_as_answers_settle(self):
        _, answers = problem("randomised", "equal_split", UNEQUAL)
        assert second_moment.variance(answers, UNEQUAL, remembered=answers) == 0
        assert second_moment.variance(answers, UNEQUAL) > 0

    def test_nobody_answering_gives_back_what_is_remembered(self):
        _, answers = problem("randomised", "equal_split", EQUAL)
        nobody = np.zeros(N, bool)
        value, state = estimate(
            estimators.memory, answers, np.full_like(answers, np.nan), nobody, EQUAL
        )
        assert np.allclose(value, answers.sum(axis=0))
        assert np.array_equal(state, answers)


def two_round_means(estimator, chain: bool) -> np.ndarray:
    """The exact mean of the second round's estimate for one client that answers 3, then 1."""
    p, leave, come_back = 0.5, 0.2, 0.2  # an absence lasts 5 rounds in the mean
    mean = 0.0
    for first in (True, False):
        state = start(estimator, 1, 1)
        _, state = estimate(estimator, state, [[3.0]], [first], p)
        again = (1 - leave if first else come_back) if chain else 1 - p
        for second, prob in ((True, again), (False, 1 - again)):
            value, _ = estimate(estimator, state, [[1.0]], [second], p)
            mean += 0.5 * prob * value[0]
    return mean


def test_correlated_absences_bias_memory():
    # docs/deviations.md, 11: the answers do not depend on the past here, so the coded sum is right.
    assert two_round_means(estimators.memory, chain=False) == pytest.approx(1)
    assert two_round_means(estimators.coded_sum, chain=True) == pytest.approx(1)
    assert two_round_means(estimators.memory, chain=True) == pytest.approx(0.1)


@pytest.mark.parametrize("name", [*ESTIMATORS, "tests.odd_parts:damped"])
class TestClientsAreAlike:
    """Of the package's own estimators: another's may treat clients as it likes."""

    def test_permuting_the_clients_changes_nothing(self, name):
        _, answers = problem("optimal", "reliability_split", UNEQUAL)
        estimator, rng = ESTIMATORS[name], np.random.default_rng(0)
        state = rng.normal(size=answers.shape) if estimator.remembers else None
        for answered, _ in loops.straggler_patterns(UNEQUAL):
            order = rng.permutation(N)
            moved = state[order] if state is not None else None
            W = np.arange(1, N + 1)
            value, new = estimate(estimator, state, answers, answered, UNEQUAL, weights=W)
            again, renew = estimate(
                *(estimator, moved, answers[order], answered[order], UNEQUAL[order]),
                weights=np.arange(1, N + 1)[order],
            )
            assert np.allclose(value, again)
            if state is not None:
                assert np.array_equal(new[order], renew)

    def test_everybody_answering_at_p_zero_gives_the_full_gradient(self, name):
        if ESTIMATORS[name].combine is not None:
            pytest.skip("it is biased with lopsided data")
        gradients, answers = problem("optimal", "equal_split", np.zeros(N))
        state = start(ESTIMATORS[name], N, PARAMS)
        value, _ = estimate(ESTIMATORS[name], state, answers, np.ones(N, bool), 0)
        assert np.allclose(value, gradients.sum(axis=0))


class TestTrimmedMean:
    def trimmed(self, answers, W, answered=None):
        everybody = np.ones(len(answers), bool) if answered is None else answered
        return estimate(estimators.trimmed_mean, None, answers, everybody, 0.3, weights=W)[0]

    def test_by_hand(self):
        """Of ten the largest and smallest two of each number are left out."""
        answers = np.array([np.arange(10.0), np.arange(10.0)[::-1] ** 2]).T
        found = self.trimmed(answers, np.ones(10))
        assert found == pytest.approx([10 * 4.5, 10 * np.mean([4, 9, 16, 25, 36, 49])])

    def test_two_of_ten_cannot_leave_the_others_range(self):
        rng = np.random.default_rng(4)
        answers = rng.normal(size=(10, 7))
        low, high = 10 * answers[2:].min(axis=0), 10 * answers[2:].max(axis=0)
        for value in (1e12, -1e12):
            answers[:2] = value
            found = self.trimmed(answers, np.ones(10))
            assert (low <= found).all()
            assert (found <= high).all()

    def test_alike_clients_of_any_size_give_the_full_gradient(self):
        W, mean = np.array([1.0, 5.0, 2.0, 9.0, 3.0]), np.array([0.3, -2.0])
        answers = W[:, None] * mean
        assert self.trimmed(answers, W) == pytest.approx(W.sum() * mean)
        some = np.array([True, False, True, False, False])
        assert self.trimmed(answers, W, some) == pytest.approx(W.sum() * mean)

    def test_who_has_no_share_is_not_looked_at(self):
        W = np.array([1.0, 0.0, 1.0])
        answers = np.array([[1.0], [50.0], [1.0]])
        assert self.trimmed(answers, W) == pytest.approx([2.0])

    def test_weights_are_needed(self):
        with pytest.raises(ArgumentError, match="weights must be given"):
            self.trimmed(np.ones((3, 2)), None)


@pytest.mark.parametrize("name", ALL)
class TestContract:
    def test_the_given_state_is_not_changed(self, name):
        _, answers = problem("optimal", "equal_split", EQUAL)
        state = start(ESTIMATORS[name], N, PARAMS)
        estimate(ESTIMATORS[name], state, answers, np.ones(N, bool), EQUAL, weights=np.ones(N))
        assert state is None or not state.any()

    def test_nobody_answering_gives_zero_from_a_cold_start(self, name):
        _, answers = problem("optimal", "equal_split", EQUAL)
        estimator = ESTIMATORS[name]
        state = start(estimator, N, PARAMS)
        value, _ = estimate(estimator, state, answers, np.zeros(N, bool), EQUAL, weights=np.ones(N))
        expected = answers.sum(axis=0) if estimator.needs_everybody else np.zeros(PARAMS)
        assert np.allclose(value, expected)

    def test_weights_broadcast_over_runs_and_rounds(self, name):
        rng = np.random.default_rng(0)
        answered = rng.random((4, 6, N)) < 0.5
        stacked = ESTIMATORS[name].weigh(Arrivals.now_or_never(answered), UNEQUAL)
        for index in np.ndindex(4, 6):
            single = ESTIMATORS[name].weigh(Arrivals.now_or_never(answered[index]), UNEQUAL)
            assert np.array_equal(stacked.fresh[index], single.fresh)
            assert np.array_equal(stacked.remembered[index], single.remembered)

    def test_answers_that_are_used_must_be_finite(self, name):
        answers = np.ones((N, PARAMS))
        answers[2, 1] = np.nan
        state = start(ESTIMATORS[name], N, PARAMS)
        with pytest.raises(ArgumentError, match="NaN or infinity from client 2"):
            estimate(ESTIMATORS[name], state, answers, np.ones(N, bool), 0.5, weights=np.ones(N))


def test_estimated_p_works_in_place_of_known_p():
    _, answers = problem("randomised", "equal_split", EQUAL)
    reliability = Reliability.start(N, prior_prob=0.4)
    answered = np.array([True, True, False, True, False])
    value, _ = estimate(estimators.coded_sum, None, answers, answered, reliability.straggler_prob)
    known, _ = estimate(estimators.coded_sum, None, answers, answered, 0.4)
    assert np.allclose(value, known)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(answers=np.ones(3)), r"answers must be floats of shape \(clients, params\)"),
        (dict(answers=np.ones((3, 2), int)), "answers must be floats"),
        (dict(answered=[True, False]), "answered must have 3 entries, got 2"),
        (dict(answered=[1, 0, 1]), "answered must be a boolean mask"),
        (dict(straggler_prob=1.0), r"straggler_prob must be in \[0, 1\), got 1"),
        (dict(straggler_prob=[0.5, 0.5]), "one number or one per client"),
        (dict(state=None), r"state must have the answers' shape \(3, 2\), got None"),
        (dict(state=np.zeros((2, 2))), r"got \(2, 2\)"),
        (dict(state=np.full((3, 2), np.nan)), "state must be finite"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    good = dict(
        state=np.zeros((3, 2)),
        answers=np.ones((3, 2)),
        answered=np.array([True, True, False]),
        straggler_prob=0.5,
    )
    with pytest.raises(ArgumentError, match=message):
        estimate(estimators.memory, **{**good, **arguments})


def test_bad_starts_are_named():
    with pytest.raises(ArgumentError, match="warm needs an estimator that remembers"):
        start(estimators.coded_sum, 2, 2, warm=np.zeros((2, 2)))
    with pytest.raises(ArgumentError, match=r"warm must have shape \(2, 2\), got \(2, 3\)"):
        start(estimators.memory, 2, 2, warm=np.zeros((2, 3)))
    with pytest.raises(ArgumentError, match="warm must be finite"):
        start(estimators.memory, 2, 2, warm=np.full((2, 2), np.nan))
