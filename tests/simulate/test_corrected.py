"""Corrected chunks in studies: the engine against a plain loop, and what cannot be asked for."""

import re

import numpy as np
import pytest

from fedcommons.errors import ArgumentError, StudyError
from fedcommons.simulate import batched, curve_runs, draws, feasible, models, study
from fedcommons.simulate.curve_runs import Block
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.models import Examples
from fedcommons.simulate.timing import Away, Timing
from fedcommons.tasks.cross_entropy import CrossEntropy
from tests.reference import corrected

N, K, SEED = 4, 8, 3
TIMING = Timing(
    60.0, delays="exponential", rate=(400.0, 200.0, 100.0, 60.0), link=0.3, failure=0.1,
    multiply_adds=20.0, away=Away((0.6, 0.1, 0.3, 0.3), 6.0),
)  # fmt: skip
LINE = {
    "partition": "dirichlet", "alpha": 0.5, "proportion": 0.5, "copies": 2, "decay": 0.99,
    "learning_rate": 0.3, "policy": "deadline", "deadline": 0.9, "estimator": "latest",
    "work": "chunk", "late": "remember", "corrected": True,
}  # fmt: skip
LINES = {
    "late": {},
    "warm": {"warm": True},
    "mlp": {"model": "mlp", "learning_rate": 0.1},
    "random": {"work": "sagachunk", "estimator": "memory"},
    "given_up": {"late": "discard", "policy": "fastest:3"},
}


@pytest.mark.parametrize("name", LINES)
def test_the_engine_is_the_plain_loop(blobs, name):
    curve = Curve(**{**LINE, **LINES[name]})
    found = batched.simulate_block(
        *(blobs, [curve, Curve(**{**LINE, **LINES[name], "corrected": False})]),
        n_clients=N, class_size=K, n_rounds=10, seed=SEED, runs=[0], timing=TIMING,
    )[0]  # fmt: skip
    loss = CrossEntropy(blobs.n_classes)
    data = draws.training_set(blobs, K, seed=SEED, run=0)
    shared = draws.share(curve, data.groups, N, seed=SEED, run=0)
    examples = Examples(
        data.inputs[None], loss.targets(data.y)[None], blobs.inputs("test"),
        loss.targets(blobs.y_test),
    )  # fmt: skip
    loaded = models.load(curve.model, blobs.x_train.shape[1:], loss)
    initial = loaded.initial(rng=curve_runs.stream(SEED, "model", 0))[None]
    model = models.on_examples(loaded, examples, initial, 1)
    start = model.start()
    block = Block(len(data.groups), [0], SEED, timing=TIMING, groups=[data.groups])
    run = curve_runs.make_curve_run(
        *(curve, shared, model, start, block),
        run=0, place=0, n_clients=N, n_rounds=10, n_params=start.shape[1],
    )  # fmt: skip
    line = run.timeline
    owned = [np.flatnonzero(shared.owner == i) for i in range(N)]
    chunks = [[owned[i][places] for places in of_one] for i, of_one in enumerate(line.chunks)]

    def gradient(j, x):
        one = np.ones((1, 1), np.float32)
        return model.gradients(x[None], np.zeros(1, int), np.array([[j]]), one)[0]

    ticks = line.ticks
    assert ticks.late.any() or name == "given_up"
    assert ticks.away.any()
    assert sum(len(r.examples) for now in line.refreshes for r in now) > 10
    theirs = corrected.train(
        gradient, start[0], ticks, shared.placement, chunks, line.chosen, line.refreshes,
        missing=line.probs if curve.work == "sagachunk" else None,
        rate=curve.learning_rate, decay=curve.decay, warm=curve.warm,
    )  # fmt: skip
    wanted = model.count_correct(np.array(theirs), np.zeros(len(theirs), int))
    looks = line.looks()
    recorded = wanted[looks][line.last_looks(10, looks)]
    assert np.abs(found.correct[0] - recorded).max() <= 1
    assert found.second_moment[0] != pytest.approx(found.second_moment[1], rel=1e-3)
    steps = np.diff(theirs, axis=0)
    eta = curve.learning_rate * curve.decay**ticks.begins
    moments = (steps**2).sum(axis=1) * (len(data.groups) / eta) ** 2
    at = np.minimum(line.ticks_by(line.times(10))[:-1], len(ticks) - 1)
    assert found.second_moment[0] == pytest.approx(moments[at], rel=5e-3)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"code": "owner-corrected"}, "correct must be false for a code or an algorithm"),
        ({"work": "full"}, "work in chunks with examples to share"),
        ({"proportion": 0.0}, "work in chunks with examples to share"),
    ],
)
def test_what_cannot_be_corrected_is_refused(line, message):
    with pytest.raises(ArgumentError, match=message):
        Curve(**{**LINE, **line})


def test_what_anchors_take_is_said_before_the_run_or_refused(blobs, caplog, monkeypatch):
    made = study(
        "anchors",
        clock={"seconds": 30, "delays": "exponential", "rate": 400.0, "multiply_adds": 20.0},
        grid={
            "partition": "iid", "policy": "deadline", "deadline": 0.9, "work": "chunk", "c": 0.5,
            "d": 2, "correct": True, "model": ["softmax", "mlp"],
        },
        clients=N, class_size=K, rounds=2, runs=1,
    )  # fmt: skip
    feasible._warn_once.cache_clear()
    feasible.check_fits(made, blobs)
    said = [record.message for record in caplog.records]
    assert len(said) == 1  # linear models need residuals alone
    assert re.match(
        r"correct with model mlp: .* take \d+ MB a run; .* up to \d+ of the models", said[0]
    )
    monkeypatch.setattr(feasible, "_machine_bytes", lambda: 10_000)
    with pytest.raises(StudyError, match=r"would (keep|remember)"):
        feasible.check_fits(made, blobs)
