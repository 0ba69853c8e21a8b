"""A site that misreports what it holds is found by the commit, and the others go on.

Before, this ended the run, and every run after it.
"""

import numpy as np
import pytest

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.holders import held_by_each
from fedcommons.federate.server.lifting import lift
from tests.federate.attacks.hostile_sites import fields_of, hostile, quarantined
from tests.federate.tiny import (
    BETA,
    P,
    answers_at,
    mean_estimate,
    outcomes,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")

LIE = {"coverage": 1.0}


def test_it_is_named_and_left_out_and_the_others_go_on(tiny):
    with tiny.shared(grid := hostile(tiny, "b", lambda m, r: fields_of(r, **LIE))) as federation:
        model, notes = train(federation, grid, 3)
        assert [outcomes(note)["b"] for note in notes] == ["quarantined"] * 3
        assert [sum(s["answered"] for s in note["sites"]) for note in notes] == [3] * 3
        assert "shares add up to 1, by the commit it is" in quarantined(federation)["b"]
        assert federation.commit.quarantined == (1,)
        assert np.abs(model).max() > 0


@pytest.mark.parametrize("code", ["equal-split", "reliability-split", "owner-corrected"])
def test_what_others_hold_of_it_still_counts_without_bias(tiny, code):
    """b's private examples, and those that nobody else got, are out; all others count once."""
    with tiny.shared(grid := hostile(tiny, "b", lambda m, r: fields_of(r, **LIE))) as federation:
        train(federation, grid, 2, code=code, straggler_prob=0.3)
        commit = federation.commit
        place, data = 1, tiny.data["b"]
        delivered = [r for s, r in commit.pairs if s == place]
        elsewhere = {
            row
            for row in range(data.n_examples)
            if data.shareable[row]
            and set(commit.draw.recipients(place, row // 2, row // 2 + 1)[0]) & set(delivered)
        }
        assert commit.n_examples == 4 + 5 + 7 + len(elsewhere)
        answers, answered = answers_at(federation, grid, BETA)
        assert answered.tolist() == [True, False, True, True]
        full = tiny.full_gradient({"b": set(range(6)) - elsewhere}, BETA).ravel()
        np.testing.assert_allclose(mean_estimate(answers, P), full, rtol=0, atol=1e-10)
        coverage, weight = held_by_each(commit.record)
        assert coverage.sum() == pytest.approx(commit.n_examples)
        if code != "owner-corrected":  # its shares may be negative
            assert weight.sum() == pytest.approx(commit.n_examples)


def test_it_stays_out_on_restart_and_comes_back_when_it_is_lifted(tiny):
    with tiny.shared(grid := hostile(tiny, "b", lambda m, r: fields_of(r, **LIE))) as federation:
        train(federation, grid, 1)
    tiny.close()
    with tiny.shared(grid := tiny.grid()) as federation:
        _, notes = train(federation, grid, 2)
        assert outcomes(notes[0])["b"] == "quarantined"
    tiny.close()
    with pytest.raises(FederationError, match=r"lift must name one site .* got 'c'.*b \("):
        lift(tiny.state_dir, "c")
    assert lift(tiny.state_dir, "b")[0].site == "b"
    with tiny.shared(grid := tiny.grid()) as federation:
        _, notes = train(federation, grid, 3)
        assert set(outcomes(notes[0]).values()) == {"answered"}
        answers, _ = answers_at(federation, grid, BETA)
        full = tiny.full_gradient({}, BETA).ravel()
        np.testing.assert_allclose(mean_estimate(answers, P), full, rtol=0, atol=1e-10)


def test_if_most_report_something_else_it_is_not_the_sites(tiny):
    grid = hostile(tiny, "b", lambda m, r: r)
    grid.tamper = lambda s, m, r: fields_of(r, **LIE) if s in "bcd" else r
    with (
        tiny.shared(grid) as federation,
        pytest.raises(FederationError, match="do not agree on who holds what"),
    ):
        train(federation, grid, 1)
