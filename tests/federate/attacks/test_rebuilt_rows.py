"""A curious server cannot rebuild a site's rows from what it chooses to ask."""

import numpy as np
import pytest

from fedcommons.federate.protocol.refusals import (
    BatchTooSmall,
    QuestionRefused,
    Refusal,
    TooFewExamples,
    TooManySteps,
)
from fedcommons.federate.site.policy import SIMULATED, Policy
from fedcommons.federate.site.questions import check_measured
from fedcommons.federate.transport.weighted_examples import WeightedExamples
from tests.federate.attacks.server_asks import (
    RATE,
    ZERO,
    Asking,
    clinic_data,
    found_among,
    rows_in,
)
from tests.federate.conftest import epoch_of, exchange


@pytest.fixture
def under_a_commit(make_site):
    """Three sites with 40 examples after an exchange; a asks its own policy."""

    def make(policy: Policy, n: int = 40):
        data = {name: clinic_data(ord(name), n) for name in "abc"}
        sites = [make_site(name, data[name], None, policy) for name in "abc"]
        commit = exchange(sites, epoch_of(sites))
        for site in sites:
            site.apply_commit(commit.record)
        return sites[0], commit

    return make


def rebuilt(asking: Asking, site, questions) -> int:
    """How many private rows of a site an attacker knows after asking these questions."""
    guesses = []
    for changes in questions:
        try:
            answer = asking.answer(**changes).answer["beta"]
        except Refusal:
            continue
        guesses.append(rows_in(answer))
    private = site.data.x.take(np.flatnonzero(~site.data.shareable))
    return found_among(private, np.concatenate(guesses)) if guesses else 0


ONE_BY_ONE = [{"batch-size": 1, "round": t} for t in range(1, 200)]


def test_one_example_at_a_time_shows_nothing(under_a_commit):
    site, commit = under_a_commit(Policy())
    assert rebuilt(Asking(site, commit), site, ONE_BY_ONE) == 0
    with pytest.raises(BatchTooSmall, match="batches of 31 are asked for; min-examples is 32"):
        Asking(site, commit).answer(**{"batch-size": 31})


def test_without_a_policy_it_shows_the_rows(under_a_commit):
    """The attack itself works: this is what the policy is for."""
    site, commit = under_a_commit(SIMULATED)
    assert rebuilt(Asking(site, commit), site, ONE_BY_ONE) >= 25


def test_batches_that_differ_by_one_example_are_drawn_independently(under_a_commit):
    """The difference of an answer about 32 examples and one about 33 would be one example."""
    site, commit = under_a_commit(Policy(unconfirmed_answers=1000))
    n_held, private = len(site.holdings(commit).own), ~site.data.shareable
    x, asking, guesses = site.data.x.take(np.flatnonzero(private)), Asking(site, commit), []
    for t in range(1, 60):
        sums = {
            size: asking.answer(**{"round": t, "batch-size": size}).answer["beta"] * size
            for size in (32, 33)
        }
        guesses.append(rows_in(sums[33] - sums[32]))
    assert found_among(x, np.concatenate(guesses)) == 0
    assert n_held == 40


def test_what_the_app_is_told_changes_the_order_too(under_a_commit):
    site, commit = under_a_commit(Policy())
    asking, size = Asking(site, commit), {"batch-size": 32}
    first = asking.answer(**size, config={"size": 1}).answer["beta"]
    assert not np.array_equal(first, asking.answer(**size, config={"size": 2}).answer["beta"])
    again = asking.answer(**size, config={"size": 1}).answer["beta"]
    assert first.tobytes() == again.tobytes()  # so a run can be resumed


def test_nobody_else_knows_the_order(under_a_commit):
    """By the exchange's seed, which all know, it could be computed."""
    site, commit = under_a_commit(Policy())
    real = Asking(site, commit).answer(**{"batch-size": 32}).answer["beta"]
    site.policy = SIMULATED
    site._holdings = None
    known = Asking(site, commit)
    known.numbers = iter([10])
    assert not np.array_equal(real, known.answer(**{"batch-size": 32}).answer["beta"])


@pytest.mark.parametrize("asked", [{}, {"round": 0}, {"local-steps": 3, "batch-size": 0}], ids=str)
def test_a_site_with_too_few_examples_does_not_answer_at_all(under_a_commit, asked):
    """Round 1 from zero weights, and the warm start before it, show means of classes."""
    site, commit = under_a_commit(Policy(), n=31)
    with pytest.raises(TooFewExamples, match="31 examples of this site; min-examples is 32"):
        Asking(site, commit).answer(**asked)
    site.policy = Policy(min_examples=31)
    assert Asking(site, commit).answer(**asked).answer is not None


def test_examples_with_next_to_no_weight_hide_nobody(under_a_commit):
    """The commit's code gives the weights, and the server writes commits."""
    site, commit = under_a_commit(Policy())
    for w in (1e6, -1e6):
        loud = commit.anew(code="owner-corrected", owner_share=(w, 0.5, 0.5))
        with pytest.raises(TooFewExamples, match="10 examples of this site"):
            Asking(site, loud).answer()
        site.store.apply(commit, 0)


def test_a_number_of_a_question_only_goes_up(under_a_commit, make_site):
    site, commit = under_a_commit(Policy())
    asking = Asking(site, commit)
    asking.answer(question=7)
    for number in (7, 6, 0, -3, True, "8", 2**62 + 1):
        with pytest.raises(QuestionRefused, match="must have a number above 7"):
            asking.answer(question=number)
    with pytest.raises(QuestionRefused):  # after a restart too
        Asking(make_site("a", site.data, None, Policy()), commit).answer(question=7)
    asking.answer(question=8, round=0)  # rounds repeat


def test_steps_have_a_limit(under_a_commit):
    site, commit = under_a_commit(Policy(max_local_steps=5))
    Asking(site, commit).answer(**{"local-steps": 5, "question": 1})
    with pytest.raises(TooManySteps, match="6 local steps are asked for; max-local-steps is 5"):
        Asking(site, commit).answer(**{"local-steps": 6, "question": 2})


def test_a_training_function_that_takes_one_batch_of_its_own_is_refused():
    held = WeightedExamples(np.zeros((50, 2)), np.zeros(50, int), np.ones(50), at_least=32)
    with pytest.raises(BatchTooSmall, match="asks for 31 examples"):
        WeightedExamples(
            np.zeros((50, 2)), np.zeros(50, int), np.ones(50), 1, 31, at_least=32
        ).batches()
    assert len(held.batches(batch_size=8, epochs=1)) == 7  # all are gone through


@pytest.mark.parametrize(("n", "least"), [(40, 11), (40, 30)])
def test_an_owners_share_says_nothing_of_few_examples(under_a_commit, n, least):
    """It is one number, but the server chooses the model: 10 are shared here, 30 are not."""
    site, commit = under_a_commit(Policy(min_examples=least), n=n)
    asking, rng = Asking(site, commit), np.random.default_rng(0)
    found = {
        asking.answer({"beta": rng.normal(size=ZERO["beta"].shape)}, task="owner-share").fields[
            "owner-share"
        ]
        for _ in range(3)
    }
    assert found == {1 / (commit.copies + 1)}
    site.policy = Policy(min_examples=10)
    assert asking.answer(task="owner-share").fields["owner-share"] not in found


def test_what_few_examples_measured_does_not_leave():
    """By the number that the app names; what names none is not checked."""
    with pytest.raises(TooFewExamples, match="of 31 examples; min-examples is 32"):
        check_measured(Policy(), 31)
    for number in (32, 0, None):
        check_measured(Policy(), number)


def test_the_step_is_what_the_attack_divides_by():
    """The attack's arithmetic: one example's descent shows its inputs."""
    from tests.federate.attacks.server_asks import sgd

    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(1, 6)), np.array([2])
    moved = sgd(ZERO, WeightedExamples(x, y, np.ones(1)))["arrays"]["beta"]
    np.testing.assert_allclose(rows_in(-moved / RATE), np.repeat(x, 3, axis=0))
