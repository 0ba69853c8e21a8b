"""Torch modules as models: trained like the package's own, or refused by name."""

import functools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcommons.datasets import Dataset
from fedcommons.errors import StudyError
from fedcommons.simulate import (
    batched,
    models,
)
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.models import linear
from fedcommons.simulate.models.torch_module import FEW_EXAMPLES
from fedcommons.tasks.cross_entropy import CrossEntropy
from fedcommons.tasks.losses import fitted
from tests.simulate.test_engines import SIZES

PAIR = dict(straggler_prob=0.5, proportion=0.4, copies=2, learning_rate=0.5)
torch = pytest.importorskip("torch")


def make_linear(n_classes, input_shape):
    """The paper's model as a torch module, from zero weights."""
    module = torch.nn.Linear(*input_shape, n_classes)
    torch.nn.init.zeros_(module.weight)
    torch.nn.init.zeros_(module.bias)
    return module


def make_wrong():
    return torch.nn.Linear(6, 4)


def make_with_statistics(n_classes, input_shape):
    return torch.nn.Sequential(torch.nn.Linear(*input_shape, n_classes), torch.nn.BatchNorm1d(3))


def make_nothing():
    return 3


def make_trouble():
    raise RuntimeError("no")


class Choosy(torch.nn.Module):
    """The paper's model with control flow that depends on the data."""

    def __init__(self, n_classes, input_shape):
        super().__init__()
        self.linear = make_linear(n_classes, input_shape)

    def forward(self, x):
        return self.linear(x) if x.sum() > -1e9 else self.linear(-x)


class Picky(Choosy):
    """It takes batches of up to two, as the check at loading has them."""

    def forward(self, x):
        if len(x) > 2:
            raise ValueError(f"no batch of {len(x)}")
        return self.linear(x)


def make_half_frozen(n_classes, input_shape):
    module = torch.nn.Sequential(
        torch.nn.Linear(*input_shape, 4), torch.nn.Tanh(), torch.nn.Linear(4, n_classes)
    )
    module[0].requires_grad_(False)
    return module


def make_frozen(n_classes, input_shape):
    return make_linear(n_classes, input_shape).requires_grad_(False)


def make_lazy():
    return torch.nn.LazyLinear(3)


def make_exit():
    sys.exit(3)


class Pair(Choosy):
    def forward(self, x):
        return self.linear(x), x


class Detached(Choosy):
    def forward(self, x):
        return self.linear(x).detach()


class Noisy(Choosy):
    def forward(self, x):
        return self.linear(x + torch.randn_like(x)) + torch.randn(3)


class Centred(Choosy):
    """It begins with zeros, so that at first nobody sees what it does."""

    def forward(self, x):
        return self.linear(x - x.mean(0))


class Ending(Choosy):
    def forward(self, _x):
        sys.exit(3)


class EndingLater(Picky):
    def forward(self, x):
        return self.linear(x) if len(x) <= 2 else sys.exit(3)


def make_batch_norm(n_classes, input_shape):
    return torch.nn.Sequential(
        torch.nn.BatchNorm1d(*input_shape, track_running_stats=False),
        torch.nn.Linear(*input_shape, n_classes),
    )


partly = functools.partial(make_linear, 3, (6,))
not_callable = 3
HERE = __name__


def test_a_linear_module_is_softmax_regression(blobs):
    curves = [
        Curve("dirichlet", 0.2, **PAIR, model=name, **more)
        for name in ("softmax", f"{HERE}:make_linear")
        for more in (
            {}, {"estimator": "memory", "code": "owner-corrected"},
            {"algorithm": "coded_fedavg", "local_steps": 3, "batch_size": 2},
        )
    ]  # fmt: skip
    found = batched.simulate_block(blobs, curves, **SIZES, runs=[0, 1])
    for result in found:
        assert np.allclose(result.second_moment[:3], result.second_moment[3:], rtol=1e-3)
        assert np.abs(result.correct[:3] - result.correct[3:]).max() <= 1


def test_a_module_that_cannot_go_together_is_trained_alone(blobs):
    assert not models.load(f"{HERE}:Choosy", (6,), CrossEntropy(3))._goes_together
    assert models.load(f"{HERE}:make_linear", (6,), CrossEntropy(3))._goes_together
    curves = [
        Curve("dirichlet", 0.2, **PAIR, model=name, estimator="memory")
        for name in ("softmax", f"{HERE}:Choosy")
    ]
    found = batched.simulate_block(blobs, curves, **SIZES, runs=[0])[0]
    assert np.allclose(found.second_moment[0], found.second_moment[1], rtol=1e-3)


def test_a_module_that_fails_later_is_named(blobs):
    curve = Curve("iid", **PAIR, model=f"{HERE}:Picky")
    with pytest.raises(StudyError, match="Picky fails on 21 examples: ValueError: no batch of 21"):
        batched.simulate_block(blobs, [curve], **SIZES, runs=[0])
    curve = replace(curve, model=f"{HERE}:EndingLater")
    with pytest.raises(StudyError, match="EndingLater fails on 21 examples: SystemExit: 3"):
        batched.simulate_block(blobs, [curve], **SIZES, runs=[0])
    one = models.load(f"{HERE}:Picky", (6,), CrossEntropy(3))
    params = one.initial(rng=np.random.default_rng(0))[None]
    with pytest.raises(StudyError, match="Picky fails on 105 examples"):
        one.count_correct(params, blobs.inputs("test"), blobs.y_test)


@pytest.mark.parametrize("n_examples", [5, FEW_EXAMPLES])
def test_parameters_that_need_no_gradient_stay(n_examples):
    rng = np.random.default_rng(0)
    one = models.load(f"{HERE}:make_half_frozen", (6,), CrossEntropy(3))
    params = one.initial(rng=rng)[None]
    x, y = rng.random((1, n_examples, 6), np.float32), rng.integers(0, 3, (1, n_examples))
    found = one.gradients(params, x, y, np.ones((1, n_examples), np.float32))
    assert (found[0, :28] == 0).all()
    assert (found[0, 28:] != 0).all()


def test_a_model_that_is_no_text_has_a_source():
    assert isinstance(models.source("_socket:socket"), str)
    assert isinstance(models.source("_struct:calcsize"), str)


def test_the_source_of_a_model_is_where_it_is_made_and_where_it_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    Path("made_here.py").write_text("def make(width): pass\n")
    Path("named_here.py").write_text(
        "import functools, made_here\n"
        "make = made_here.make\nnet = functools.partial(functools.partial(make), 8)\n"
    )
    made, named = Path("made_here.py").read_text(), Path("named_here.py").read_text()
    assert models.source("made_here:make") == made
    assert models.source("named_here:make") == f"{made}\0{named}"
    assert models.source("named_here:net") == f"{made}\0{named}"
    assert models.source(f"{HERE}:partly") == Path(__file__).read_text()


def test_a_module_that_ends_the_process_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "ends_it.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(StudyError, match="ends_it:net cannot be imported: SystemExit: 3"):
        models.load("ends_it:net", (6,), CrossEntropy(3))


@pytest.mark.parametrize("n_examples", [FEW_EXAMPLES - 1, FEW_EXAMPLES])
def test_a_module_has_softmax_gradients_together_and_one_by_one(n_examples):
    rng = np.random.default_rng(0)
    beta = rng.normal(size=(2, 7, 3)).astype(np.float32)
    x = rng.normal(size=(2, n_examples, 6)).astype(np.float32)
    y = rng.integers(0, 3, (2, n_examples))
    weight = rng.normal(size=(2, n_examples)).astype(np.float32)
    module = models.load(f"{HERE}:make_linear", (6,), CrossEntropy(3))
    params = np.concatenate([beta[:, :-1].swapaxes(1, 2).reshape(2, -1), beta[:, -1]], axis=1)
    found = module.gradients(params, x, y, weight)
    wanted = (
        linear.Linear(6, CrossEntropy(3))
        .gradients(beta.reshape(2, -1), x, y, weight)
        .reshape(2, 7, 3)
    )
    assert np.allclose(found[:, :18].reshape(2, 3, 6).swapaxes(1, 2), wanted[:, :-1], atol=1e-4)
    assert np.allclose(found[:, 18:], wanted[:, -1], atol=1e-4)


def test_the_cnn_learns_and_takes_what_are_images(blobs):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(2), 20)
    x = rng.random((40, 8, 8)) * 0.3
    x[y == 1, 2:5, 2:5] += 0.7
    data = type(blobs)("squares", x, y, x, y)
    curve = Curve("iid", learning_rate=0.5, decay=1.0, model="cnn")
    sizes = {**SIZES, "class_size": 15, "n_rounds": 25}
    found = batched.simulate_block(data, [curve], **sizes, runs=[0])[0]
    assert found.correct[0, -1] >= 38
    with pytest.raises(StudyError, match="images of at least 4 x 4"):
        models.load("cnn", (6,), CrossEntropy(3))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:make", "cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:no_such", "cannot be imported: AttributeError"),
        (f"{HERE}:not_callable", "must be a function or a class, got 3"),
        (f"{HERE}:make_nothing", "must be a torch.nn.Module, got <class 'int'>"),
        (f"{HERE}:make_trouble", "cannot be made: RuntimeError: no"),
        (f"{HERE}:make_frozen", "must have parameters to train, got none"),
        (f"{HERE}:make_wrong", "must give 3 scores for each example, one for each class"),
        (f"{HERE}:make_with_statistics", "must have no buffers"),
        (f"{HERE}:make_lazy", "make_lazy must have parameters of known sizes"),
        (f"{HERE}:make_exit", "make_exit cannot be made: SystemExit: 3"),
        (f"{HERE}:Pair", "Pair must give 3 scores for each example"),
        (f"{HERE}:Detached", "Detached must give scores that depend on its parameters"),
        (f"{HERE}:Noisy", "Noisy must give the same scores for the same inputs"),
        (f"{HERE}:Centred", "Centred must score every example by itself"),
        (f"{HERE}:make_batch_norm", "make_batch_norm must score every example by itself"),
        (f"{HERE}:Ending", "Ending cannot take inputs of shape (6,): SystemExit: 3"),
    ],
)
def test_modules_that_do_not_fit_are_named(name, message):
    with pytest.raises(StudyError) as error:
        models.load(name, (6,), CrossEntropy(3))
    assert message in str(error.value)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(StudyError, match=r"needs PyTorch: pip install 'fedcommons\[torch\]'"):
        models.load("cnn", (8, 8), CrossEntropy(3))
    assert models.load("mlp", (8, 8), CrossEntropy(3))
    assert "torch" in sys.modules


@pytest.mark.parametrize(("loss", "n_outputs"), [("squared", 1), ("binary", 3), ("cox", 1)])
def test_a_module_takes_any_loss(blobs, loss, n_outputs):
    rng = np.random.default_rng(0)
    y = {
        "squared": rng.normal(size=len(blobs.y_train)),
        "binary": rng.integers(0, 2, (len(blobs.y_train), 3)),
        "cox": np.stack(
            [rng.uniform(0, 5, len(blobs.y_train)), rng.integers(0, 2, len(blobs.y_train))], 1
        ),
    }[loss]
    data = Dataset("d", blobs.x_train, y, blobs.x_test[:0], y[:0])
    fitted_loss = fitted(loss, data)
    module = models.load(f"{HERE}:make_linear", (6,), fitted_loss)
    ours = linear.Linear(6, fitted_loss)
    x = data.inputs("train")[None, :20].repeat(2, axis=0)
    targets = fitted_loss.targets(y)[None, :20].repeat(2, axis=0)
    weight = rng.uniform(0, 1, (2, 20)).astype(np.float32)
    params = rng.normal(size=(2, n_outputs, 7)).astype(np.float32)  # weights of an output, bias
    theirs = np.concatenate([params[:, :, :6].reshape(2, -1), params[:, :, 6]], axis=1)
    mine = params.swapaxes(1, 2).reshape(2, -1)
    found = module.gradients(theirs, x, targets, weight)
    wanted = ours.gradients(mine, x, targets, weight).reshape(2, 7, n_outputs)
    wanted = np.concatenate([wanted[:, :6].swapaxes(1, 2).reshape(2, -1), wanted[:, 6]], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        module.scores(theirs, x[0]), ours.scores(mine, x[0]), rtol=1e-4, atol=1e-5
    )
