"""A site that withdraws one example more in every reply keeps nobody else from training.

Before, 30 rounds made 121 commits and the model never moved.
"""

import numpy as np
import pytest

from fedcommons.federate.server import offences
from fedcommons.federate.server.lifting import lift
from fedcommons.federate.transport import messages
from tests.federate.server.agreement import check_agreement
from tests.federate.tiny import BETA, Tampered, Tiny, answers_at, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")

ROUNDS = 30


@pytest.fixture
def flooded(tmp_path):
    """b has examples enough to withdraw one in every reply."""
    found = Tiny(tmp_path, sizes=(4, 200, 5, 7))
    yield found
    found.close()


def flooding(tiny: Tiny) -> Tampered:
    grid, rows = tiny.grid(Tampered), iter(range(200))

    def tamper(site, _message, reply):
        if site == "a":  # b answers after it
            tiny.withdraw("b", next(rows))
        return reply

    grid.tamper = tamper
    return grid


def test_the_others_train_in_every_round(flooded):
    grid = flooding(flooded)
    with flooded.shared(grid) as federation:
        before = federation.commit
        model, notes = train(federation, grid, ROUNDS)
        commit = federation.commit
        n_commits = len(list((federation.state.folder / "commits").iterdir()))
        assert [sum(s["answered"] for s in note["sites"]) for note in notes] == [3] * ROUNDS
        assert np.abs(model).max() > 0.1
        assert n_commits <= 1 + offences.MOST_WITHDRAWALS + 1 + ROUNDS // 10
        assert commit.set_aside == (1,)
        assert "withdrew examples 4 times" in federation.quarantine.listed()[0]["why"]
        # Nobody trains on any of its examples, so every withdrawal is honoured.
        assert commit.n_examples == 4 + 5 + 7
        assert len(before.withdrawn[1]) == 0 < len(commit.withdrawn[1])
        gone = {"b": set(range(200))}
        grid.tamper = lambda site, message, reply: reply
        check_answers_of_all_but_b(flooded, federation, grid, gone)


def check_answers_of_all_but_b(tiny, federation, grid, gone):
    """The others' answers are of their own examples, and of each other's."""
    answers, answered = answers_at(federation, grid, BETA)
    assert answered.tolist() == [True, False, True, True]
    np.testing.assert_allclose(
        answers.sum(axis=0), tiny.full_gradient(gone, BETA).ravel(), rtol=0, atol=1e-10
    )


def test_it_stays_out_after_a_restart_until_it_is_lifted(flooded):
    with flooded.shared(grid := flooding(flooded)) as federation:
        train(federation, grid, 2)
    flooded.close()
    with flooded.shared(grid := flooded.grid()) as federation:
        _, notes = train(federation, grid, 4)
        assert {outcomes(note)["b"] for note in notes} == {"quarantined"}
    flooded.close()
    lift(flooded.state_dir, "b")
    with flooded.shared(grid := flooded.grid()) as federation:
        _, notes = train(federation, grid, 5)
        assert outcomes(notes[0])["b"] == "answered"
        gone = {"b": {2 * number for number in federation.commit.withdrawn[1]}}
        n_private = federation.commit.withdrawn_private[1]
        gone["b"] |= {2 * k + 1 for k in range(n_private)}
        check_agreement(flooded, federation, grid, gone)


def test_a_few_withdrawals_are_nobodys_offence(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        for t in range(3):
            tiny.withdraw("b", t)
            _, notes = train(federation, grid, t + 1)
            assert set(outcomes(notes[0]).values()) == {"answered"}
        check_agreement(tiny, federation, grid, {"b": {0, 1, 2}})
        assert not federation.quarantine.entries


def test_what_a_quarantined_site_withdraws_is_deleted_by_those_who_hold_it(tiny):
    """It is asked for nothing else, but its withdrawals are heard."""
    grid = tiny.grid(Tampered)
    grid.tamper = lambda site, m, reply: (
        spoilt(reply) if site == "b" and "answer" in reply.content else reply
    )
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 4)
        assert outcomes(notes[-1])["b"] == "quarantined"
        held = [m.site for i, m in enumerate(federation.commit.members) if i != 1]
        tiny.withdraw("b", 0, 2, 4)
        train(federation, grid, 7)
        assert federation.commit.withdrawn[1] == (0, 1, 2)
        assert federation.commit.quarantined == (1,)
        for site in held:
            with tiny.store(site) as store:
                counts = dict(store.received.counts())
                assert counts.get(federation.commit.members[1].identity, 0) == 0


def spoilt(reply):
    reply.content[messages.FIELDS]["coverage"] = "all"
    return reply
