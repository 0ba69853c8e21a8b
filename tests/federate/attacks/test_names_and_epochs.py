"""Whatever a site claims to be or to have seen, the others make their exchange.

Before, a site under another's name, one that had seen a wild epoch number, and one with a store of
another federation of the same name blocked every exchange.
"""

import shutil

import pytest

from fedcommons.federate.server.lifting import lift
from fedcommons.federate.site.epochs import Epochs
from tests.federate.attacks.hostile_sites import quarantined
from tests.federate.tiny import Tiny, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")


def members(federation):
    return [member.site for member in federation.commit.members]


def test_a_site_under_a_members_name_is_left_out_of_the_next_exchange(tiny):
    tiny.run(1, grid=tiny.grid(without="d"), sharing={"copies": 1})
    grid = tiny.grid()
    grid.contexts[5].node_config["site"] = "a"
    with tiny.shared(grid, copies=1, reshare=True) as federation:
        a = next(m for m in federation.commit.members if m.site == "a")
        assert members(federation) == ["a", "b", "c"]
        assert a.n_examples == 4  # the one that was there before
        assert quarantined(federation) == {"a": "another site is called 'a' as well"}
        train(federation, grid, 1)


def test_whose_name_it_is_the_operator_says_where_nobody_is_known(tiny):
    def grid():
        found = tiny.grid()
        found.contexts[5].node_config["site"] = "a"
        return found

    with tiny.shared(grid(), copies=1) as federation:
        assert members(federation) == ["b", "c"]
        entries = federation.quarantine.listed()
        assert [entry["site"] for entry in entries] == ["a", "a"]
    tiny.close()
    with tiny.store("a") as store:
        identity = store.identity.name
    lift(tiny.state_dir, identity[:8])
    with tiny.shared(grid(), copies=1, reshare=True) as federation:
        assert members(federation) == ["a", "b", "c"]
        assert federation.commit.members[0].identity == identity


def test_a_wild_epoch_number_leaves_its_site_out(tiny, monkeypatch):
    seen = Epochs.highest

    def lies(epochs):
        return (2**40, b"") if epochs.database.folder.name == "d" else seen(epochs)

    monkeypatch.setattr(Epochs, "highest", lies)
    with tiny.shared(grid := tiny.grid()) as federation:
        assert members(federation) == ["a", "b", "c"]
        assert federation.commit.order == (1, 0)
        assert f"seen epoch {2**40}, the others 0" in quarantined(federation)["d"]
        _, notes = train(federation, grid, 1)
        assert set(outcomes(notes[0]).values()) == {"answered"}
    tiny.close()
    with tiny.shared(reshare=True) as federation:  # it is not heard again
        assert federation.commit.order == (2, 0)
        assert members(federation) == ["a", "b", "c"]


def test_a_store_of_another_federation_of_the_name_leaves_its_site_out(tiny, tmp_path):
    trial = Tiny(tmp_path / "trial")
    trial.folder.mkdir()
    trial.run(1)
    trial.run(1, sharing={"reshare": True})
    trial.close()
    tiny.run(1, grid=tiny.grid(without="d"))
    tiny.close()
    shutil.copytree(trial.folder / "d", tiny.folder / "d")
    shutil.rmtree(tiny.state_dir)
    with tiny.shared(grid := tiny.grid()) as federation:
        assert members(federation) == ["a", "b", "c"]
        assert "another federation" in quarantined(federation)["d"]
        train(federation, grid, 2)
