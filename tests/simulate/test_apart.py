"""Estimators that need all answers of a round: the batched engine does what the plain loops do."""

import numpy as np
import pytest

from fedcommons.datasets import Dataset
from fedcommons.simulate import batched, plain_engine
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.runner import _softmax_task
from tests.reference import training

CURVES = (
    Curve(
        estimator="trimmed_mean",
        partition="single-class",
        proportion=0.4,
        copies=2,
        straggler_prob=0.3,
        learning_rate=0.5,
    ),
    Curve(
        estimator="trimmed_mean",
        partition="iid",
        proportion=0.4,
        copies=1,
        straggler_prob=0.5,
        learning_rate=0.5,
    ),
    Curve(
        estimator="blended",
        partition="single-class",
        proportion=0.4,
        copies=2,
        straggler_prob=0.5,
        learning_rate=0.5,
    ),
    Curve(estimator="blended", partition="iid", warm=True, straggler_prob=0.6, learning_rate=0.5),
)


def dataset():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 30)
    x = rng.normal(size=(150, 6)) + 2 * np.eye(5, 6)[y]
    return Dataset("blobs", x, y, x[::3], y[::3])


def test_the_engines_agree():
    settings = {"n_clients": 5, "class_size": 6, "n_rounds": 8, "seed": 3}
    assert not any(curve.in_example_space for curve in CURVES)
    plain = plain_engine.simulate_run(dataset(), _softmax_task, CURVES, **settings, run=2)
    (fast,) = batched.simulate_block(dataset(), CURVES, **settings, runs=[2])
    assert fast.second_moment == pytest.approx(plain.second_moment, rel=1e-4)
    assert (fast.correct == plain.correct).mean() > 0.9
    for k, curve in enumerate(CURVES):
        if curve.estimator == "blended":
            loop = training.train(dataset(), curve, **settings, run=2)
            assert plain.second_moment[k] == pytest.approx(loop["second_moment"], rel=1e-9)
