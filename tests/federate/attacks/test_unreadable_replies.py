"""A site whose answers can never count is left out after the third."""

import numpy as np
import pytest
from flwr.app import ArrayRecord

from tests.federate.attacks.hostile_sites import fields_of, hostile, quarantined, scaled
from tests.federate.tiny import outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")


def unnamed(_message, reply):
    reply.content["answer"] = ArrayRecord({})
    return reply


UNREADABLE = {
    "no arrays": unnamed,
    "coverage in words": lambda m, r: fields_of(r, coverage="all"),
    "another commit": lambda m, r: fields_of(r, digest=b"0" * 32),
    "another round": lambda m, r: fields_of(r, round=7),
    "not a number": lambda m, r: scaled(r, np.nan),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_the_third_in_a_row_is_the_last(tiny, kind):
    with tiny.shared(grid := hostile(tiny, "b", UNREADABLE[kind])) as federation:
        _, notes = train(federation, grid, 4)
        said = [outcomes(note)["b"] for note in notes]
        assert "quarantined" not in said[:2]
        assert said[2:] == ["quarantined"] * 2
        assert "could not count 3 times" in quarantined(federation)["b"]
        assert sum(s["answered"] for s in notes[2]["sites"]) == 3


def test_now_and_then_is_no_offence(tiny):
    calls = iter(range(100))
    tamper = lambda m, r: scaled(r, np.nan) if next(calls) % 3 else r  # noqa: E731
    with tiny.shared(grid := hostile(tiny, "b", tamper)) as federation:
        train(federation, grid, 9)
        assert not federation.quarantine.entries


def test_where_most_fail_nobody_is_left_out(tiny):
    """It is the model, or the app, then."""
    grid = hostile(tiny, "b", lambda m, r: r)
    grid.tamper = lambda s, m, r: scaled(r, np.nan) if s in "bc" else r
    with tiny.shared(grid) as federation:
        train(federation, grid, 5)
        assert not federation.quarantine.entries
