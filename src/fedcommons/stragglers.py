"""Who answers in which round.

A model draws a boolean mask, shape (rounds, clients), True where the client answers in time, and
knows each client's long-run probability of being missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.errors import ArgumentError


class StragglerModel(Protocol):
    """What the simulator needs of a straggler model."""

    def straggler_prob(self, n_clients: int) -> FloatArray:
        """p_i, the probability that each client is missing from a round: shape (N,)."""
        ...

    def answered(self, n_rounds: int, n_clients: int, *, rng: np.random.Generator) -> BoolArray:
        """Who answers: shape (n_rounds, n_clients)."""
        ...


def odds(straggler_prob: npt.ArrayLike, n_clients: int) -> FloatArray:
    """r_i = p_i / (1 - p_i), by which a client's noise is scaled: shape (N,)."""
    p = checks.straggler_prob(straggler_prob, n_clients)
    return p / (1 - p)


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """The paper's model: missing with probability p, independently of clients and rounds.

    `prob` is one p, or p_i for each client, each in [0, 1). With the same generator, a client that
    is missing at some p is also missing at every larger one.
    """

    prob: npt.ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "prob", _one_or_tuple("prob", self.prob))
        checks.straggler_prob(self.prob, np.size(self.prob))

    def straggler_prob(self, n_clients: int) -> FloatArray:
        return checks.straggler_prob(self.prob, checks.n_clients(n_clients))

    def answered(self, n_rounds: int, n_clients: int, *, rng: np.random.Generator) -> BoolArray:
        p = self.straggler_prob(n_clients)
        n_rounds = checks.integer("n_rounds", n_rounds, low=0)
        return checks.rng(rng).random((n_rounds, n_clients)) >= p


@dataclass(frozen=True, slots=True)
class Markov:
    """Correlated absences: who misses one round tends to miss the next.

    Each client is a two-state chain, independent of the others, that starts in its stationary law.
    `prob` is the long-run probability p of being missing and `mean_absence` the mean number of
    rounds that an absence lasts; one number for all, or one for each client. Absences cannot be
    shorter than p/(1-p) rounds on average, nor than 1. A mean of 1/(1-p) gives independent rounds.
    With other means an answer says something about the next round, and no estimator is unbiased
    given the past (docs/deviations.md, 11).
    """

    prob: npt.ArrayLike
    mean_absence: npt.ArrayLike

    def __post_init__(self) -> None:
        for name in ("prob", "mean_absence"):
            object.__setattr__(self, name, _one_or_tuple(name, getattr(self, name)))
        self._chain(max(np.size(self.prob), np.size(self.mean_absence)))

    def straggler_prob(self, n_clients: int) -> FloatArray:
        return self._chain(checks.n_clients(n_clients))[0]

    def answered(self, n_rounds: int, n_clients: int, *, rng: np.random.Generator) -> BoolArray:
        p, leave, come_back = self._chain(checks.n_clients(n_clients))
        n_rounds = checks.integer("n_rounds", n_rounds, low=0)
        u = checks.rng(rng).random((n_rounds, n_clients))
        answered = np.empty((n_rounds, n_clients), np.bool_)
        for t in range(n_rounds):
            if t == 0:
                answered[t] = u[t] >= p
            else:
                answered[t] = np.where(answered[t - 1], u[t] >= leave, u[t] < come_back)
        return answered

    def _chain(self, n_clients: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """p, the probability to go missing, and the probability to come back: (N,) each."""
        p = checks.straggler_prob(self.prob, n_clients)
        length = checks.per_entry("mean_absence", self.mean_absence, n_clients, "client")
        shortest = np.maximum(1, p / (1 - p))
        bad = ~((length >= shortest * (1 - 1e-12)) & np.isfinite(length))
        if bad.any():
            raise ArgumentError(
                f"mean_absence must be finite and at least max(1, p/(1-p)) = "
                f"{shortest[bad][0]:g} rounds for p = {p[bad][0]:g}, got {length[bad][0]:g}"
            )
        return p, p / (1 - p) / length, 1 / length


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Recorded rounds, played back.

    `mask` has shape (rounds, clients), True where the client answered. With `random_start` every
    draw begins at a random recorded round and wraps around, so that many runs differ; without it
    the recording is played from its beginning and must be long enough.
    """

    mask: npt.ArrayLike
    random_start: bool = False

    def __post_init__(self) -> None:
        mask = np.array(self.mask)
        if mask.dtype != np.bool_ or mask.ndim != 2 or 0 in mask.shape:
            raise ArgumentError(
                f"mask must be boolean with shape (rounds, clients), "
                f"got dtype {mask.dtype}, shape {mask.shape}"
            )
        mask.flags.writeable = False
        object.__setattr__(self, "mask", mask)

    def straggler_prob(self, n_clients: int) -> FloatArray:
        """How often each client was missing from the recording.

        One that never answered is refused: what it alone holds cannot be inferred without bias.
        """
        p = 1 - self._recording(n_clients).mean(axis=0)
        if (p == 1).any():
            raise ArgumentError(
                f"mask must have every client answer at least once, "
                f"got none from client {int(np.argmax(p))}"
            )
        return p

    def answered(self, n_rounds: int, n_clients: int, *, rng: np.random.Generator) -> BoolArray:
        mask = self._recording(n_clients)
        n_rounds = checks.integer("n_rounds", n_rounds, low=0)
        rng = checks.rng(rng)
        if self.random_start:
            return mask[(rng.integers(len(mask)) + np.arange(n_rounds)) % len(mask)]
        if n_rounds > len(mask):
            raise ArgumentError(
                f"n_rounds must be at most the {len(mask)} recorded rounds, got {n_rounds}"
            )
        return mask[:n_rounds].copy()

    def _recording(self, n_clients: int) -> BoolArray:
        mask: BoolArray = np.asarray(self.mask)
        if mask.shape[1] != checks.n_clients(n_clients):
            raise ArgumentError(f"mask must have {n_clients} clients, got {mask.shape[1]}")
        return mask


def _one_or_tuple(name: str, value: npt.ArrayLike) -> float | tuple[float, ...]:
    """One number, or one for each client, in a form that nobody can change."""
    array = np.asarray(checks.finite(name, value))
    if array.ndim > 1 or array.size == 0:
        raise ArgumentError(f"{name} must be one number or one per client, got shape {array.shape}")
    return float(array) if array.ndim == 0 else tuple(array.tolist())
