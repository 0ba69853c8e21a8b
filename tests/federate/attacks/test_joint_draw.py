"""Nobody chooses the seed of an exchange: neither the server nor the site that reveals last."""

import itertools
from dataclasses import replace

import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.records import Epoch
from fedcommons.federate.protocol.refusals import DrawRefused, EpochRefused, Refusal
from fedcommons.federate.site.policy import Policy
from tests.federate.attacks.server_asks import clinic_data
from tests.federate.conftest import FEDERATION, drawn
from tests.federate.tiny import Counting, Tiny


@pytest.fixture
def sites(make_site):
    return [make_site(name, clinic_data(k), None, Policy()) for k, name in enumerate("abcd")]


def proposal_of(sites, *, number: int = 1, copies: int = 1) -> Epoch:
    offers = [s.exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True) for s in sites]
    return Epoch(FEDERATION, number, copies, tuple(offers))


def test_the_seed_is_what_all_revealed(sites):
    proposal = proposal_of(sites)
    epoch = drawn(sites, proposal)
    for site in sites:
        site.exchange.send(epoch.record, [0, 1, 2, 3], 0)
    for place in range(4):  # everybody's part matters
        values = [*epoch.values]
        values[place] = bytes(32)
        assert replace(epoch, values=tuple(values)).draw_seed != epoch.draw_seed


def test_a_seed_that_the_server_ground_is_refused(sites):
    """With a seed of its choice chosen examples went to a chosen site."""
    epoch = drawn(sites, proposal_of(sites))
    for changed in itertools.islice(itertools.product(range(256), repeat=1), 50):
        values = (bytes(changed) * 32, *epoch.values[1:])
        record = replace(epoch, values=values).encode()
        for site in sites:
            with pytest.raises(DrawRefused, match="what a revealed is not what it promised"):
                site.exchange.send(record, [1], 0)


@pytest.mark.parametrize("what", ["number", "copies", "roster", "offers"])
def test_what_was_revealed_counts_for_one_proposal_alone(sites, what):
    """Else the server could choose among rosters, numbers and d when it knows all values."""
    epoch = drawn(sites, proposal_of(sites))
    anew = sites[3].exchange.offer(FEDERATION, node_id=1, run_id=1, with_key=True)
    other = {
        "number": replace(epoch, number=2),
        "copies": replace(epoch, copies=2),
        "roster": replace(epoch, offers=epoch.offers[:3], values=epoch.values[:3]),
        "offers": replace(epoch, offers=(*epoch.offers[:3], anew)),
    }[what]
    for site in sites[:3]:
        with pytest.raises(DrawRefused):
            site.exchange.send(other.encode(), [1], 0)
        with pytest.raises(DrawRefused, match="for another draw"):
            site.exchange.reveal(other.proposal.encode())
    sites[0].exchange.send(epoch.record, [1], 0)


def test_a_site_that_waits_for_a_draw_it_likes_gets_a_few(sites):
    """It breaks off every draw that it does not like; each costs the others one of three."""
    for number in range(1, 4):
        sites[0].exchange.reveal(proposal_of(sites, number=number).record)
    with pytest.raises(DrawRefused, match="3 draws came to nothing; draws is 3"):
        sites[0].exchange.reveal(proposal_of(sites, number=4).record)
    sites[0].store.given.approve()
    sites[0].exchange.reveal(proposal_of(sites, number=4).record)


def test_a_value_is_not_given_away_before_the_roster_is_checked(sites):
    proposal = proposal_of(sites)
    sites[0].peers = {"b": sites[1].identity_name}
    with pytest.raises(Refusal):
        sites[0].exchange.reveal(proposal.record)
    assert sites[0].store.given.draws == 0
    sites[1].exchange.reveal(proposal.record)
    assert sites[1].exchange.reveal(proposal.record) == sites[1].exchange.reveal(proposal.record)
    assert sites[1].store.given.draws == 1  # asked again, it says the same


def test_an_epoch_far_ahead_is_refused(sites):
    """2^40 would be the last that there can be."""
    for site in sites:
        with pytest.raises(EpochRefused):
            site.exchange.reveal(proposal_of(sites, number=2**40).record)


# An honest server, and sites that do not reveal


class Silent(Counting):
    """Site c offers and does not reveal."""

    def _handle(self, message):
        site = self.contexts[message.metadata.dst_node_id].node_config["site"]
        if message.metadata.message_type == "query.fc_draw" and site in self.who:
            return None
        return super()._handle(message)

    who = "c"


@pytest.mark.usefixtures("impatient")
def test_a_site_that_does_not_reveal_is_left_out(tiny: Tiny, caplog):
    grid = tiny.grid(Silent)
    with tiny.shared(grid, seconds=0.3) as federation:
        assert [member.site for member in federation.commit.members] == ["a", "b", "d"]
    assert "the draw is made anew without {'c': 'no answer'}" in caplog.text
    assert grid.sent.count(("a", "query.fc_draw")) == 2


@pytest.mark.usefixtures("impatient")
def test_a_draw_that_nobody_joins_ends_with_the_reason(tiny: Tiny, monkeypatch):
    monkeypatch.setattr(Silent, "who", "bcd")
    with pytest.raises(FederationError, match=r"epoch 1 could not be drawn.*'b': 'no answer'"):
        tiny.share(tiny.grid(Silent), seconds=0.3)


@pytest.mark.usefixtures("impatient")
def test_simulated_sites_draw_the_same_by_the_same_seed(tmp_path):
    seeds = []
    for k, seed in enumerate((5, 5, 6)):
        tiny = Tiny(tmp_path / str(k))
        with tiny.shared(seed=seed) as federation:
            seeds.append(federation.commit.seed)
        tiny.close()
    assert seeds[0] == seeds[1] != seeds[2]


@pytest.mark.usefixtures("impatient")
def test_sites_with_an_operator_draw_for_themselves(tmp_path):
    """Whatever seed the server names."""
    seeds = []
    for k in range(2):
        tiny = Tiny(tmp_path / str(k), copies=1)
        for name in tiny.names:
            (tiny.folder / name).mkdir(parents=True)
            (tiny.folder / name / "policy.toml").write_text("")
        with tiny.shared(seed=5) as federation:
            seeds.append(federation.commit.seed)
        tiny.close()
    assert seeds[0] != seeds[1]
