"""How the server steps: what it makes of the estimated gradient.

The server's model moves by -rate times a direction. With `sgd`, the paper's, the direction is the
estimate of the mean gradient itself. The others keep moments of it, as in FedOpt (Reddi, Charles,
Zaheer, Garrett, Rush, Konečný, Kumar, McMahan, ICLR 2021, Algorithm 2); unlike in Adam (Kingma and
Ba, ICLR 2015) there is no correction for moments that start at zero, as in that paper.

Every one works on the last axis; axes before it are models that are trained side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons.registry import Registry

Array = npt.NDArray[np.floating[Any]]
State = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Constants:
    """What the optimizers are set by.

    Attributes:
        momentum: how much of the direction is kept from one round to the next (beta_1).
        second_momentum: likewise, of the squares (beta_2).
        adaptivity: tau, added to the root of the squares: the larger, the nearer to momentum alone.
    """

    momentum: Array | float = 0.9
    second_momentum: Array | float = 0.99
    adaptivity: Array | float = 1e-3


USUAL = Constants()


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A server optimizer.

    Attributes:
        name: how studies and federations call it.
        caption: what it is, for the words beside a figure; empty for the paper's.
        n_moments: how many arrays of the parameters' shape it keeps; they start at 0.
        step: (moments, mean gradient, constants) -> (direction, moments).
        constants: the names of the `Constants` that it has a use for.
    """

    name: str
    caption: str
    n_moments: int
    step: Callable[[State, Array, Constants], tuple[Array, State]]
    constants: tuple[str, ...] = ()

    def direction(
        self, state: State, estimate: Array, n_examples: int, constants: Constants
    ) -> tuple[Array, State]:
        """M times the direction for an estimate of the sum of M gradients: as large as it is.

        The model then moves by -(rate / M) times that, whichever optimizer it is.
        """
        if self.n_moments == 0:
            return estimate, state  # not divided and multiplied again
        scale = estimate.dtype.type(n_examples)
        direction, state = self.step(state, estimate / scale, constants)
        return direction * scale, state

    def start(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> State:
        """The moments before the first round, for parameters of this shape."""
        return tuple(np.zeros(shape, dtype) for _ in range(self.n_moments))


def _momentum(state: State, gradient: Array, constants: Constants) -> tuple[Array, State]:
    """m <- beta_1 m + g: the direction is m."""
    m = constants.momentum * state[0] + gradient
    return m, (m,)


def _adam(state: State, gradient: Array, constants: Constants) -> tuple[Array, State]:
    """v <- beta_2 v + (1 - beta_2) g^2."""
    m, v = state
    v = constants.second_momentum * v + (1 - constants.second_momentum) * gradient**2
    return _adaptive(m, v, gradient, constants)


def _yogi(state: State, gradient: Array, constants: Constants) -> tuple[Array, State]:
    """v <- v - (1 - beta_2) g^2 sign(v - g^2)."""
    m, v = state
    square = gradient**2
    v = v - (1 - constants.second_momentum) * square * np.sign(v - square)
    return _adaptive(m, v, gradient, constants)


def _adaptive(m: Array, v: Array, gradient: Array, constants: Constants) -> tuple[Array, State]:
    """m <- beta_1 m + (1 - beta_1) g: the direction is m / (sqrt(v) + tau)."""
    m = constants.momentum * m + (1 - constants.momentum) * gradient
    return m / (np.sqrt(v) + constants.adaptivity), (m, v)


ADAPTIVE = ("momentum", "second_momentum", "adaptivity")
sgd = Optimizer("sgd", "", 0, lambda state, gradient, _constants: (gradient, state))
momentum = Optimizer("momentum", "server momentum", 1, _momentum, ("momentum",))
adam = Optimizer("adam", "FedAdam: the server steps with Adam", 2, _adam, ADAPTIVE)
yogi = Optimizer("yogi", "FedYogi: the server steps with Yogi", 2, _yogi, ADAPTIVE)

OPTIMIZERS = Registry("server optimizer", Optimizer, (sgd, momentum, adam, yogi))
