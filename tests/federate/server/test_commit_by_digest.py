"""A commit travels once to each site; from then on messages name its digest."""

import shutil

import pytest

from fedcommons.federate.transport import messages
from tests.federate.tiny import Counting, Tiny, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")


class Noting(Counting):
    """Notes the commit that every training message carries: (site, record)."""

    def __init__(self, *args):
        super().__init__(*args)
        self.commits = []

    def _handle(self, message):
        if message.metadata.message_type == "train":
            site = str(self.contexts[message.metadata.dst_node_id].node_config["site"])
            self.commits.append((site, messages.fields(message)["commit"]))
        return super()._handle(message)


def test_the_record_goes_to_each_site_once(tiny: Tiny):
    grid = tiny.grid(Noting)
    with tiny.shared(grid) as federation:
        record = federation.commit.record
        train(federation, grid, 3)
    assert [commit for _, commit in grid.commits] == [record] * 4 + [b""] * 8


def test_a_new_run_finds_out_from_the_offers_who_has_it(tiny: Tiny):
    tiny.run(1)
    away = tiny.grid(without="d")
    tiny.withdraw("b", 0)
    with tiny.shared(away) as federation:
        train(federation, away, 2)  # d does not hear of commit (1, 1)
    grid = tiny.grid(Noting)
    with tiny.shared(grid) as federation:
        assert federation.commit.order == (1, 1)
        _, notes = train(federation, grid, 3)
    assert {site for site, commit in grid.commits if commit} == {"d"}
    assert set(outcomes(notes[-1]).values()) == {"answered"}


def test_a_site_that_lost_it_is_sent_all_of_it_in_the_same_round(tiny: Tiny):
    """Its store is put back to one from before the commit, while the server runs."""
    with tiny.shared():
        pass
    tiny.close()
    backup = tiny.folder / "backup"
    shutil.copytree(tiny.folder / "c", backup)
    grid = tiny.grid(Noting)
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        tiny.close()
        shutil.rmtree(tiny.folder / "c")
        backup.rename(tiny.folder / "c")
        grid.app = tiny.app()
        _, notes = train(federation, grid, 2)
    assert set(outcomes(notes[-1]).values()) == {"answered"}
    of_round_2 = grid.commits[4:]
    assert [site for site, commit in of_round_2 if commit] == ["c"]
    assert len(of_round_2) == 5


def test_a_site_that_never_has_it_is_left_out_of_the_round(tiny: Tiny):
    class Forgetful(Noting):
        """b lacks what is named by its digest, and what it is sent is lost on the way."""

        def _handle(self, message):
            site = self.contexts[message.metadata.dst_node_id].node_config["site"]
            if message.metadata.message_type == "train" and site == "b":
                message.content[messages.FIELDS]["commit"] = b""
                message.content[messages.FIELDS]["digest"] = bytes(32)
            return super()._handle(message)

    grid = tiny.grid(Forgetful)
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 1)
    assert outcomes(notes[0]) == dict.fromkeys("acd", "answered") | {"b": "CommitUnknown"}
