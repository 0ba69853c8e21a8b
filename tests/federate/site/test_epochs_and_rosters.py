"""A site takes part in an epoch only with sites that it trusts and that fit."""

from dataclasses import replace

import pytest

from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.example_schema import digest_of_columns
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.protocol.refusals import (
    EpochRefused,
    LayoutRefused,
    PeersNotPinned,
    RosterRefused,
    WrongFederation,
)
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.site.policy import SIMULATED
from fedcommons.federate.site.site import Site
from tests.federate.conftest import FEDERATION, drawn, epoch_of, example_data, made_up
from tests.federate.site.envelopes import (
    A,
    B,
    C,
)


def test_an_epoch_must_increase(three):
    first, second = epoch_of(three, number=1), epoch_of(three, number=2)
    another = epoch_of(three, number=2, seed=26)
    three[A].exchange.send(second.record, [B], 0)
    for record in (first.record, another.record):
        with pytest.raises(EpochRefused):
            three[A].exchange.send(record, [B], 0)
        with pytest.raises(EpochRefused):
            three[A].exchange.receive(record, [])
    three[A].exchange.send(second.record, [B], 0)


def test_an_epoch_ends_with_its_commit(committed):
    sites, epoch, commit = committed
    with pytest.raises(EpochRefused):
        sites[A].exchange.send(epoch.record, [B], 0)
    with pytest.raises(EpochRefused):
        sites[A].exchange.receive(epoch.record, [])
    assert sites[A].store.keyring.private_key(bytes.fromhex(epoch.sites[A].key)) is None
    assert sites[A].apply_commit(commit.record) == commit


def test_a_key_that_was_never_offered_is_refused(three, epoch):
    forged = replace(epoch.sites[A], key="ab" * 32).signed(three[A].store.identity)
    changed = replace(epoch, offers=(forged, *epoch.offers[1:]))
    with pytest.raises(EpochRefused):
        three[A].exchange.send(changed.encode(), [B], 0)
    with pytest.raises(EpochRefused):
        three[A].exchange.reveal(changed.proposal.encode())


def test_a_roster_without_this_site_or_under_another_name_is_refused(three, epoch):
    without = replace(epoch, offers=epoch.offers[1:], values=epoch.values[1:])
    with pytest.raises(RosterRefused):
        three[A].exchange.receive(without.encode(), [])
    renamed = replace(epoch.sites[A], site="aa").signed(three[A].store.identity)
    with pytest.raises(RosterRefused):
        three[A].exchange.receive(replace(epoch, offers=(renamed, *epoch.offers[1:])).encode(), [])


def with_impostor(sites: list[Site], number: int) -> Epoch:
    """An epoch in which somebody else has c's name, rightly signed with a key of its own."""
    offers = [site.exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True) for site in sites]
    epoch, impostor = Epoch(FEDERATION, number, 1, tuple(offers)), Identity.create()
    offer = made_up(epoch.sites[C], impostor)
    return drawn(sites[:C], replace(epoch.proposal, offers=(*epoch.offers[:C], offer)))


def test_a_pinned_key_may_not_change(make_site):
    sites = [make_site(name) for name in "abc"]
    pins = {site.name: site.identity_name for site in sites}
    sites[A].peers = pins
    for call in (
        lambda r: sites[A].exchange.send(r, [B], 0),
        lambda r: sites[A].exchange.receive(r, []),
    ):
        with pytest.raises(RosterRefused):
            call(with_impostor(sites, 1).record)
    assert sites[A].store.epochs.highest()[0] == 0
    sites[A].exchange.receive(epoch_of(sites).record, [])


def test_a_peer_must_be_pinned(make_site):
    sites = [make_site(name) for name in "abc"]
    sites[A].peers = {"b": sites[B].identity_name}
    with pytest.raises(PeersNotPinned):
        sites[A].exchange.receive(epoch_of(sites).record, [])
    sites[A].peers = {}
    with pytest.raises(PeersNotPinned):
        sites[A].exchange.receive(epoch_of(sites).record, [])


def test_the_key_of_the_first_use_may_not_change(three):
    three[A].exchange.receive(epoch_of(three, number=1).record, [])
    with pytest.raises(RosterRefused):
        three[A].exchange.receive(with_impostor(three, 2).record, [])
    three[A].exchange.receive(epoch_of(three, number=2).record, [])


def test_the_first_use_is_remembered_after_a_restart_and_from_a_commit(make_site, three):
    epoch = epoch_of(three)
    three[A].apply_commit(Commit.of(epoch, ()).record)  # it missed the exchange
    again = make_site("a")
    with pytest.raises(RosterRefused):
        again.exchange.receive(with_impostor([again, *three[1:]], 2).record, [])


def test_a_store_belongs_to_one_federation(three, epoch):
    with pytest.raises(WrongFederation):
        three[A].exchange.offer("banks", node_id=1, run_id=1, with_key=True)
    banks = Epoch(
        "banks", 1, 1,
        tuple(
            replace(o, federation="banks").signed(s.store.identity)
            for o, s in zip(epoch.sites, three, strict=True)
        ),
        epoch.values,
    )  # fmt: skip
    with pytest.raises(WrongFederation):
        three[A].exchange.receive(banks.record, [])
    with pytest.raises(WrongFederation):
        three[A].apply_commit(Commit.of(banks, ()).record)


def test_an_offer_tells_how_much_and_nothing_else(three):
    offer = three[A].exchange.offer(FEDERATION, node_id=3, run_id=4, with_key=False).checked()
    assert (offer.node_id, offer.run_id, offer.key, offer.commit) == (3, 4, "", "")
    assert (offer.n_examples, offer.n_shareable, offer.row_bytes) == (12, 6, 40)
    assert (offer.layout, offer.columns) == ("float32 6", "")
    same_data = Site(three[B].store, three[A].data, "b", None, SIMULATED)
    other = same_data.exchange.offer(FEDERATION, node_id=3, run_id=4, with_key=False).checked()
    assert other.manifest != offer.manifest  # nobody else can tell whether a guess is right


@pytest.mark.parametrize(
    "changes",
    [{"layout": "float64 6"}, {"layout": "float32 2x3"}, {"columns": digest_of_columns("abcdfe")}],
    ids=str,
)
def test_an_epoch_with_a_site_whose_examples_do_not_fit_is_refused(make_site, changes):
    named = {"columns": digest_of_columns("abcdef")}
    sites = [make_site(name, replace(example_data(1), **named)) for name in "ab"]
    other = make_site("c", replace(example_data(1), **{**named, **changes}))
    epoch = epoch_of([*sites, other])
    for site in (*sites, other):
        with pytest.raises(LayoutRefused, match=r"site [abc]: its .* the others'"):
            site.exchange.send(epoch.record, [B], 0)
        with pytest.raises(LayoutRefused):
            site.exchange.receive(epoch.record, [])
        assert site.store.epochs.highest()[0] == 0


def test_columns_without_names_and_no_data_fit_everything(make_site):
    named = replace(example_data(1), columns=digest_of_columns("abcdef"))
    sites = [make_site("a", named), make_site("b"), make_site("c", SiteData.none())]
    epoch = epoch_of(sites, copies=0)
    for site in sites:
        site.exchange.receive(epoch.record, [])
        assert site.store.epochs.highest()[0] == 1


def test_names_that_changed_since_the_offer_are_refused(make_site):
    sites = [
        make_site(name, replace(example_data(1), columns=digest_of_columns("abcdef")))
        for name in "abc"
    ]
    epoch = epoch_of(sites)
    renamed = make_site("a", replace(example_data(1), columns=digest_of_columns("bacdef")))
    with pytest.raises(LayoutRefused):
        renamed.exchange.send(epoch.record, [B], 0)
