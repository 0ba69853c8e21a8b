"""What a site claims to have costs the others nothing before the operator has approved it.

Before, a claim of 2^30 examples shrank every step to nothing, and 2^30 shareable rows cost each of
the others 64 s of drawing for a pair.
"""

from dataclasses import replace

import pytest

from fedcommons.errors import ArgumentError
from fedcommons.federate.protocol import records
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import RosterRefused
from fedcommons.federate.server import claims
from fedcommons.federate.server.lifting import lift
from fedcommons.federate.site.exchange import Exchange
from fedcommons.federate.site.own_data import SiteData
from tests.federate.attacks.hostile_sites import quarantined
from tests.federate.conftest import epoch_of
from tests.federate.tiny import Tiny, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def liar(monkeypatch):
    """From now on d's offers claim these."""
    claimed = {}
    offer = Exchange.offer

    def lies(exchange, *args, **options):
        signed = offer(exchange, *args, **options)
        if exchange.site.name != "d" or not claimed:
            return signed
        return replace(signed.checked(), **claimed).signed(exchange.site.store.identity)

    monkeypatch.setattr(Exchange, "offer", lies)
    return claimed


@pytest.mark.parametrize("shareable", [0, 2**30])
def test_a_claim_beyond_the_cap_is_held_back_and_the_others_train(tiny, liar, shareable):
    liar |= {"n_examples": 2**30, "n_shareable": shareable}
    with tiny.shared(grid := tiny.grid()) as federation:
        assert [member.site for member in federation.commit.members] == ["a", "b", "c"]
        assert federation.commit.n_examples == 4 + 6 + 5
        why = f"it claims {2**30} examples, max-examples is {claims.MOST_EXAMPLES}"
        assert quarantined(federation)["d"].startswith(why)
        _, notes = train(federation, grid, 1)
        assert set(outcomes(notes[0]).values()) == {"answered"}


def test_a_claim_that_jumps_is_held_back_until_it_is_approved(tiny):
    def grow(factor: int) -> None:
        x = tiny.data["d"].x.take(range(7))
        rows = [row % 7 for row in range(7 * factor)]
        found = SiteData.from_arrays(
            x[rows] + 0.001 * factor, tiny.data["d"].y[rows], [False] * len(rows)
        )
        tiny.data["d"] = found

    tiny.run(1)
    tiny.close()
    grow(10)
    with tiny.shared(reshare=True) as federation:
        assert federation.commit.n_examples == 4 + 6 + 5 + 70
    tiny.close()
    grow(200)
    with tiny.shared(reshare=True) as federation:
        assert federation.commit.n_examples == 4 + 6 + 5
        why = "it claims 1400 examples, 70 by the last commit: held back until you approve"
        assert quarantined(federation) == {"d": why}
    tiny.close()
    assert lift(tiny.state_dir, "d")[0].examples == 1400
    with tiny.shared(reshare=True) as federation:
        assert federation.commit.n_examples == 4 + 6 + 5 + 1400
    tiny.close()


def test_who_comes_later_is_held_back_too(tiny, liar):
    with tiny.shared(tiny.grid(without="d")):
        pass
    tiny.close()
    liar |= {"n_examples": 2**30, "n_shareable": 0}
    with tiny.shared(grid := tiny.grid()) as federation:
        train(federation, grid, 2)
        assert [member.site for member in federation.commit.members] == ["a", "b", "c"]
        assert list(quarantined(federation)) == ["d"]


def test_the_operator_sets_the_cap(tmp_path):
    tiny = Tiny(tmp_path)
    with tiny.shared(most_examples=6) as federation:
        assert list(quarantined(federation)) == ["d"]
    with pytest.raises(ArgumentError, match="max-examples must be an integer >= 1, got 0"):
        tiny.share(tiny.grid(), most_examples=0)
    tiny.close()


def test_sites_do_not_draw_for_more_than_they_ever_need(three, monkeypatch):
    """Whatever the server lets through."""
    epoch = epoch_of(three)
    commit = Commit.of(epoch, ())
    monkeypatch.setattr(records, "MOST_DRAWN", sum(s.n_shareable for s in epoch.sites) - 1)
    with pytest.raises(RosterRefused, match="together must share at most"):
        three[0].exchange.send(epoch.record, [1], 0)
    with pytest.raises(RosterRefused, match="together must share at most"):
        three[0].apply_commit(commit.record)
