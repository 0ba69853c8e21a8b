"""How long a round waits for answers, and for anybody to be connected."""

import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.server import asking, deadlines
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid
from tests.federate.server.trouble import Clock
from tests.federate.tiny import (
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


class Slow(EmbeddedGrid):
    """Sites that take their time: `delays[site]` seconds for a training message."""

    def __init__(self, *args):
        super().__init__(*args)
        self.clock, self.delays, self.due, self.ttls = Clock(), {}, {}, []

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        for sent, message in zip(ids, messages, strict=True):
            site = self.contexts[message.metadata.dst_node_id].node_config["site"]
            if message.metadata.message_type == "train":
                self.due[sent] = self.clock.now + self.delays.get(site, 0.0)
                self.ttls.append(message.metadata.ttl)
        return ids

    def pull_messages(self, message_ids):
        return super().pull_messages(
            [sent for sent in message_ids if self.due.get(sent, 0) <= self.clock.now]
        )


@pytest.fixture
def slow(tiny, monkeypatch):
    grid = tiny.grid(Slow)
    monkeypatch.setattr(asking, "time", grid.clock)
    monkeypatch.setattr(asking, "POLL_SECONDS", 0.3)
    return grid


def test_whoever_answers_by_the_deadline_counts(tiny, slow):
    slow.delays = {"a": 9.0, "b": 11.0, "c": 1.0}
    with tiny.shared(slow) as federation:
        _, notes = train(federation, slow, 1, deadline=10.0)
    assert outcomes(notes[0]) == {
        "a": "answered",
        "b": "no answer",
        "c": "answered",
        "d": "answered",
    }
    assert slow.clock.now == pytest.approx(10.0)
    assert set(slow.ttls) == {10.0}


def test_nobody_waits_when_all_have_answered(tiny, slow):
    slow.delays = {"a": 2.0}
    with tiny.shared(slow) as federation:
        train(federation, slow, 1, deadline=1000.0)
    assert slow.clock.now < 2.5


def test_a_late_answer_does_not_count_in_the_next_round(tiny, slow):
    slow.delays = {"b": 15.0}
    with tiny.shared(slow) as federation:
        _, first = train(federation, slow, 1, deadline=10.0)
        slow.delays = {"b": 1e9, "a": 8.0}  # b's answer of round 1 arrives in round 2
        _, second = train(federation, slow, 2, deadline=10.0)
    assert slow.clock.now > 15
    assert outcomes(first[0])["b"] == outcomes(second[0])["b"] == "no answer"


def test_an_adaptive_deadline_follows_past_answers_and_is_bounded(tiny, slow):
    slow.delays = {"a": 3.0, "b": 3.0, "c": 3.0, "d": 3.0}
    with tiny.shared(slow) as federation:
        train(federation, slow, 3, deadline="adaptive")
    first, second, third = slow.ttls[0], slow.ttls[4], slow.ttls[8]
    assert first == deadlines.FIRST_DEADLINE
    assert second == third == pytest.approx(1.5 * 3 + 2, abs=0.5)


def test_an_adaptive_deadline_grows_until_slower_sites_are_heard_again(tiny, slow):
    slow.delays = dict.fromkeys("abcd", 3.0)
    with tiny.shared(slow) as federation:
        train(federation, slow, 1, deadline="adaptive")
        deadline = deadlines.Deadline("adaptive")
        for node in range(4):
            deadline.note_answer(node, 3.0)
        for node in range(4):
            deadline.note_late(node, 6.5)
        assert deadline.seconds == pytest.approx(1.5 * 1.5 * 6.5 + 2)
        slow.delays = dict.fromkeys("abcd", 200.0)
        _, notes = train(federation, slow, 4, deadline="adaptive")
    heard = [all(site["answered"] for site in note["sites"]) for note in notes]
    assert heard == [False, True, True]


def test_nobody_waits_longer_for_a_site_that_hangs(tiny, slow):
    slow.delays = {"d": 1e9}
    with tiny.shared(slow) as federation:
        train(federation, slow, deadlines.MOST_LATE + 3, deadline="adaptive")
    by_round = slow.ttls[::4]
    assert by_round[0] < by_round[1] < by_round[2] < deadlines.LONGEST_DEADLINE
    assert by_round[-2:] == [deadlines.SHORTEST_DEADLINE] * 2


def test_an_adaptive_deadline_is_neither_short_nor_endless(tiny, slow):
    with tiny.shared(slow) as federation:
        train(federation, slow, 2, deadline="adaptive")
        assert slow.ttls[-1] == deadlines.SHORTEST_DEADLINE
        slow.ttls.clear()
        slow.delays = dict.fromkeys("abcd", 119.0)
        deadline = deadlines.Deadline("adaptive")
        deadline.note_answer(1, 1e6)
        assert deadline.seconds == deadlines.LONGEST_DEADLINE


class Gone(EmbeddedGrid):
    """Nobody is connected until the nodes were looked for `looks` times."""

    looks = 0

    def get_node_ids(self):
        self.looks -= 1
        return [] if self.looks > 0 else super().get_node_ids()


def test_a_round_waits_for_somebody_to_be_connected(tiny):
    grid = tiny.grid(Gone)
    with tiny.shared(grid) as federation:
        grid.looks = 20
        _, notes = train(federation, grid, 1, deadline=30.0)
    assert set(outcomes(notes[0]).values()) == {"answered"}


def test_a_training_that_nobody_answers_ends_and_can_go_on(tiny):
    grid = tiny.grid(Gone)
    with tiny.shared(grid) as federation:
        train(federation, grid, 1)
        grid.looks = 10**9
        with pytest.raises(
            FederationError, match="nobody answered, 10 times in a row, up to round 11"
        ):
            train(federation, grid, 40, deadline=0.01)
        grid.looks = 0
        _, notes = train(federation, grid, 12)
    assert [note["round"] for note in notes] == [12]
    assert {(s["outcome"], s["straggler_prob"]) for s in notes[0]["sites"]} == {
        ("answered", 0.05 / 2)
    }
