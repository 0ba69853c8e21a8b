"""Codes that need to know something first: each site's p, or how much each owner keeps."""

import numpy as np
import pytest

from fedcommons import coding
from fedcommons.errors import ArgumentError
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.transport import messages
from fedcommons.tasks import softmax
from tests.federate.tiny import (
    Tampered,
    trace,
    train,
)

pytestmark = pytest.mark.usefixtures("impatient")


def test_owner_shares_are_those_of_the_whole_placement(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 0, code="owner-corrected")
        commit = federation.commit
    placement, x, y = tiny.placement(commit)
    products = softmax.gradient_products(x, softmax.initial_residuals(y, 3))
    expected = coding.owner_share_from_products(placement, products)
    np.testing.assert_allclose(commit.owner_share, expected, rtol=1e-10)


def test_an_owner_that_is_not_there_splits_equally(tiny):
    with tiny.shared() as federation:
        del federation
    grid = tiny.grid(without="c")
    with tiny.shared(grid) as federation:
        train(federation, grid, 0, code="owner-corrected")
        assert federation.commit.owner_share[2] == 1 / 3
        assert federation.commit.owner_share[0] != 1 / 3


@pytest.mark.parametrize("w", [float("nan"), float("inf"), 1e7, "1", [1.0], None])
def test_an_owner_share_that_is_no_number_is_not_used(tiny, w):
    grid = tiny.grid(Tampered)

    def tamper(site, _message, reply):
        fields = reply.content[messages.FIELDS]
        if site == "b" and "owner-share" in fields:
            if w is None:
                del fields["owner-share"]
            else:
                fields["owner-share"] = w
        return reply

    grid.tamper = tamper
    with tiny.shared(grid) as federation:
        _, notes = train(federation, grid, 1, code="owner-corrected")
        assert federation.commit.owner_share[1] == 1 / 3
    assert all(site["answered"] for site in notes[0]["sites"])


def test_owner_corrected_is_refused_with_several_steps():
    with pytest.raises(ArgumentError, match="negative weights are unsafe with several steps"):
        Settings.of(code="owner-corrected", local_steps=2)


def test_the_reliability_split_takes_known_probabilities_also_later(tiny):
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        train(federation, grid, 1, code="reliability-split")
        assert federation.commit.straggler_prob == (0.05,) * 4
        serial = federation.commit.serial
        train(federation, grid, 2, code="reliability-split")  # goes on: the same code
        assert federation.commit.serial == serial
        p = (0.1, 0.2, 0.3, 0.4)
        train(federation, grid, 1, code="reliability-split", straggler_prob=p)
        assert federation.commit.straggler_prob == p


def test_a_new_training_splits_by_what_is_known_of_the_sites_by_then(tiny):
    grid = tiny.grid()
    absences = trace("abc", "abc", "abc", "abcd")
    settings = {"code": "reliability-split", "stragglers": absences}
    with tiny.shared(grid) as federation:
        train(federation, grid, 3, **settings)
        assert federation.commit.straggler_prob == (0.05,) * 4
        train(federation, grid, 3, estimator="memory", **settings)
        assert federation.commit.straggler_prob == (0.0125, 0.0125, 0.0125, 0.7625)
        train(federation, grid, 4, **settings)  # the first goes on as it was
        assert federation.commit.straggler_prob == (0.05,) * 4
