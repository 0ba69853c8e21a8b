"""The embedded federation and the simulator reach the same model from the same draws."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedcommons import coding, estimators, training
from fedcommons.optimizers import OPTIMIZERS
from fedcommons.simulate import local_steps, models
from fedcommons.simulate.local_steps import HeldExamples
from fedcommons.stragglers import Bernoulli
from fedcommons.streams import stream
from fedcommons.tasks import softmax
from fedcommons.tasks.cross_entropy import CrossEntropy
from tests.federate.tiny import N_CLASSES, train, trained_model

P = (0.3, 0.5, 0.6, 0.2)
ROUNDS, SEED = 12, 11


@pytest.mark.parametrize("code", coding.CODES)
@pytest.mark.parametrize(
    ("estimator", "warm"),
    [("coded_sum", False), ("memory", False), ("memory", True), ("blended", False)],
)
def test_federation_and_simulator_reach_the_same_model(tiny, code, estimator, warm):
    model = Bernoulli(P)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        reached, _ = train(
            federation,
            grid,
            ROUNDS,
            code=code,
            estimator=estimator,
            warm=warm,
            straggler_prob=P,
            stragglers=model,
            seed=SEED,
            learning_rate=0.8,
            decay=0.95,
        )
        commit = federation.commit

    placement, x, y = tiny.placement(commit)
    assert placement.n_examples == commit.n_examples == 22
    owner_share = None
    if code == "owner-corrected":
        products = softmax.gradient_products(x, softmax.initial_residuals(y, N_CLASSES))
        owner_share = coding.owner_share_from_products(placement, products)
    shares = coding.by_name(code, placement, straggler_prob=P, owner_share=owner_share)
    answered = model.answered(ROUNDS, 4, rng=stream(SEED, "stragglers", 0))
    assert answered.any(axis=1).all()  # the federation leaves the model where nobody answers
    assert not answered.all()
    task = softmax.SoftmaxRegression(x, y, x, y, N_CLASSES)
    rounds = training.train(
        task,
        shares,
        answered,
        P,
        estimator=estimators.ESTIMATORS[estimator],
        warm=warm,
        learning_rate=0.8,
        decay=0.95,
    )
    np.testing.assert_allclose(reached.ravel(), list(rounds)[-1].params, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("optimizer", "estimator"),
    [
        ("momentum", "coded_sum"),
        ("adam", "memory"),
        ("yogi", "coded_sum"),
        ("tests.odd_parts:signed", "tests.odd_parts:damped"),
    ],
)
def test_server_optimizers_and_other_peoples_parts_are_those_of_the_simulator(
    tiny, optimizer, estimator
):
    stragglers = Bernoulli(P)
    settings = {"estimator": estimator, "server_optimizer": optimizer, "straggler_prob": P}
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        reached, _ = train(
            federation,
            grid,
            ROUNDS,
            stragglers=stragglers,
            seed=SEED,
            learning_rate=0.1,
            **settings,
        )
        placement, x, y = tiny.placement(federation.commit)
    rounds = training.train(
        softmax.SoftmaxRegression(x, y, x, y, N_CLASSES),
        coding.equal_split(placement),
        stragglers.answered(ROUNDS, 4, rng=stream(SEED, "stragglers", 0)),
        P,
        estimator=estimators.ESTIMATORS[estimator],
        learning_rate=0.1,
        optimizer=OPTIMIZERS[optimizer],
    )
    np.testing.assert_allclose(reached.ravel(), list(rounds)[-1].params, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("code", ["equal-split", "reliability-split"])
@pytest.mark.parametrize(
    ("estimator", "warm"), [("coded_sum", False), ("memory", False), ("memory", True)]
)
def test_several_local_steps_are_those_of_the_simulator(tiny, code, estimator, warm):
    rate, n_steps, stragglers = 0.3, 4, Bernoulli(P)
    grid = tiny.grid(train=trained_model(rate))
    with tiny.shared(grid) as federation:
        settings = {"code": code, "estimator": estimator, "warm": warm, "local_steps": n_steps}
        settings |= {"straggler_prob": P, "stragglers": stragglers, "seed": SEED}
        reached, _ = train(federation, grid, ROUNDS, learning_rate=1.0, decay=1.0, **settings)
        placement, x, y = tiny.placement(federation.commit)

    shares = coding.by_name(code, placement, straggler_prob=P, owner_share=None)
    answered = stragglers.answered(ROUNDS, 4, rng=stream(SEED, "stragglers", 0))
    weights = estimators.ESTIMATORS[estimator].weigh(
        estimators.Arrivals.now_or_never(answered), np.array(P)
    )
    softmax_model = models.load("softmax", x.shape[1:], CrossEntropy(N_CLASSES))
    params = np.zeros(reached.size, np.float32)
    model = models.on_examples(
        softmax_model, models.Examples(x[None].astype(np.float32), y[None], x, y), params[None], 0
    )
    rows = [csr_array(shares[[i]]) for i in range(4)]
    weighted = [coding.loss_weights(row.data) for row in rows]
    clients = [
        HeldExamples(row.indices.astype(np.int64), weight.astype(np.float32))
        for row, (weight, _) in zip(rows, weighted, strict=True)
    ]

    def answers(params):
        found = np.zeros((4, params.size), np.float32)
        start, rates = np.tile(params, (4, 1)), np.full(4, rate, np.float32)
        for at, total in local_steps.totals(
            model, np.zeros(4, int), clients, start, rates, n_steps=n_steps
        ):
            found[at] = total * [[weighted[i][1]] for i in at]
        return found

    memory = answers(params) if warm else np.zeros((4, params.size))
    for t in range(ROUNDS):
        fresh = answers(params)
        estimate = weights.fresh[t] @ fresh + weights.remembered[t] @ memory
        memory = np.where(answered[t][:, None], fresh, memory)
        params = (params - rate / len(y) * estimate).astype(np.float32)
    assert np.abs(params).max() > 0.1
    np.testing.assert_allclose(reached.ravel(), params, rtol=1e-4, atol=1e-6)
