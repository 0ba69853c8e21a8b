"""Whoever dies while a site is quarantined, or while gradients are compared: it is gone on with."""

import signal

import pytest

from fedcommons.federate.protocol import durable
from tests.federate.attacks.hostile_sites import fields_of, hostile
from tests.federate.tiny import Tiny, die_at, in_child, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")

POINTS = ("server.quarantine", "store.audited")


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("point", POINTS)
def test_it_is_gone_on_with(tmp_path, point, side):
    def run(tiny: Tiny) -> list[dict]:
        grid = hostile(tiny, "b", lambda m, r: fields_of(r, coverage=1.0))
        with tiny.shared(grid) as federation:
            _, notes = train(federation, grid, 2, audit=True)
            assert federation.commit.quarantined == (1,)
            assert [entry.site for entry in federation.quarantine.entries.values()] == ["b"]
        tiny.close()
        return notes

    def main() -> None:
        durable.reached = die_at(f"{point}:{side}")
        run(Tiny(tmp_path))

    with Tiny(tmp_path).shared():  # the exchange is over
        pass
    assert in_child(main) == -signal.SIGKILL
    notes = run(Tiny(tmp_path))
    assert [outcomes(note)["b"] for note in notes] == ["quarantined"] * len(notes)
    assert len(notes) == 2
