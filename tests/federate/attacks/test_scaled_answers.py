"""One site of five cannot set the model to what it likes by sending larger numbers.

Before, one answer did, in one round, without a warning.
"""

import json

import numpy as np
import pyarrow.parquet
import pytest
from flwr.app import Array, ArrayRecord

from fedcommons import bounds
from fedcommons.errors import ArgumentError
from tests.federate.attacks.hostile_sites import hostile, quarantined, scaled
from tests.federate.tiny import Tiny, initial, outcomes, train

pytestmark = pytest.mark.usefixtures("impatient")

SIZES = (6, 6, 6, 6, 6)


@pytest.fixture
def five(tmp_path):
    found = Tiny(tmp_path, sizes=SIZES)
    yield found
    found.close()


def moved(folder, tamper, **settings):
    """How far one round moves the model, and its note."""
    tiny = Tiny(folder, sizes=SIZES)
    with tiny.shared(grid := hostile(tiny, "b", tamper)) as federation:
        model, notes = train(federation, grid, 1, straggler_prob=0.0, **settings)
    tiny.close()
    return np.linalg.norm(model), notes[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_one_site_sends_counts_at_most_some_times_the_usual(tmp_path, dtype):
    model = initial(dtype)
    honest, _ = moved(tmp_path / "honest", lambda m, r: r, model=model)
    worst, note = moved(tmp_path / "hostile", lambda m, r: scaled(r, 500.0), model=model)
    unbounded, _ = moved(
        tmp_path / "unbounded", lambda m, r: scaled(r, 500.0), model=model, answer_bound=0
    )
    assert unbounded > 50 * honest
    assert worst < (1 + 2 * bounds.FACTOR) * honest
    clipped = {site["site"]: site["clipped"] for site in note["sites"]}
    assert clipped.pop("b") < 0.05
    assert set(clipped.values()) == {1.0}


def test_clipping_is_counted_and_shown(five, caplog):
    with five.shared(grid := hostile(five, "b", lambda m, r: scaled(r, -30.0))) as federation:
        _, notes = train(federation, grid, 4)
        assert [outcomes(note)["b"] for note in notes] == ["answered"] * 4
        assert not federation.quarantine.entries
    assert "clipped b (to 0." in caplog.text
    (folder,) = five.state_dir.glob("training-*")
    rows = pyarrow.parquet.read_table(folder / "answers.parquet").to_pylist()
    assert {row["site"] for row in rows if row["clipped"] < 1} == {"b"}
    rounds = pyarrow.parquet.read_table(folder / "rounds.parquet").to_pylist()
    assert [row["clipped"] for row in rounds[1:]] == [1] * 4


@pytest.mark.parametrize("estimator", ["coded_sum", "memory"])
@pytest.mark.parametrize("value", [1e308, 1e99, 1e9])
def test_absurd_values_do_not_count_and_the_third_time_the_site_is_out(five, estimator, value):
    """Before, 1e308 ended the run, and every run after it."""

    def absurd(_message, reply):
        beta = np.full_like(reply.content["answer"]["beta"].numpy(), value)
        reply.content["answer"] = ArrayRecord({"beta": Array(beta)})
        return reply

    warm = {"warm": True} if estimator == "memory" else {}
    with five.shared(grid := hostile(five, "b", absurd)) as federation:
        model, notes = train(federation, grid, 5, estimator=estimator, **warm)
        assert outcomes(notes[-1])["b"] == "quarantined"
        assert "absurd values" in quarantined(federation)["b"]
    assert np.isfinite(model).all()
    assert np.abs(model).max() < 5


def test_what_was_usual_is_remembered_across_a_restart(tmp_path):
    """After it, when only three answer, the bound is what it would have been."""
    found = []
    for restarts in (False, True):
        tiny = Tiny(tmp_path / str(restarts), sizes=SIZES)
        for rounds in (3, 6) if restarts else (6,):
            calls = hostile(tiny, "b", lambda m, r: scaled(r, 20.0))
            with tiny.shared(calls) as federation:
                model, _ = train(federation, calls, rounds, straggler_prob=0.1)
            tiny.close()
        found.append(model)
        (path,) = tiny.state_dir.glob("training-*/run.json")
        assert json.loads(path.read_text())["settings"]["answer_bound"] == "4.0"
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("bound", [0.5, 1, -3, float("nan"), float("inf")])
def test_a_bound_must_be_above_one(five, bound):
    with (
        five.shared(grid := five.grid()) as federation,
        pytest.raises(ArgumentError, match="answer_bound must be"),
    ):
        train(federation, grid, 1, answer_bound=bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_trimmed_mean_stays_within_what_the_others_send(tmp_path, dtype):
    """Block by block on the server's disk it is what `fedcommons.estimators` says."""
    settings = {"estimator": "trimmed_mean", "answer_bound": 0, "model": initial(dtype)}
    found = [
        moved(tmp_path / str(factor), lambda m, r, by=factor: scaled(r, by), **settings)[0]
        for factor in (1.0, 1e3, 1e6)
    ]
    assert found[1] == pytest.approx(found[2])
    assert found[1] < 3 * found[0]
