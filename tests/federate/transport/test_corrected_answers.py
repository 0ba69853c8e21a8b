"""Holders of absent owners' examples correct what is remembered of these: `correct = true`."""

import signal

import numpy as np
import pytest

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol import durable
from fedcommons.federate.server.settings import Settings
from fedcommons.stragglers import Bernoulli
from fedcommons.streams import stream
from fedcommons.tasks import softmax
from tests.federate.tiny import N_CLASSES, die_at, gradient, in_child, train
from tests.federate.transport.test_fitted_answers import DEADLINE, PACE, timed  # noqa: F401
from tests.reference.corrected_federation import Site

P = np.array([0.2, 0.6, 0.5, 0.4])
ROUNDS, SEED = 14, 4


def settings(**others):
    return {
        "estimator": "latest",
        "work": "fits",
        "correct": True,
        "deadline": DEADLINE,
        "stragglers": Bernoulli(P),
        "seed": SEED,
        "learning_rate": 0.3,
        "answer_bound": 0,
        **others,
    }


def expected(tiny, commit, warm, rounds=ROUNDS, rate=0.3):
    """The parameters by a plain loop, and how large the corrections were beside the estimates."""
    placement, x, y = tiny.placement(commit)
    task = softmax.SoftmaxRegression(x, y, x, y, N_CLASSES)
    there = Bernoulli(P).answered(rounds, 4, rng=stream(SEED, "stragglers", 0))
    inputs = softmax.with_bias(x)

    def one(j, params):
        beta = params.reshape(inputs.shape[1], -1)
        some = slice(j, j + 1)
        return softmax.weighted_gradient(beta, inputs[some], y[some], np.ones(1)).ravel()

    params, sites = task.initial(), []
    for i, member in enumerate(commit.members):
        held = placement.held_by(i)
        mine = {s: held[placement.owner[held] == s] for s in range(4)}
        own = mine.pop(i)
        received = {s: some.tolist() for s, some in mine.items() if len(some)}
        pace = PACE[member.site]
        sites.append(Site(own.tolist(), received, pace, DEADLINE, len(params), one))
    h, anchors, sizes = [np.zeros(len(params))] * 4, {}, []
    if warm:
        for i, site in enumerate(sites):
            site.models[params.tobytes()] = params
            site.cut(0)
            site.work_on(0, params)
            site.cut(0)
            for k in range(site.number):
                site.work_on(k, params)
            h[i], anchors[i] = sum(site.r), {params.tobytes(): len(site.own)}
    for t in range(rounds):
        here = np.flatnonzero(there[t])
        absent = {i: anchors[i] for i in range(4) if i in anchors and not there[t, i]}
        counts = {i: sum(len(sites[k].received.get(i, ())) for k in here) for i in absent}
        total = np.zeros(len(params))
        for k in here:
            h[k], anchors[k], drift = sites[k].answer(params, absent, counts, t + 1)
            total += drift
        if len(here):
            sizes.append(np.linalg.norm(total) / np.linalg.norm(sum(h)))
            params = params - rate / len(y) * (sum(h) + total)
    return params, np.array(sizes)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_the_model_is_that_of_a_plain_loop(tiny, timed, warm):  # noqa: F811
    slow, _ = timed
    for rounds in (6, ROUNDS):  # restarted in between
        grid = tiny.grid(train=slow)
        with tiny.shared(grid) as federation:
            reached, _ = train(federation, grid, rounds, **settings(warm=warm))
            commit = federation.commit
        tiny.close()
    params, sizes = expected(tiny, commit, warm)
    assert (sizes > 0.01).sum() > 5
    np.testing.assert_allclose(reached.ravel(), params, rtol=1e-12, atol=1e-12)
