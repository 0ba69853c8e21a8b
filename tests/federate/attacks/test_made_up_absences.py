"""A server that makes up who is absent, and at which models, to read examples from corrections."""

import numpy as np
import pytest

from fedcommons.federate.protocol.absences import Absences
from fedcommons.federate.protocol.model_schema import digest_of
from fedcommons.federate.site.absent_owners import correctable
from fedcommons.federate.site.policy import Policy
from fedcommons.tasks import softmax
from tests.federate.attacks.server_asks import (
    N_CLASSES,
    N_FEATURES,
    RATE,
    ZERO,
    Asking,
    clinic_data,
    found_among,
    rows_in,
)
from tests.federate.conftest import epoch_of, exchange

LEAST = 8


@pytest.fixture
def holder(make_site):
    """Site a, which holds some 27 of the 40 examples that b and c share, and 4 of d's 6."""

    def made(least):
        policy = Policy(min_examples=least, min_change=1, unconfirmed_answers=1000)
        sizes = {"a": 160, "b": 160, "c": 160, "d": 24}
        sites = [
            make_site(name, clinic_data(ord(name), n), None, policy) for name, n in sizes.items()
        ]
        commit = exchange(sites, epoch_of(sites, copies=2))
        for site in sites:
            site.apply_commit(commit.record)
        return sites[0], commit

    return made


def correction(asking, model, anchors, *, asked=(0,)):
    """What the site makes of these absences at a model."""
    absences = Absences(asked, anchors, [])
    about = {"work": "chunk", "seconds": 1e-9, "training": "t"}
    reply = asking.answer(model, **about, **absences.fields())
    return None if reply.correction is None else reply.correction["beta"].ravel()


def row_gradients(site, commit, owner, model):
    """The gradient of each row that the site holds of an owner: (rows, P)."""
    x, y = site.received_examples(commit, owner)
    x = softmax.with_bias(x)
    each = [
        softmax.weighted_gradient(model["beta"], x[[j]], y[[j]], np.ones(1)) for j in range(len(y))
    ]
    return RATE * np.array(each).reshape(len(y), -1)


def test_whatever_it_says_corrections_are_of_whole_sets_of_many(holder):
    """All that comes lies in the span of sums over whole sets, and no single row is in that."""
    site, commit = holder(LEAST)
    rng, asking = np.random.default_rng(7), Asking(site, commit)
    models = [{"beta": rng.normal(size=(N_FEATURES + 1, N_CLASSES))} for _ in range(3)]
    names = [digest_of(model).hex() for model in models]
    for model in models:
        correction(asking, model, {})
    found = []
    for _ in range(120):
        anchors = {
            int(owner): {
                x: float(rng.integers(1, 50)) for x in rng.permutation([*names, "", "f" * 64])[:3]
            }
            for owner in rng.permutation([1, 2, 3])[: rng.integers(1, 4)]
        }
        asked = rng.permutation(4)[: rng.integers(0, 4)].tolist()
        one = correction(asking, models[rng.integers(3)], anchors, asked=asked)
        found += [] if one is None else [one]
    found = np.array(found)
    rows = {i: [row_gradients(site, commit, i, model) for model in models] for i in (1, 2, 3)}
    assert min(len(of[0]) for i, of in rows.items() if i < 3) >= LEAST > len(rows[3][0]) > 0
    whole = np.array([of.sum(axis=0) for i in (1, 2) for of in rows[i]])
    basis = np.linalg.svd(whole, full_matrices=False)[2]

    def beyond(vectors):
        left = vectors - vectors @ basis.T @ basis
        return np.linalg.norm(left, axis=1) / np.linalg.norm(vectors, axis=1)

    moved = found[np.linalg.norm(found, axis=1) > 1e-6]
    assert len(moved) > 60
    assert np.linalg.matrix_rank(moved, tol=1e-6) == len(whole) == 6
    assert beyond(moved).max() < 1e-8
    singles = np.concatenate([one for of in rows.values() for one in of])
    assert beyond(singles).min() > 0.05


def test_an_owner_of_few_copies_is_not_corrected(holder):
    site, commit = holder(LEAST)
    asking = Asking(site, commit)
    assert correction(asking, ZERO, {3: {"": 24.0}}) is None
    assert correction(asking, ZERO, {1: {"": 160.0}, 3: {"": 24.0}}) is not None


def test_nor_one_of_which_little_is_beside_what_the_site_holds(holder):
    """What others hold and it does not, and what is private, would be the difference."""
    site, commit = holder(LEAST)
    held = site.holdings(commit)
    n = {i: len(numbers) for i, numbers in held.senders}
    assert set(correctable(commit, 0, held, LEAST)) == {1, 2}
    beside = {i: 40 - n[i] for i in (1, 2)}
    assert all(LEAST < few < n[i] for i, few in beside.items())
    most = max(beside.values())
    for least in (most, most + 1):
        assert set(correctable(commit, 0, held, least)) == {i for i in (1, 2) if beside[i] >= least}


def test_without_a_minimum_an_example_is_read(holder):
    """Why there is a minimum: at "never computed" a correction is the gradients' sum itself."""
    site, commit = holder(1)
    asking = Asking(site, commit)
    beta = {"beta": np.random.default_rng(0).normal(size=(N_FEATURES + 1, N_CLASSES))}
    x, _ = site.received_examples(commit, 3)
    found = correction(asking, beta, {3: {"": float(len(x))}})
    assert np.allclose(found, row_gradients(site, commit, 3, beta).sum(axis=0))
    one = row_gradients(site, commit, 3, beta)[0].reshape(N_FEATURES + 1, N_CLASSES)
    assert found_among(x[:1], rows_in(one)) == 1  # as of a set of one
