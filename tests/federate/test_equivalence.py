"""The embedded federation and the simulator reach the same model from the same draws."""

import numpy as np
import pytest

from fedcommons import coding, estimators
from fedcommons.simulate import primal
from fedcommons.stragglers import Bernoulli
from fedcommons.streams import stream
from fedcommons.tasks import softmax
from tests.federate.tiny import N_CLASSES, Tiny, train

P = (0.3, 0.5, 0.6, 0.2)
ROUNDS, SEED = 12, 11


@pytest.fixture
def tiny(tmp_path):
    found = Tiny(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("code", coding.CODES)
@pytest.mark.parametrize(
    ("estimator", "warm"), [("coded_sum", False), ("memory", False), ("memory", True)]
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
    rounds = primal.train(
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
