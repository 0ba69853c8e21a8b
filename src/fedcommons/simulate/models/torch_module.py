"""Any torch module, many parameter vectors at once; and the CNN that comes with it.

Models with few examples each are computed together (torch.func), which saves calls. With many
examples each, one after the other is faster: convolutions with a filter for each model are slow.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcommons.checks import IntArray
from fedcommons.errors import StudyError
from fedcommons.simulate.models.model import Float32
from fedcommons.tasks.cross_entropy import CrossEntropy
from fedcommons.tasks.loss import Loss, Targets

if TYPE_CHECKING:
    import torch
    from torch import nn

FEW_EXAMPLES = 100  # of a model: below that models are computed together
TEST_AT_ONCE = 1000


class TorchModel:
    """A module as the batched engine sees it; it is used as in evaluation: dropout is off.

    Parameters that need no gradient (requires_grad is False) stay as they are.

    Args:
        make: a fresh module, initialised from torch's generator.
        input_shape: what the flat inputs are folded to.
        name: for messages.
    """

    examples_at_once = 1000

    def __init__(
        self, make: Callable[[], nn.Module], input_shape: tuple[int, ...], loss: Loss, name: str
    ) -> None:
        import torch

        torch.set_num_threads(1)  # runs are what is parallel
        self.make, self.input_shape, self.name = make, input_shape, name
        self.loss = loss
        self.module = self._fresh(0)
        if any(map(torch.nn.parameter.is_lazy, self.module.parameters())):
            raise StudyError(
                f"model {name} must have parameters of known sizes: lazy modules get theirs from "
                "the first inputs; factory(n_classes, input_shape) is told them"
            )
        self.names = [key for key, _ in self.module.named_parameters()]
        self.tensors = [p.shape for p in self.module.parameters()]
        self.trained = np.concatenate(
            [np.full(p.numel(), p.requires_grad, np.float32) for p in self.module.parameters()]
            or [np.zeros(0, np.float32)]
        )
        if not self.trained.any():
            raise StudyError(f"model {name} must have parameters to train, got none")
        if any(True for _ in self.module.buffers()):
            raise StudyError(
                f"model {name} must have no buffers: statistics over a batch, as BatchNorm keeps "
                "them, do not go with weighted sums of gradients"
            )
        self._check_output(loss)
        # Torch has cross-entropy itself; of the others it takes the derivatives by the scores.
        self._is_cross_entropy = type(loss) is CrossEntropy  # somebody else's may derive from it
        self._objective = self._cross_entropy if self._is_cross_entropy else self._through_scores
        self._together = torch.func.vmap(torch.func.grad(self._objective))
        self._goes_together = self._can_go_together()

    def _can_go_together(self) -> bool:
        """Whether torch.func can take it: not if what it does depends on the values."""
        import torch

        n_params, n_inputs = len(self.trained), math.prod(self.input_shape)
        given: tuple[torch.Tensor, ...] = (torch.zeros(2, 2, self.loss.n_outputs),)
        if self._is_cross_entropy:
            given = (torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 2))
        try:
            self._together(torch.zeros(2, n_params), torch.zeros(2, 2, n_inputs), *given)
        except (Exception, SystemExit):
            return False
        return True

    def _check_output(self, loss: Loss) -> None:
        import torch

        n_outputs = loss.n_outputs
        of_class = ", one for each class," if loss.kind == "classes" else f" for loss {loss.name},"

        x = torch.linspace(0, 0.9, 2 * math.prod(self.input_shape))  # as scaled bytes are
        params = torch.cat([p.detach().ravel() for p in self.module.parameters()]).requires_grad_()
        try:
            with torch.no_grad():
                scores, again = (self.module(x.reshape(2, *self.input_shape)) for _ in range(2))
            trained = self._forward(params, x)
        except (Exception, SystemExit) as error:
            raise StudyError(
                f"model {self.name} cannot take inputs of shape {self.input_shape}: "
                f"{type(error).__name__}: {error}"
            ) from None
        got = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores)
        if got != (2, n_outputs):
            raise StudyError(
                f"model {self.name} must give {n_outputs} scores for each example{of_class} got "
                f"shape {got} for 2 examples"
            )
        if not torch.equal(scores.nan_to_num(), again.nan_to_num()):
            raise StudyError(
                f"model {self.name} must give the same scores for the same inputs, got others the "
                "second time: it draws random numbers in forward, which no seed would bring back"
            )
        if not trained.requires_grad:
            raise StudyError(
                f"model {self.name} must give scores that depend on its parameters: their gradient "
                "is cut off (detach, no_grad), and nothing would be trained"
            )
        self._check_alone(params.detach(), x)

    def _check_alone(self, params: torch.Tensor, x: torch.Tensor) -> None:
        """Refuse what scores an example by the others in its batch: clients' batches are padded."""
        import torch

        params = params + 0.1 * torch.sin(torch.arange(len(params)))  # it may begin with zeros
        with torch.no_grad():
            together = self._forward(params, x)
            try:
                alone = torch.cat([self._forward(params, one) for one in x.chunk(2)])
                same = torch.allclose(
                    together, alone, rtol=1e-3, atol=1e-4 * float(together.abs().max()),
                    equal_nan=True,
                )  # fmt: skip
                got = "others for it alone than in a batch of 2"
            except (Exception, SystemExit) as error:
                same, got = False, f"{type(error).__name__} for one alone: {error}"
        if not same:
            raise StudyError(
                f"model {self.name} must score every example by itself, whatever else is in its "
                f"batch (as BatchNorm does not), got {got}"
            )

    def _fresh(self, seed: int) -> nn.Module:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.make()
        if not isinstance(module, torch.nn.Module):
            raise StudyError(f"model {self.name} must be a torch.nn.Module, got {type(module)}")
        return module.to(torch.float32).eval()

    def initial(self, *, rng: np.random.Generator) -> Float32:
        module = self._fresh(int(rng.integers(2**63)))
        return np.concatenate(
            [p.detach().numpy().ravel() for p in module.parameters()], dtype=np.float32
        )

    def gradients(self, params: Float32, x: Float32, y: Targets, weight: Float32) -> Float32:
        import torch

        H = weight.shape[1]
        models = (_tensor(params), _tensor(x))
        together = self._goes_together and H < FEW_EXAMPLES
        with self._named(H):
            given: tuple[torch.Tensor, ...]
            if self._is_cross_entropy:
                given = (_tensor(y), _tensor(weight))
            else:
                with torch.no_grad():
                    scores = torch.stack(list(map(self._forward, *models))).numpy()
                given = (_tensor(self.loss.residuals(scores, y, weight)),)
            if together:
                found = self._together(*models, *given)
            else:
                found = torch.stack(
                    [self._alone(*model) for model in zip(*models, *given, strict=True)]
                )
        if self.trained.all():
            return found.numpy()
        return np.where(self.trained > 0, found.numpy(), np.float32(0))

    def scores(self, params: Float32, x: Float32) -> Float32:
        import torch

        found = np.empty((len(params), len(x), self.loss.n_outputs), np.float32)
        with torch.no_grad():
            for start in range(0, len(x), TEST_AT_ONCE):
                part = slice(start, start + TEST_AT_ONCE)
                for b, model in enumerate(_tensor(params)):
                    with self._named(len(x[part])):
                        found[b, part] = self._forward(model, _tensor(x[part])).numpy()
        return found

    def count_correct(self, params: Float32, x: Float32, y: IntArray) -> IntArray:
        import torch

        right = np.zeros(len(params), np.int64)
        with torch.no_grad():
            for start in range(0, len(x), TEST_AT_ONCE):
                some, labels = _tensor(x[start : start + TEST_AT_ONCE]), y[start:][:TEST_AT_ONCE]
                for b, model in enumerate(_tensor(params)):
                    with self._named(len(labels)):
                        best = self._forward(model, some).numpy().argmax(axis=-1)
                    right[b] += np.count_nonzero(best == labels)
        return right

    @contextlib.contextmanager
    def _named(self, n_examples: int) -> Iterator[None]:
        """What the module raises, as the study's error."""
        try:
            yield
        except (Exception, SystemExit) as error:
            raise StudyError(
                f"model {self.name} fails on {n_examples} examples: {type(error).__name__}: {error}"
            ) from None

    def _alone(self, params: torch.Tensor, *examples: torch.Tensor) -> torch.Tensor:
        import torch

        params = params.detach().requires_grad_()
        return torch.autograd.grad(self._objective(params, *examples), params)[0]

    def _forward(self, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        import torch

        sizes = [math.prod(shape) for shape in self.tensors]
        pieces = torch.split(params, sizes)
        named = {
            name: piece.view(shape)
            for name, piece, shape in zip(self.names, pieces, self.tensors, strict=True)
        }
        return torch.func.functional_call(self.module, named, (x.reshape(-1, *self.input_shape),))

    def _cross_entropy(
        self, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        from torch.nn.functional import cross_entropy

        return (weight * cross_entropy(self._forward(params, x), y, reduction="none")).sum()

    def _through_scores(
        self, params: torch.Tensor, x: torch.Tensor, residuals: torch.Tensor
    ) -> torch.Tensor:
        """What has the loss's gradient, given its derivatives by the scores."""
        return (residuals * self._forward(params, x)).sum()


def cnn(n_outputs: int, input_shape: tuple[int, ...]) -> nn.Module:
    """Two 3 x 3 convolutions of 8 and 16 channels, each of every other pixel, and a linear layer.

    Strides instead of pooling (Springenberg et al., arXiv 1412.6806): a fifth of the work.
    """
    from torch import nn

    channels, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * -(-height // 4) * -(-width // 4), n_outputs),
    )


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
