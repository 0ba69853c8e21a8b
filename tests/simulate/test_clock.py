"""Training under a clock: the engines against a plain loop, and what every clock must keep."""

import pytest

from fedcommons.simulate import batched
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.timing import Timing
from tests.reference import clocked

SIZES = {"n_clients": 4, "class_size": 7, "seed": 3}
POINTS = 12
TIMING = Timing(
    40.0, delays="exponential", rate=(400.0, 200.0, 100.0, 60.0), link=0.3, failure=0.1,
    multiply_adds=20.0, target=0.5,
)  # fmt: skip
SHARING = {"proportion": 0.5, "copies": 2, "decay": 0.999, "learning_rate": 0.3}
LINES = {
    "all": {"policy": "all", "estimator": "responder_average"},
    "deadline": {"policy": "deadline", "deadline": 1.2},
    "adaptive": {"policy": "deadline", "estimator": "memory", "late": "remember"},
    "adaptive_warm": {
        "policy": "deadline", "estimator": "memory", "late": "remember", "warm": True,
    },
    "latest": {"policy": "deadline", "deadline": 0.8, "estimator": "latest", "late": "remember"},
    "late_discarded": {"policy": "deadline", "deadline": 1.5, "estimator": "memory"},
    "fedbuff": {"policy": "fastest:2", "estimator": "fedbuff", "late": "remember"},
    "fedasync": {
        "policy": "fastest:1", "estimator": "fedasync", "late": "remember", "server_rate": 0.6,
    },
    "mini": {"policy": "fastest:2", "estimator": "responder_average", "work": "mini:3"},
    "anytime": {"policy": "deadline", "deadline": 0.9, "work": "anytime"},
    "chunk": {
        "policy": "deadline", "deadline": 0.8, "estimator": "latest", "work": "chunk",
        "late": "remember",
    },
    "chunk_warm": {
        "policy": "fastest:2", "deadline": 0.8, "estimator": "latest", "work": "chunk",
        "late": "remember", "warm": True,
    },
    "sagachunk": {
        "policy": "deadline", "deadline": 0.8, "estimator": "memory", "work": "sagachunk",
        "late": "remember",
    },
    "corrected": {
        "policy": "deadline", "estimator": "memory", "late": "remember",
        "code": "owner-corrected", "partition": "single-class",
    },
}  # fmt: skip


def curve(**line) -> Curve:
    partition = {"partition": "dirichlet", "alpha": 0.5}
    if line.get("partition") == "single-class":
        partition = {}
    return Curve(**{**partition, **SHARING, **line})


@pytest.fixture(scope="module")
def trained(blobs):
    """Every line in one block: those with fewer ticks drop out on the way."""
    curves = [curve(**line) for line in LINES.values()]
    return batched.simulate_block(
        blobs, curves, **SIZES, n_rounds=POINTS, runs=[0, 5], timing=TIMING
    )


@pytest.mark.parametrize("name", LINES)
def test_the_engine_is_the_plain_loop(blobs, trained, name):
    k = list(LINES).index(name)
    found = trained[1]
    wanted = clocked.train(blobs, curve(**LINES[name]), TIMING, **SIZES, n_points=POINTS, run=5)
    assert found.ticks[k].tolist() == wanted["ticks"]
    assert found.correct[k].tolist() == wanted["correct"]
    assert found.second_moment[k] == pytest.approx(wanted["second_moment"][:-1], rel=2e-3)
    assert found.reached[k] == wanted["reached"]
    assert found.ticks[k, -1] > 5
