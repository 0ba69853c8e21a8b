"""Whom the server asks in a round: some of the clients, each with a probability that it knows.

Who is not asked is missing by design. With pi_i the probability that client i is asked, given the
past, its answer counts with probability pi_i (1 - p_i), and an estimator that is handed
1 - pi_i (1 - p_i) as p (`missing_prob`) makes up for both. Knowing who was asked does not remove
pi. p_i is the probability that a client's answer does not come *given that it was asked*.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.errors import ArgumentError
from fedcommons.estimators import Estimator, SecondMoment

BY = ("uniform", "independent", "norms")
FLOOR = 0.1  # of what each would have if all had the same probability


@dataclass(frozen=True, slots=True)
class Ask:
    """How many clients are asked in a round, and how they are chosen.

    Attributes:
        size: so many clients, if it is an integer; such a part of all clients, rounded down, if it
            is not. Whoever cannot be asked, since it owes an answer, makes them no fewer unless
            too few are left.
        by: "uniform": a random subset of this size, each as likely. "independent": each client by
            itself, all with the same probability; so many on average. "norms": each by itself, by
            how large what it would add was when it was last seen; so many on average.
        least: never fewer than so many.
        named: what the size is called in errors.
    """

    size: int | float
    by: str = "uniform"
    least: int = 1
    named: str = field(default="ask", compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.size, int | np.integer) and not isinstance(self.size, bool):
            size: int | float = checks.integer(self.named, self.size, low=1)
        else:
            size = checks.real(self.named, self.size, low=0, high=1)
            if size == 0:
                raise ArgumentError(f"{self.named} must be a number, or a part > 0, got 0")
        object.__setattr__(self, "size", size)
        if self.by not in BY:
            raise ArgumentError(f"ask_by must be one of {', '.join(BY)}, got {self.by!r}")
        object.__setattr__(self, "least", checks.integer("least", self.least, low=1))

    def check_goes_with(self, estimator: Estimator) -> None:
        """Refuse an estimator that cannot make up for who is not asked.

        One that waits for everybody never hears of them. One that neither divides by how often a
        client counts nor falls back on what it remembers follows whoever is asked most: it goes
        with a uniform choice alone.
        """
        if estimator.needs_everybody:
            raise ArgumentError(
                f"{self.named} must be all for the estimator {estimator.name}, which waits for "
                f"everybody, got {self.size}"
            )
        if self.by == "norms" and not (estimator.needs_p or estimator.remembers):
            raise ArgumentError(
                f'ask_by must be "uniform" or "independent" for the estimator {estimator.name}, '
                'which counts clients as often as they are asked, got "norms"'
            )

    def __str__(self) -> str:
        size = f"{self.size:.3g} of all" if isinstance(self.size, float) else str(self.size)
        return f"{size} ({self.by})"

    def number(self, n_clients: int) -> int:
        """How many of N clients that makes."""
        size = int(self.size * n_clients + 1e-9) if isinstance(self.size, float) else self.size
        return min(max(size, self.least), n_clients)

    def probs(
        self,
        can: BoolArray,
        straggler_prob: FloatArray | None = None,
        norms: FloatArray | None = None,
    ) -> FloatArray:
        """pi_i, the probability of each client to be asked: (N,), 0 for those that cannot be.

        Args:
            can: (N,) who can be asked: who owes no answer.
            straggler_prob: (N,) p_i, for "norms".
            norms: (N,) |f_i - h_i|, or |f_i| without memory, as last seen; NaN where nothing is
                known. They must be of the past.
        """
        here = np.flatnonzero(can)
        m, found = min(self.number(len(can)), len(here)), np.zeros(len(can))
        if not len(here):
            return found
        found[here] = m / len(here)
        if self.by == "norms" and norms is not None and m < len(here):
            p = np.zeros(len(can)) if straggler_prob is None else straggler_prob
            found[here] = by_norms(norms[here], p[here], m)
        return found

    def draw(self, probs: FloatArray, *, rng: np.random.Generator) -> BoolArray:
        """Who is asked: (N,), by N numbers of the generator, whatever the probabilities."""
        return self.chosen(probs, checks.rng(rng).random(len(probs)))

    def chosen(self, probs: FloatArray, units: FloatArray) -> BoolArray:
        """Who is asked, by uniform numbers in [0, 1): (N,)."""
        if self.by != "uniform":
            return units < probs
        here = np.flatnonzero(probs > 0)
        m = min(self.number(len(probs)), len(here))
        found = np.zeros(len(probs), np.bool_)
        found[here[np.argsort(units[here], kind="stable")[:m]]] = True
        return found

    def pair_excess(self, can: BoolArray) -> float:
        """pi_ij / (pi_i pi_j) - 1 of any two clients that can be asked.

        It is -(n-m) / (m (n-1)) for m of n as a fixed number, and 0 where each is asked by itself.
        """
        n = int(can.sum())
        m = min(self.number(len(can)), n)
        if self.by != "uniform" or n < 2 or m == n:
            return 0.0
        return -(n - m) / (m * (n - 1))


def missing_prob(probs: FloatArray, straggler_prob: FloatArray) -> FloatArray:
    """1 - pi_i (1 - p_i), what an estimator is handed as p: (..., N).

    A client that cannot be asked, pi_i = 0, keeps its p_i: nothing is divided by it.
    """
    p = np.asarray(straggler_prob)
    return np.where(probs > 0, 1 - probs * (1 - p), p)


def by_norms(norms: FloatArray, straggler_prob: FloatArray, number: float) -> FloatArray:
    """pi_i = min(1, a_i / (lambda sqrt(1 - p_i))) with sum pi_i = `number`, and not below a floor.

    They minimise sum_i a_i^2 / (pi_i (1 - p_i)), the part of the variance that pi decides, among
    all independent choices of so many on average. Wrong norms cost variance, never bias: the floor
    is `FLOOR` times number / n, so that no weight is more than 1 / `FLOOR` times the uniform one's.

    Args:
        norms: (n,) a_i; NaN where nothing is known, which counts as the largest that is.
        straggler_prob: (n,).
    """
    known = np.isfinite(norms)
    if not known.any() or not norms[known].max() > 0:
        return np.full(len(norms), number / len(norms))
    a = np.where(known, norms, norms[known].max())
    score, least = a / np.sqrt(1 - straggler_prob), FLOOR * number / len(norms)
    # sum_i clip(s_i / lambda, least, 1) falls with lambda: bisection on its logarithm.
    low, high = np.log(score[score > 0].min()) - 1, np.log(score.max()) - np.log(least) + 1
    for _ in range(64):
        middle = (low + high) / 2
        if np.clip(score * np.exp(-middle), least, 1).sum() > number:
            low = middle
        else:
            high = middle
    found = np.clip(score * np.exp(-(low + high) / 2), least, 1)
    if (short := number - found.sum()) > 1e-9 * number:  # those above 0 are asked for certain
        rest = found < 1
        found[rest] += short / rest.sum()
    return found


def second_moment(
    estimator: Estimator, probs: npt.ArrayLike, straggler_prob: npt.ArrayLike, pair_excess: float
) -> SecondMoment | None:
    """An estimator's second moment over who is asked and who answers; None if it is not known.

    E|g^|^2 is the estimator's own at `missing_prob`, plus pair_excess sum_{i != j} <z_i, z_j>, with
    z_i the mean of what client i's being there adds: f_i for the coded sum, f_i - h_i for memory.
    """
    pi = checks.finite("probs", probs)
    p = missing_prob(pi, checks.straggler_prob(straggler_prob, len(pi)))
    found = estimator.second_moment(p)
    if found is None or not pair_excess:
        return found
    if found.alpha != 1:  # its clients are not independent
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(pi > 0, np.sqrt(found.beta * (1 - p) / p), 0.0)
    return replace(found, beta=found.beta - pair_excess * scale**2, pairs=(pair_excess, scale))


__all__ = ["BY", "FLOOR", "Ask", "by_norms", "missing_prob", "second_moment"]


def __dir__() -> list[str]:
    return __all__
