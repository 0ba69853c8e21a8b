"""How long a round waits for answers, and for anybody to be connected."""

from dataclasses import replace

import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.server import asking, deadlines, open_question
from fedcommons.federate.server.never_on_time import NeverOnTime
from fedcommons.federate.server.round_notes import RoundNote, SiteNote
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
    monkeypatch.setattr(open_question, "time", grid.clock)
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


def test_an_adaptive_deadline_is_the_best_for_its_time(tiny, slow):
    """Three of four sites in 8 s are worth more than all of them in 40 s."""
    slow.delays = {"a": 8.0, "b": 8.0, "c": 6.0, "d": 40.0}
    with tiny.shared(slow) as federation:
        _, notes = train(federation, slow, 3, deadline="adaptive")
    assert slow.ttls[0] == notes[0]["deadline"] == deadlines.FIRST_DEADLINE
    assert [round(note["deadline"], 1) for note in notes[1:]] == [14.2, 14.2]  # 1.5 * 8.1 + 2
    assert "comes in 8.1 s, the best for its time, and 6.0 s to spare; slower: d" in notes[1]["why"]
    assert outcomes(notes[2])["d"] == "no answer"


def test_an_adaptive_deadline_grows_until_slower_sites_are_heard_again(tiny, slow):
    slow.delays = dict.fromkeys("abcd", 3.0)
    with tiny.shared(slow) as federation:
        train(federation, slow, 2, deadline="adaptive")
        slow.delays = dict.fromkeys("abcd", 200.0)
        _, notes = train(federation, slow, 10, deadline="adaptive")
    first = notes[0]["deadline"]
    assert first < 10
    assert [note["deadline"] for note in notes[:6]] == [first * 2**k for k in range(6)]
    assert all(site["answered"] for site in notes[5]["sites"])


def test_nobody_waits_longer_for_a_site_that_hangs(tiny, slow):
    slow.delays = {"d": 1e9}
    with tiny.shared(slow) as federation:
        _, notes = train(federation, slow, 4, deadline="adaptive")
    assert [note["deadline"] for note in notes] == [120, 5, 5, 5]


def test_an_adaptive_deadline_goes_on_from_what_earlier_runs_saw(tiny, slow):
    slow.delays = dict.fromkeys("abcd", 30.0)
    with tiny.shared(slow) as federation:
        train(federation, slow, 1, deadline="adaptive")
        _, notes = train(federation, slow, 2, deadline="adaptive")
    assert notes[0]["deadline"] == pytest.approx(1.5 * 30 + 2, abs=0.75)


def test_an_adaptive_deadline_is_neither_short_nor_endless():
    deadline = deadlines.Deadline("adaptive")
    deadline.note_answer(1, 0.01)
    assert deadline.seconds == deadlines.SHORTEST_DEADLINE
    deadline = deadlines.Deadline("adaptive")
    deadline.note_answer(1, 1e6)
    assert deadline.seconds == deadlines.LONGEST_DEADLINE
    deadline.note_given_up(2)
    assert deadlines.Deadline("adaptive", at_most=3.0).decided({}, {}).why == (
        "no round may take longer"
    )
    assert deadlines.Deadline(7.0).decided({}, {}) == deadlines.Decided(7.0)


def test_what_is_owed_for_longer_than_ever_counts_as_what_never_comes():
    deadline = deadlines.Deadline("adaptive")
    for _ in range(4):
        deadline.note_answer("a", 10.0)
        deadline.note_answer("b", 19.0)
    ten, nineteen = (deadlines.SLACK * best + deadlines.ALLOWANCE for best in (10.0, 19.0))
    assert deadline.decided({}, {}).seconds == nineteen  # 19 / 1 < 10 / .5
    assert deadline.decided({}, {"b": 18.0}).seconds == nineteen
    assert deadline.decided({}, {"b": 30.0}).seconds == ten  # 10 / .5 < 19 / .9
    assert deadline.decided({"b": 9.0}, {"b": 30.0}).seconds == nineteen


def test_a_site_that_has_never_been_on_time_is_named_with_what_would_help(tiny, slow, caplog):
    slow.delays = {"b": 15.0}
    with tiny.shared(slow) as federation:
        train(federation, slow, 4, deadline=10.0)
    said = [r.getMessage() for r in caplog.records if "never been on time" in r.getMessage()]
    assert len(set(said)) == 1
    assert said[0].startswith("b has never been on time, and no answer of it has come: a longer")
    assert "less work" in said[0]
    assert "late = remember" in said[0]


def test_a_site_whose_app_fails_is_not_told_of_deadlines():
    def said(*outcomes):
        told = NeverOnTime(remembers_late=True)
        notes = [
            RoundNote(k, sites=(SiteNote("b", False, of, 0.5), SiteNote("c", True, "answered", 0)))
            for k, of in enumerate(outcomes)
        ]
        return told.look([replace(note, deadline=5.0) for note in notes])

    assert said(*["AttributeError"] * 5) == []
    assert "a longer deadline than 5.0 s" in said("AttributeError", "no answer", "no answer")[0]
    assert said("no answer", "no answer") == []


def test_late_answers_of_a_site_that_is_never_on_time_say_how_long_it_takes(tiny, slow, caplog):
    slow.delays = {"a": 4.0, "b": 15.0}
    with tiny.shared(slow) as federation:
        train(federation, slow, 11, deadline=10.0, estimator="memory")
    (said,) = {r.getMessage() for r in caplog.records if "never been on time" in r.getMessage()}
    assert "b has never been on time: its answers take" in said
    assert "They count when they come" in said


def test_a_deadline_that_is_too_short_for_everybody_is_said(tiny, slow, caplog):
    slow.delays = dict.fromkeys("abcd", 3.0)
    with tiny.shared(slow) as federation:
        train(federation, slow, 16, deadline=1.0, estimator="memory")
    (said,) = {r.getMessage() for r in caplog.records if "ever been on time" in r.getMessage()}
    assert "deadline = 1 s is shorter than what a message and its answer need here" in said


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


def test_what_is_not_work_is_the_way_there_and_back():
    deadline = deadlines.Deadline(10.0)
    assert deadline.link("a") is None
    for took, worked in ((5.0, 3.0), (6.0, 2.0), (4.0, 1.0), (9.0, 8.0), (7.0, 2.0)):
        deadline.note_answer("a", took, worked)
    for worked in (None, "2", -1.0, 11.0, float("nan")):  # a site says nothing that can be used
        deadline.note_answer("a", 10.0, worked)
        deadline.note_answer("b", 10.0, worked)
    assert deadline.link("a") == pytest.approx(4.2)  # of 1, 2, 3, 4 and 5
    assert deadline.link("b") is None
