"""What clients do in a round, many of them at once: local steps on what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons.batches import batches
from fedcommons.checks import IntArray
from fedcommons.simulate.models import OnExamples

Float32 = npt.NDArray[np.float32]
EXAMPLES_AT_ONCE = 8192  # gathered for one batch of clients, about
NUMBERS_AT_ONCE = 1 << 24  # parameters of one batch of clients, about
Correction = Callable[[Float32, Float32, IntArray], Float32]  # params, start, which clients


@dataclass(frozen=True, slots=True)
class HeldExamples:
    """What one client holds: places among its run's examples, and the weight of each one's loss."""

    examples: IntArray
    weight: Float32


def totals(
    model: OnExamples,
    runs: IntArray,
    clients: Sequence[HeldExamples],
    start: Float32,
    rates: Float32,
    *,
    n_steps: int = 1,
    batch_size: int | None = None,
    rngs: Sequence[np.random.Generator] | None = None,
    correction: Correction | None = None,
) -> Iterator[tuple[IntArray, Float32]]:
    """The sum of each client's gradients over its steps.

    Every step is on the mean over its batch of weight times loss, plus the correction; clients
    without examples are left out. `runs` is (B,), `start` (B, P), `rates` (B,). Yields some
    clients' places and their sums, (b, P), until all are done.
    """
    sizes = np.array([len(client.examples) for client in clients])
    order = np.argsort(sizes, kind="stable")  # little padding
    order = order[sizes[order] > 0]
    while len(order):
        widest = np.arange(1, len(order) + 1) * sizes[order]
        fit = (widest <= EXAMPLES_AT_ONCE) & (
            np.arange(1, len(order) + 1) * start.shape[1] <= NUMBERS_AT_ONCE
        )
        n_now = max(1, int(np.count_nonzero(fit)))
        now, order = order[:n_now], order[n_now:]
        drawn = [batches(sizes[b], batch_size, n_steps, rng=rngs[b] if rngs else None) for b in now]
        mine = [clients[b] for b in now]
        begin, eta = start[now], rates[now, None]
        params, total = begin, np.zeros_like(begin)
        whole = not batch_size or sizes[now].max() <= batch_size
        examples, weight = _padded(mine, [next(d) for d in drawn])
        for step in range(n_steps):
            if step > 0:
                params = begin - eta * total
            if step > 0 and not whole:
                examples, weight = _padded(mine, [next(d) for d in drawn])
            total += model.gradients(params, runs[now], examples, weight)
            if correction is not None:
                total += correction(params, begin, now)
        yield now, total


def _padded(
    clients: Sequence[HeldExamples], chosen: Sequence[IntArray]
) -> tuple[IntArray, Float32]:
    """The examples chosen of each, and their weights / batch size, as `padded`."""
    return padded(
        [
            HeldExamples(client.examples[places], client.weight[places] / np.float32(len(places)))
            for client, places in zip(clients, chosen, strict=True)
        ]
    )


def padded(parts: Sequence[HeldExamples]) -> tuple[IntArray, Float32]:
    """Examples and weights, (b, H), filled up with example -1 and weight 0."""
    width = max(1, *(len(part.examples) for part in parts))
    examples = np.full((len(parts), width), -1, np.int64)
    weight = np.zeros((len(parts), width), np.float32)
    for b, part in enumerate(parts):
        examples[b, : len(part.examples)] = part.examples
        weight[b, : len(part.examples)] = part.weight
    return examples, weight


def that_count(weights: Float32) -> tuple[IntArray, Float32]:
    """The examples that have a weight, of weights (b, M), and these weights: (b, H)."""
    places = [np.flatnonzero(one) for one in weights]
    parts = zip(places, weights, strict=True)
    return padded([HeldExamples(place, one[place]) for place, one in parts])
