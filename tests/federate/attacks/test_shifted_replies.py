"""A SuperNode that hands in each reply with the next message: none counts for another question.

Flower's SuperNode can come to do so after a SuperLink was restarted.
"""

import numpy as np
import pytest
from flwr.app import Message

from fedcommons.federate.server.answers import OTHER_QUESTION
from tests.federate.tiny import Tampered, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")


class HeldBack(Tampered):
    """The replies of site b come one message later than they should, of whatever kind."""

    def __init__(self, *args):
        super().__init__(*args)
        self.held: list[Message] = []

    def _handle(self, message):
        reply = super()._handle(message)
        site = self.contexts[message.metadata.dst_node_id].node_config["site"]
        if site != "b" or message.metadata.message_type == "query.offer" or reply.has_error():
            return reply
        self.held.append(reply)
        earlier = self.held.pop(0) if len(self.held) > 1 else None
        return earlier and Message(earlier.content, reply_to=message)


@pytest.mark.parametrize("settings", [{}, {"warm": True, "estimator": "memory"}], ids=str)
def test_a_reply_that_was_held_back_counts_for_no_other_question(tiny, settings):
    """Also where round, commit and site are the same: warm memory asks as round 0, twice here."""
    tiny.run(1, **settings)
    tiny.close()
    grid = tiny.grid(HeldBack)
    with tiny.shared(grid) as federation:
        train(federation, grid, 1, **settings)  # asks all, although no round is left
        _, notes = train(federation, grid, 4, **settings)
    assert {outcomes(note)["b"] for note in notes} == {OTHER_QUESTION}
    assert all(what == "answered" for n in notes for s, what in outcomes(n).items() if s != "b")
    assert federation.quarantine.listed() == []  # it is not the site's fault


def test_the_model_is_that_of_a_site_that_was_away(tiny, tmp_path_factory):
    from tests.federate.tiny import Tiny

    tiny.run(1)
    tiny.close()
    held = tiny.run(3, grid=tiny.grid(HeldBack))
    other = Tiny(tmp_path_factory.mktemp("other"))
    other.run(1)
    other.close()
    away = other.run(3, grid=other.grid(without="b"))
    other.close()
    np.testing.assert_allclose(held, away, rtol=1e-12)
