"""How many rounds a training takes, by how noisy its gradient estimates are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.errors import ArgumentError

ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Course:
    """Rounds until the target, by the noise rho = E|g^ - g|^2 / |g|^2 of the first round.

    Between the points it is a line, and after the last one the last piece goes on. Before the first
    it is constant.

    Attributes:
        noise: the rhos, ascending.
        rounds: at each.
        error: how far a measured point is from the line between its neighbours, relative: the
            root of the mean square. 0 if nothing was measured.
        words: where this is from.
    """

    noise: tuple[float, ...]
    rounds: tuple[float, ...]
    error: float
    words: str

    @property
    def is_assumed(self) -> bool:
        return self.words.startswith(ASSUMED)

    def at(self, noise: float) -> float:
        """The rounds at this rho."""
        x, y = np.array(self.noise), np.array(self.rounds)
        if noise <= x[0] or len(x) == 1:
            return float(y[0])
        if noise < x[-1]:
            return float(np.interp(noise, x, y))
        return float(y[-1] + (noise - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2]))


def assumed(rounds: int) -> Course:
    """Rounds in proportion to 1 + rho, `rounds` of them without noise.

    This is what gradient descent takes under the strong growth condition with the best step for
    each rho, E|g^|^2 = (1 + rho) |g|^2 in every round. Later gradients are smaller and the noise of
    uneven data is not, so that training feels the noise more than this.
    """
    R = checks.integer("rounds", rounds, low=1)
    words = f"{ASSUMED}: {R} rounds without noise, 1 + noise times as many with it"
    return Course((0.0, 1.0), (float(R), 2.0 * R), 0.0, words)


def measured(noise: npt.ArrayLike, rounds: npt.ArrayLike, words: str) -> Course:
    """From trainings: the nearest curve that never falls, by pooling neighbours.

    Beyond the last one rounds grow at least in proportion to the noise.

    Args:
        noise, rounds: (n,) of each training; how many it made, if it did not reach the target.
    """
    x, y = checks.finite("noise", noise, ndim=1), checks.finite("rounds", rounds, ndim=1)
    checks.same_length("rounds", y, len(x))
    if len(x) < 2:
        raise ArgumentError(f"noise must be of two trainings that reach the target, got {len(x)}")
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    pools: list[list[float]] = []  # sum of x, sum of y, n
    for one in zip(x.tolist(), y.tolist(), strict=True):
        pools.append([one[0], one[1], 1.0])
        while len(pools) > 1 and pools[-2][1] / pools[-2][2] >= pools[-1][1] / pools[-1][2]:
            last = pools.pop()
            pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
    middle = tuple(a / n for a, _, n in pools)
    mean = tuple(b / n for _, b, n in pools)
    between = [
        np.interp(x[k], x[k - 1 : k + 2 : 2], y[k - 1 : k + 2 : 2]) for k in range(1, len(x) - 1)
    ]
    apart = [a / b - 1 for a, b in zip(between, y[1:-1].tolist(), strict=True)] or [0.0]
    end = middle[-1]
    slope = (mean[-1] - mean[-2]) / (end - middle[-2]) if len(mean) > 1 else 0.0
    far = max(2 * mean[-1], mean[-1] + slope * end)
    error = float(np.sqrt(np.mean(np.square(apart))))
    return Course((*middle, 2 * end), (*mean, far), error, words)


__all__ = ["Course", "assumed", "measured"]


def __dir__() -> list[str]:
    return __all__
