"""Sites that make several local steps, on batches, and return the trained model."""

import numpy as np
import pytest

from fedcommons.errors import FederationError
from tests.federate.tiny import (
    Tiny,
    initial,
    train,
    trained_model,
)

pytestmark = pytest.mark.usefixtures("impatient")


def test_one_full_step_of_a_trained_model_is_the_gradient(tmp_path):
    models = []
    for k, (function, rate) in enumerate([(None, 0.5 * 0.2), (trained_model(0.2), 0.5)]):
        tiny = Tiny(tmp_path / str(k))
        grid = tiny.grid(**({"train": function} if function else {}))
        with tiny.shared(grid) as federation:
            start = initial("float32")
            models.append(train(federation, grid, 5, model=start, learning_rate=rate)[0])
        tiny.close()
    assert models[0].dtype == np.float32
    np.testing.assert_allclose(models[1], models[0], rtol=0, atol=1e-6)


def test_local_steps_on_batches_are_reproducible_and_learn(tmp_path):
    models = []
    for k in range(2):
        tiny = Tiny(tmp_path / str(k))
        grid = tiny.grid(train=trained_model(0.1))
        with tiny.shared(grid) as federation:
            settings = {"local_steps": 3, "batch_size": 2, "learning_rate": 1.0}
            models.append(train(federation, grid, 10, **settings)[0])
        tiny.close()
    assert models[0].tobytes() == models[1].tobytes()
    full = [np.linalg.norm(tiny.full_gradient({}, beta)) for beta in (np.zeros((5, 3)), models[0])]
    assert full[1] < full[0]


def test_every_local_step_is_one_batch(tiny):
    seen = []

    def spy(site, message, context):
        batches = list(site.batches(context))
        seen.append([len(y) for _, y, _ in batches])
        return trained_model(0.1)(site, message, context)

    grid = tiny.grid(train=spy)
    with tiny.shared(grid) as federation:
        train(federation, grid, 1, local_steps=4, batch_size=3)
    assert seen == [[3, 3, 3, 3]] * 4


@pytest.mark.parametrize("settings", [{"local_steps": 2}, {"batch_size": 3}])
def test_a_gradient_is_no_answer_where_local_steps_are_asked_for(tiny, settings):
    grid = tiny.grid()
    with (
        tiny.shared(grid) as federation,
        pytest.raises(FederationError, match="nobody answered, 1 times in a row, up to round 1"),
    ):
        train(federation, grid, 1, **settings)
    (folder,) = tiny.state_dir.glob("training-*")
    with tiny.shared() as federation:
        history = federation.state.checkpoint(folder.name).history
    assert {site.outcome for site in history[-1].sites} == {"LocalStepsIgnored"}
