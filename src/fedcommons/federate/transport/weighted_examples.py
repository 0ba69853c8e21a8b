"""What a training function is given: the examples that a site holds, and the weight of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import coding
from fedcommons.batches import batches
from fedcommons.checks import FloatArray, IntArray
from fedcommons.federate.protocol.refusals import BatchTooSmall, SeveralStepsRefused

Batch = tuple[npt.NDArray[Any], npt.NDArray[Any], FloatArray]


@dataclass(frozen=True, slots=True)
class WeightedExamples:
    """Examples with weights, and how many local steps are to be made on batches of what size.

    Attributes:
        x, y: inputs and labels, (n, ...) each.
        shares: (n,) this site's share of each example's gradient, b_ij.
        local_steps, batch_size: what the server asks for; 0 is a batch of all examples.
        one_step: whether one local step alone is allowed, as negative shares demand, and work that
            fits.
        rng: of the order in which examples are taken.
        at_least: how many examples an answer must go through.
        weight: (n,) what each example's loss counts in a mean over a batch; 1 on average.
        counts: what the way that the model went counts in the answer (`coding.loss_weights`).
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    shares: FloatArray
    local_steps: int = 1
    batch_size: int = 0
    one_step: bool = False
    rng: np.random.Generator | None = None
    at_least: int = 1
    weight: FloatArray = field(init=False)
    counts: float = field(init=False)

    def __post_init__(self) -> None:
        weight, counts = coding.loss_weights(self.shares)
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "counts", counts)

    def __len__(self) -> int:
        return len(self.y)

    def batches(self, batch_size: int | None = None, epochs: int | None = None) -> Batches:
        """The batches that the server asks for; or of this size, for so many epochs."""
        size = self.batch_size if batch_size is None else batch_size
        n_steps = self.local_steps
        if batch_size is not None or epochs is not None:
            n_steps = (epochs or 1) * (-(-len(self) // size) if size else 1)
        self.check_steps(n_steps)
        self.check_number(n_steps * size if size else len(self))
        return Batches(self, size or None, n_steps)

    def check_steps(self, n_steps: int) -> None:
        if self.one_step and n_steps > 1:
            raise SeveralStepsRefused(
                "local steps must be 1 with work that fits, and with a code whose weights can be "
                f"negative, got {n_steps}"
            )

    def check_number(self, n_examples: int) -> None:
        """Refuse to go through fewer examples than the site's policy wants in an answer."""
        if min(n_examples, len(self)) < self.at_least:
            raise BatchTooSmall(
                f"the training function asks for {n_examples} examples; min-examples is "
                f"{self.at_least}"
            )

    def in_proportion(self) -> IntArray:
        """Which examples to take in an epoch without weights, in a random order.

        Example j is taken b_ij k / W times on average, for k of all, the whole number next to W:
        shares of 1 are taken once each, and a mean over any part of these is unbiased. The
        points at which the shares' running sum is read lie W / k apart.
        """
        rng = self.rng or np.random.default_rng()
        shuffled = rng.permutation(len(self))
        ends = np.cumsum(self.shares[shuffled])
        k = self.n_in_proportion
        points = (rng.random() + np.arange(k)) * (ends[-1] / k)
        found = np.searchsorted(ends, points, side="right")
        return rng.permutation(shuffled[np.minimum(found, len(self) - 1)])

    @property
    def n_in_proportion(self) -> int:
        """How many examples `in_proportion` takes."""
        return max(1, round(self.counts))


@dataclass(frozen=True, slots=True)
class Batches:
    """(inputs, labels, weights) of every local step, each time in another order.

    All batches have the same size: all examples, or `size` of them in a random order, all before
    any comes again.
    """

    examples: WeightedExamples
    size: int | None
    n_steps: int

    def __len__(self) -> int:
        return self.n_steps

    def __iter__(self) -> Iterator[Batch]:
        held, n = self.examples, len(self.examples)
        for rows in batches(n, self.size, self.n_steps, rng=held.rng):
            if len(rows) == n:  # without a copy
                yield held.x, held.y, held.weight
            else:
                yield held.x[rows], held.y[rows], held.weight[rows]
