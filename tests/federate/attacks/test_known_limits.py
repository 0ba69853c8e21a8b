"""What a server that makes the right questions up still learns: docs/privacy.md says so.

These attacks work. If one of them fails here, something became better, and the page is to say so.
"""

import itertools

import numpy as np
import pytest

from fedcommons.federate.protocol.refusals import StoreIsOlder
from fedcommons.federate.site.policy import Policy
from tests.federate.attacks.server_asks import (
    N_CLASSES,
    N_FEATURES,
    ZERO,
    Asking,
    clinic_data,
    found_among,
    rows_in,
)
from tests.federate.conftest import epoch_of, exchange


def under_a_commit(make_site, policy):
    sites = [make_site(name, clinic_data(ord(name)), None, policy) for name in "abc"]
    commit = exchange(sites, epoch_of(sites))
    for site in sites:
        site.apply_commit(commit.record)
    return sites, commit


def test_models_that_are_made_for_it_isolate_examples(make_site):
    """min-examples counts who is in an answer, not whose gradient differs between two answers.

    Each model tells examples apart by a threshold: two of them that are close differ in the part
    of the few examples between.
    """
    sites, commit = under_a_commit(make_site, Policy(unconfirmed_answers=1000))
    asking, answers = Asking(sites[0], commit), []
    for threshold in np.linspace(-2.5, 2.5, 80):
        beta = np.zeros((N_FEATURES + 1, N_CLASSES))
        beta[0, 0], beta[-1, 0] = 1e9, -1e9 * threshold
        answers.append(asking.answer({"beta": beta}).answer["beta"])
    guesses = np.concatenate([rows_in(b - a) for a, b in itertools.pairwise(answers)])
    private = sites[0].data.x.take(np.flatnonzero(~sites[0].data.shareable))
    assert found_among(private, guesses) >= 8


def test_a_withdrawal_that_the_server_makes_up_shows_a_copy(make_site):
    """Owners do not sign for other holders what they withdrew; the difference is one example."""
    sites, commit = under_a_commit(make_site, Policy())
    before = Asking(sites[0], commit)
    number = int(commit.draw.assigned(1, 0)[0])
    full = before.answer(ZERO).answer["beta"]
    before.commit = commit.anew(withdrawn=((), (number,), ()))
    without = before.answer(ZERO).answer["beta"]
    b = sites[1].data
    copied = b.x.take(np.flatnonzero(b.shareable)[[number]])
    assert found_among(copied, rows_in(full - without)) == 1
    owner = Asking(sites[1], before.commit)
    with pytest.raises(StoreIsOlder):
        owner.answer(ZERO)


def test_an_approved_exchange_is_not_held_against_earlier_ones(make_site):
    """The operator's word is for an exchange as it is, wherever examples went before."""
    policy = Policy(max_copies=1)
    sites = [make_site(name, clinic_data(ord(name)), None, policy) for name in "abcdefgh"]
    whom = []
    for number in (1, 2):
        epoch = epoch_of(sites, number=number, seed=number)
        sites[0].exchange.send(epoch.record, range(1, 8), 0)
        whom.append(epoch.draw.recipients(0, 0, 10)[:, 0])
        for site in sites:
            site.store.given.approve()
    assert (whom[0] != whom[1]).any()
