"""Whether all sites and the server agree on who holds what."""

import numpy as np
import pytest

from tests.federate.tiny import (
    BETA,
    P,
    Tiny,
    answers_at,
    mean_estimate,
)


def check_agreement(tiny: Tiny, federation, grid, gone: dict[str, set[int]]) -> None:
    """Shares add up to M, and the estimate is unbiased for the sum over what is left."""
    here = [m.site for i, m in enumerate(federation.commit.members) if federation.commit.present[i]]
    assert federation.commit.n_examples == sum(
        tiny.data[site].n_examples - len(gone.get(site, set())) for site in here
    )
    everything = {site: set(range(tiny.data[site].n_examples)) for site in set(tiny.names)}
    left = {site: rows for site, rows in everything.items() if site not in here}
    answers, answered = answers_at(federation, grid, BETA)  # raises if coverage is not M
    assert answered.tolist() == list(federation.commit.present)
    full = tiny.full_gradient({**left, **gone}, BETA).ravel()
    np.testing.assert_allclose(mean_estimate(answers, P), full, rtol=0, atol=1e-10)


def check_unbiased(tiny: Tiny, federation, grid) -> None:
    """Everybody answers, the shares add up to M, and the estimate is unbiased."""
    answers, answered = answers_at(federation, grid, BETA)
    assert answered.all()
    full = tiny.full_gradient({}, BETA).ravel()
    assert mean_estimate(answers, P) == pytest.approx(full, rel=0, abs=1e-10)
