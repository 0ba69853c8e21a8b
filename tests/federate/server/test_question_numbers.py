"""Numbers of questions are never used again, whatever dies, and whatever a site claims."""

import shutil

import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.server.question_numbers import BLOCK, QuestionNumbers
from tests.federate.tiny import Tiny, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")


def last_answered(tiny: Tiny) -> dict[str, int]:
    found = {}
    for name in tiny.names:
        with tiny.store(name) as store:
            found[name] = store.questions.last
    return found


def test_a_server_that_is_started_again_begins_behind_what_it_reserved(tmp_path):
    numbers = QuestionNumbers(tmp_path)
    assert [numbers.fresh() for _ in range(3)] == [1, 2, 3]
    assert QuestionNumbers(tmp_path).fresh() == BLOCK + 1


def test_a_number_is_on_the_disk_before_it_is_used(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(durable, "reached", written.append)
    numbers = QuestionNumbers(tmp_path)
    found = [numbers.fresh() for _ in range(2 * BLOCK + 1)]
    assert found == list(range(1, 2 * BLOCK + 2))
    assert written.count("server.questions:after") == 3  # one write for a thousand


def test_a_site_that_has_heard_higher_numbers_is_asked_with_higher_ones(tmp_path):
    numbers = QuestionNumbers(tmp_path)
    numbers.note_answered("a", 10**9)
    first = numbers.fresh()
    assert [numbers.of("a", first), numbers.of("b", first)] == [10**9 + 1, 1]
    assert [numbers.of("a", numbers.fresh()) for _ in range(2)] == [10**9 + 2, 10**9 + 3]


@pytest.mark.parametrize("content", ["", "many", "{}", '"x"'])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "questions.json").write_text(content)
    with pytest.raises(FederationError, match=r"questions.json (is damaged|cannot be read)"):
        QuestionNumbers(tmp_path)


def test_numbers_go_on_above_although_the_server_lost_its_state(tiny):
    tiny.run(2)
    tiny.close()
    before = last_answered(tiny)
    with tiny.store("b") as store, store.database.writing("store.answered"):
        store.database.set("answered", b"5000000")  # b answered another server
    shutil.rmtree(tiny.state_dir)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 2)
    tiny.close()
    assert [set(outcomes(note).values()) for note in notes] == [{"answered"}] * 2
    after = last_answered(tiny)
    assert after["b"] > 5000000 > max(after[name] for name in "acd")
    assert all(after[name] > before[name] for name in tiny.names)


def test_a_claim_that_cannot_be_keeps_its_site_out(tiny):
    tiny.run(1)
    tiny.close()
    with tiny.store("b") as store, store.database.writing("store.answered"):
        store.database.set("answered", str(2**62 + 1).encode())
    with tiny.shared(tiny.grid()) as federation:
        assert len(federation.meeting.here) == 3
