"""What a run begins with: an exchange, or the one that was made; who has a part in it."""

import shutil
import signal

import numpy as np
import pytest

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.server import meeting
from fedcommons.federate.site.own_data import SiteData
from tests.federate.server.agreement import check_unbiased
from tests.federate.server.trouble import (
    Slow,
)
from tests.federate.tiny import (
    Tiny,
    die_at,
    in_child,
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


def test_copies_must_fit_the_sites_that_are_there(tiny):
    with pytest.raises(FederationError, match=r"copies must be in 0 to 3 .*, got 4"):
        tiny.run(1, sharing={"copies": 4})


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("copies", -1, "copies must be an integer >= 0, got -1"),
        ("copies", 2.5, "copies must be an integer >= 0, got 2.5"),
        ("seed", -3, "seed must be an integer in .*, got -3"),
        ("seed", 2**63, "seed must be an integer in"),
        ("n_sites", 0, "sites must be an integer >= 2, got 0"),
        ("wait", float("inf"), "wait must be in .*, got inf"),
        ("seconds", 0, "timeout must be > 0 and finite, got 0"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tiny, option, value, rule):
    with pytest.raises(ArgumentError, match=rule):
        tiny.run(1, sharing={option: value})
    assert not tiny.state_dir.exists()


def test_a_store_from_elsewhere_does_not_turn_the_federation_over(tiny, tmp_path, caplog):
    """A trial had the same name, and made more exchanges."""
    trial = Tiny(tmp_path / "trial")
    trial.folder.mkdir()
    trial.run(1)
    trial.run(1, sharing={"reshare": True})
    trial.close()
    tiny.run(1, grid=tiny.grid(without="d"))
    shutil.copytree(trial.folder / "d", tiny.folder / "d")
    with tiny.shared() as federation:
        assert (federation.commit.order, len(federation.commit.members)) == ((1, 0), 3)
    assert "which d report, is not adopted" in caplog.text


def test_an_older_server_takes_the_word_of_most_for_a_later_exchange(tiny, tmp_path):
    tiny.run(1)
    shutil.copytree(tiny.state_dir, tmp_path / "backup")
    tiny.run(1, sharing={"reshare": True})
    shutil.rmtree(tiny.state_dir)
    shutil.copytree(tmp_path / "backup", tiny.state_dir)
    with tiny.shared() as federation:
        assert federation.commit.order == (2, 0)


def test_a_site_that_came_after_the_exchange_shares_with_the_next_one(tiny, caplog):
    tiny.run(1, grid=tiny.grid(without="d"))
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        assert len(federation.commit.members) == 3
    assert "d came after the exchange: it can train from the next round on" in caplog.text
    with tiny.shared(tiny.grid(), reshare=True) as federation:
        assert len(federation.commit.members) == 4


def test_a_site_that_lost_its_store_is_missing_and_pointed_out(tiny, caplog):
    tiny.run(1)
    tiny.close()
    shutil.rmtree(tiny.folder / "c")
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 2)
    assert outcomes(notes[0])["c"] == "not connected"
    assert "c has another key than in the exchange: has it lost its store?" in caplog.text


def test_a_new_exchange_that_sites_refuse_is_not_committed(tiny):
    """The others know c by another key: the commit that they are under stays."""
    tiny.run(1)
    tiny.close()
    shutil.rmtree(tiny.folder / "c")
    with pytest.raises(FederationError, match=r"epoch 2 could not be drawn.*'a': 'RosterRefused'"):
        tiny.run(2, sharing={"reshare": True})
    grid = tiny.grid(without="c")
    with tiny.shared(grid, reshare=True) as federation:
        assert [m.site for m in federation.commit.members] == ["a", "b", "d"]
        _, notes = train(federation, grid, 2)
    assert set(outcomes(notes[0]).values()) == {"answered"}


def test_a_site_whose_data_changed_is_missing_until_a_new_exchange(tiny, caplog):
    tiny.run(1)
    data = tiny.data["b"]
    x = data.x.take(np.arange(6)) + 1
    tiny.data["b"] = SiteData.from_arrays(x, data.y, data.shareable)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 2)
    assert outcomes(notes[0]) == {**dict.fromkeys("acd", "answered"), "b": "DataChanged"}
    assert "reshare = true takes them in" in caplog.text
    grid = tiny.grid()
    with tiny.shared(grid, reshare=True) as federation:
        assert federation.commit.order == (2, 0)
        check_unbiased(tiny, federation, grid)


def test_an_exchange_that_was_begun_with_other_copies_is_begun_anew(tiny, monkeypatch):
    """Everybody is asked for a key then, and waited for although all were there a moment ago."""
    monkeypatch.setattr(meeting, "LINGER_SECONDS", 0.0)

    def main():
        durable.reached = die_at("server.receipts:before")
        tiny.share(tiny.grid())

    assert in_child(main) == -signal.SIGKILL
    grid = tiny.grid(Slow)
    with tiny.shared(grid, copies=1, wait=60) as federation:
        assert (federation.commit.number, federation.commit.copies) == (2, 1)
        check_unbiased(tiny, federation, grid)


def test_who_leaves_has_no_part_in_a_new_exchange(tiny):
    tiny.run(1)
    tiny.run(1, sharing={"reshare": True, "leave": ["d"]})
    with tiny.shared() as federation:
        assert [m.site for m in federation.commit.members] == ["a", "b", "c"]
    assert {entry.epoch for entry in tiny.events("d", "sent")} == {1}
    assert {entry.epoch for entry in tiny.events("d", "received")} == {1}


def test_leave_may_stay_in_the_config(tiny):
    tiny.run(1)
    for _ in range(2):
        tiny.run(1, sharing={"reshare": True, "leave": ["d"]}, grid=tiny.grid(without="d"))
    tiny.run(2, sharing={"leave": ["d"]}, grid=tiny.grid(without="d"))


def test_a_name_that_was_never_heard_cannot_leave(tiny):
    tiny.run(1)
    with pytest.raises(FederationError, match=r"leave must name sites .*'a', 'b', 'c', 'd'.*'e'"):
        tiny.share(tiny.grid(), reshare=True, leave=["e"])
    with tiny.shared() as federation:
        assert federation.commit.number == 1
        assert federation.unfinished is None


def test_a_state_dir_of_other_sites_is_pointed_out(tiny, tmp_path):
    tiny.run(1)
    others = Tiny(tmp_path / "others")
    shutil.copytree(tiny.state_dir, others.state_dir)
    with pytest.raises(FederationError, match="none of the sites that are there took part"):
        others.share(others.grid())
    others.run(1, sharing={"reshare": True})
    others.close()


def test_one_store_does_not_throw_the_others_out(tiny, caplog):
    tiny.run(1)
    with tiny.shared() as federation:
        commit = federation.commit
    tiny.close()
    with tiny.store("d") as store:
        store.apply(commit.without(0).without(1), 3)
    tiny.run(2)
    assert "is not adopted" in caplog.text
    with tiny.shared() as federation:
        assert federation.commit == commit
