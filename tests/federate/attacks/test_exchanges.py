"""Nobody gets more of a site's examples than its operator allows, whatever the server asks for."""

import numpy as np
import pytest

from fedcommons.federate.protocol.refusals import (
    ExchangeNotApproved,
    PeersNotPinned,
    RosterTooSmall,
    TooManyCopies,
)
from fedcommons.federate.site.policy import Policy
from tests.federate.attacks.server_asks import clinic_data
from tests.federate.conftest import epoch_of, exchange, sent_by


@pytest.fixture
def clinics(make_site):
    """Sites with pinned keys; only the first has the policy."""

    def make(n: int, policy: Policy):
        sites = [
            make_site(
                name, clinic_data(k), None, policy if not k else Policy(exchanges=99, draws=99)
            )
            for k, name in enumerate("abcdefgh"[:n])
        ]
        pins = {site.name: site.identity_name for site in sites}
        for site in sites:
            site.peers = pins
        return sites

    return make


def events(site, event):
    return [entry for entry in site.store.ledger.entries() if entry.event == event]


def test_a_roster_of_a_victim_and_a_colluder_is_refused(clinics):
    victim, colluder = clinics(2, Policy(share_with_all=True))
    colluder.policy = Policy(min_sites=2, share_with_all=True)
    with pytest.raises(RosterTooSmall, match="the roster has 2 sites; min-sites is 3"):
        epoch_of([victim, colluder])
    assert victim.store.epochs.highest()[0] == 0


def test_made_up_sites_do_not_fill_a_roster(clinics):
    sites = clinics(3, Policy())
    sites[0].peers = {site.name: site.identity_name for site in sites[:2]}
    with pytest.raises(PeersNotPinned):
        epoch_of(sites)


@pytest.mark.parametrize(
    ("n", "copies", "policy", "said"),
    [
        (3, 2, Policy(), "copies is 2, all others of 3 sites; share-with-all is false"),
        (6, 4, Policy(), "copies is 4; max-copies is 3"),
        (6, 2, Policy(max_copies=1), "copies is 2; max-copies is 1"),
    ],
)
def test_too_many_copies_are_refused(clinics, n, copies, policy, said):
    sites = clinics(n, policy)
    for site in sites[1:]:
        site.policy = Policy(max_copies=9, share_with_all=True)
    with pytest.raises(TooManyCopies, match=said):
        epoch_of(sites, copies=copies)


def test_all_others_get_an_example_where_the_operator_says_so(clinics):
    sites = clinics(3, Policy(share_with_all=True))
    for site in sites[1:]:
        site.policy = Policy(share_with_all=True)
    assert set(sent_by(sites[0], epoch_of(sites, copies=2))) == {1, 2}


def test_exchanges_that_never_commit_do_not_give_everything_away(clinics):
    """Fifteen of them gave a colluder all that a site may share; now it is one, by default."""
    sites = clinics(5, Policy())
    seen: set[int] = set()
    for number in range(1, 16):
        try:
            epoch = epoch_of(sites, number=number)
            seen |= set(epoch.draw.assigned(0, 4).tolist())
            sent_by(sites[0], epoch)
        except ExchangeNotApproved:
            continue
    assert len(seen) < 10
    assert len(events(sites[0], "sent")) <= 4


def test_a_second_exchange_needs_the_operators_word(clinics):
    sites = clinics(4, Policy())
    exchange(sites, epoch_of(sites))
    with pytest.raises(ExchangeNotApproved, match="took part in 1 exchanges"):
        epoch_of(sites, number=2)
    sites[0].store.given.approve(3)
    with pytest.raises(ExchangeNotApproved):
        epoch_of(sites, number=2)
    sites[0].store.given.approve()
    exchange(sites, epoch_of(sites, number=2))
    assert sites[0].store.given.approved == [3]  # one word, one exchange
    exchange(sites, epoch_of(sites, number=3))
    with pytest.raises(ExchangeNotApproved):
        epoch_of(sites, number=4)
    assert [entry.epoch for entry in events(sites[0], "approved")] == [3, 0]


def test_what_was_sent_before_counts_against_the_same_cap(clinics):
    """Where exchanges are allowed for, the number of sites that ever got a row is limited."""
    sites = clinics(8, Policy(exchanges=9, max_copies=2, draws=99))
    whom: dict[int, set[int]] = {}
    refused = 0
    for number in range(1, 10):
        epoch = epoch_of(sites, number=number)
        try:
            sent_by(sites[0], epoch)
        except TooManyCopies:
            refused += 1
            continue
        for share in range(10):
            drawn = epoch.draw.recipients(0, share, share + 1)[0]
            whom.setdefault(share, set()).update(drawn.tolist())
    assert refused
    assert max(map(len, whom.values())) <= 2


def test_rows_are_known_again_in_another_order(clinics, make_site):
    """The cap goes by content: another file with the same rows does not begin anew."""
    sites = clinics(8, Policy(exchanges=9, max_copies=1))
    sent_by(sites[0], epoch_of(sites))
    data, back = sites[0].data, np.arange(40)[::-1]
    turned = type(data).from_arrays(data.x.take(back), data.y[back], data.shareable[back])
    sites[0] = make_site("a", turned, sites[0].peers, sites[0].policy)
    with pytest.raises(TooManyCopies):
        sent_by(sites[0], epoch_of(sites, number=2, seed=99))
