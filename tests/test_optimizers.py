"""Server optimizers: against the papers' formulas as a plain loop, and in every engine alike."""

import math

import numpy as np
import pytest

from fedcommons import training
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS
from fedcommons.methods import Method
from fedcommons.optimizers import OPTIMIZERS, Constants
from fedcommons.simulate import batched, draws
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.runner import _softmax_task
from tests.odd_parts import ODD_OPTIMIZERS

ROUNDS, P = 7, 3
CONSTANTS = Constants(0.8, 0.95, 0.01)
ALL = [*OPTIMIZERS, *ODD_OPTIMIZERS]


def by_hand(name: str, gradients: np.ndarray) -> list[list[float]]:
    """Each parameter by itself, number by number: Algorithm 2 of FedOpt, and Polyak's momentum."""
    beta1, beta2, tau = CONSTANTS.momentum, CONSTANTS.second_momentum, CONSTANTS.adaptivity
    directions = [[0.0] * P for _ in range(ROUNDS)]
    for k in range(P):
        m = v = 0.0
        for t in range(ROUNDS):
            g = float(gradients[t, k])
            if name == "sgd":
                directions[t][k] = g
                continue
            if name == "momentum":
                m = beta1 * m + g
                directions[t][k] = m
                continue
            m = beta1 * m + (1 - beta1) * g
            if name == "adam":
                v = beta2 * v + (1 - beta2) * g * g
            else:
                difference = v - g * g
                sign = 0.0 if difference == 0 else math.copysign(1.0, difference)
                v = v - (1 - beta2) * g * g * sign
            directions[t][k] = m / (math.sqrt(v) + tau)
    return directions


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_directions_are_those_of_the_papers(name):
    gradients = np.random.default_rng(0).normal(size=(ROUNDS, P))
    gradients[3] = 0
    state, found = OPTIMIZERS[name].start((P,)), []
    for g in gradients:
        direction, state = OPTIMIZERS[name].step(state, g, CONSTANTS)
        found.append(direction)
    assert np.allclose(found, by_hand(name, gradients), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ALL)
def test_models_side_by_side_are_as_each_alone(name):
    gradients = np.random.default_rng(1).normal(size=(ROUNDS, 4, P))
    optimizer = OPTIMIZERS[name]
    momenta = np.array([[0.1], [0.5], [0.9], [0.99]])
    together, alone = optimizer.start((4, P)), [optimizer.start((P,)) for _ in range(4)]
    for stacked in gradients:
        found, together = optimizer.step(together, stacked, Constants(momenta))
        for k in range(4):
            one, alone[k] = optimizer.step(alone[k], stacked[k], Constants(momenta[k, 0]))
            assert np.array_equal(found[k], one)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("estimator", ["coded_sum", "memory"])
def test_engines_take_the_same_steps(blobs, name, estimator):
    curve = Curve(
        "dirichlet", 0.3, 0.4, 0.5, 2,
        estimator=estimator, learning_rate=0.3, server_optimizer=name,
    )  # fmt: skip
    sizes = dict(n_clients=4, class_size=7, seed=3)
    [fast] = batched.simulate_block(blobs, [curve], **sizes, n_rounds=ROUNDS, runs=[0])
    data = draws.training_set(blobs, 7, seed=3, run=0)
    task = _softmax_task(blobs, data)
    placement = draws.share(curve, data.labels, 4, seed=3, run=0).placement
    rounds = list(
        training.train(
            task,
            draws.shares(curve, placement, data.products),
            draws.answered(curve, ROUNDS, 4, seed=3, run=0),
            curve.straggler_prob,
            estimator=ESTIMATORS[estimator],
            learning_rate=0.3,
            decay=curve.decay,
            optimizer=OPTIMIZERS[name],
            constants=curve.constants,
        )
    )
    slow = [this.estimate @ this.estimate for this in rounds]
    assert np.allclose(fast.second_moment[0], slow, rtol=1e-3)
    correct = [task.count_correct(this.params) for this in rounds]
    assert np.abs(fast.correct[0, 1:] - correct).max() <= 1


@pytest.mark.parametrize("algorithm", ["coded_gd", "coded_fedavg", "fedavg", "scaffold", "hybrid"])
def test_it_is_a_part_of_every_algorithm(blobs, algorithm):
    sizes = dict(n_clients=4, class_size=7, seed=3, n_rounds=4, runs=[0])
    curves = [
        Curve("iid", 0.0, 0.3, algorithm=algorithm, server_optimizer=name) for name in OPTIMIZERS
    ]
    [found] = batched.simulate_block(blobs, curves, **sizes)
    # They start alike and part ways.
    assert np.allclose(found.second_moment[:, 0], found.second_moment[0, 0], rtol=1e-5)
    assert len({round(float(m), 9) for m in found.second_moment[:, -1]}) == len(curves)


def test_a_curve_with_another_optimizer_is_the_same_in_any_company(blobs):
    sizes = dict(n_clients=4, class_size=7, seed=3, n_rounds=4, runs=[0])
    one = Curve("iid", 0.0, 0.3, server_optimizer="adam", server_momentum=0.5)
    others = [
        Curve("iid", 0.0, 0.3, server_optimizer=name, server_momentum=0.7)
        for name in ("adam", "momentum", "yogi")
    ]
    [alone] = batched.simulate_block(blobs, [one], **sizes)
    [in_company] = batched.simulate_block(blobs, [*others, one], **sizes)
    assert np.allclose(alone.second_moment[0], in_company.second_moment[3], rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(server_optimizer="lamb"), "server_optimizer must be one of sgd, momentum, adam"),
        (dict(server_momentum=0.5), "server_momentum must go with a server optimizer with momen"),
        (dict(server_optimizer="momentum", adaptivity=1.0), "adaptivity must go with an adaptive"),
        (dict(server_optimizer="adam", adaptivity=0.0), "adaptivity must be"),
        (dict(server_optimizer="adam", server_momentum=1.0), "server_momentum must be in"),
    ],
)
def test_what_has_no_use_or_cannot_be_is_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        Curve("iid", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(code="fountain"), "code must be one of equal-split"),
        (dict(estimator="mean"), "estimator must be one of coded_sum"),
        (dict(server_optimizer="lamb"), "server_optimizer must be one of sgd"),
        (dict(warm=True), "warm must go with an estimator that remembers, got coded_sum"),
        (dict(warm=1), "warm must be"),
        (dict(local_steps=0), "local_steps must be an integer >= 1, got 0"),
        (dict(batch_size=0), "batch_size must be an integer >= 1, got 0"),
        (dict(code="owner-corrected", local_steps=2), "local_steps must be 1 for the code owner"),
    ],
)
def test_a_method_has_one_set_of_rules(options, message):
    with pytest.raises(ArgumentError, match=message):
        Method(**options)
