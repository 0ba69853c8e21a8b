"""The draw: who gets a copy of which example. Every party computes it from the epoch's seed.

A site's shareable examples have share numbers 0, 1, ...; each goes to a uniformly random d-subset
of the other sites. The subsets are drawn in blocks of share numbers, and each block has a random
stream of its own, named by the seed, the sender and the block. So every party can look up any part
of the table. Streams use the sender's name and not its key, so new keys do not change the draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons.checks import IntArray
from fedcommons.streams import stream
from fedcommons.subsets import random_subsets

BLOCK = 1 << 14


@dataclass(frozen=True, slots=True)
class Draw:
    """The table of randomised sharing, of which only the parts that are asked for are drawn.

    Attributes:
        seed, copies: the epoch's seed and d.
        sites, n_shareable: each site's name and number of shareable examples, in roster order.
    """

    seed: int
    copies: int
    sites: tuple[str, ...]
    n_shareable: tuple[int, ...]

    def recipients(self, sender: int, start: int, stop: int) -> npt.NDArray[np.int32]:
        """Who gets each share number in [start, stop): (numbers, d) places, sorted."""
        parts = [np.empty((0, self.copies), np.int32)]
        for block in range(start // BLOCK, -(-stop // BLOCK)):
            first = block * BLOCK
            rows = self._block(sender, block)
            parts.append(rows[max(start - first, 0) : stop - first])
        return np.concatenate(parts)

    def recipients_of(self, sender: int, numbers: IntArray) -> npt.NDArray[np.int32]:
        """Who gets each of these ascending share numbers: (numbers, d) places, sorted."""
        out = np.empty((len(numbers), self.copies), np.int32)
        for block in np.unique(numbers // BLOCK).tolist():
            here = slice(*np.searchsorted(numbers, [block * BLOCK, (block + 1) * BLOCK]))
            out[here] = self._block(sender, block)[numbers[here] - block * BLOCK]
        return out

    def _block(self, sender: int, block: int) -> npt.NDArray[np.int32]:
        n = min(BLOCK, self.n_shareable[sender] - block * BLOCK)
        rng = stream(self.seed, "sharing", self.sites[sender], block)
        others = random_subsets(n, self.copies, len(self.sites) - 1, rng=rng)
        others += others >= sender  # everybody but the sender
        return others

    def assigned(
        self, sender: int, recipient: int, start: int = 0, stop: int | None = None
    ) -> IntArray:
        """The sender's share numbers in [start, stop) that go to the recipient, ascending."""
        parts = self._assigned(sender, recipient, start, stop)
        return np.concatenate([np.empty(0, np.int64), *parts])

    def n_assigned(self, sender: int, recipient: int) -> int:
        """How many of the sender's examples go to the recipient, in bounded memory."""
        return sum(len(part) for part in self._assigned(sender, recipient, 0, None))

    def _assigned(
        self, sender: int, recipient: int, start: int, stop: int | None
    ) -> Iterator[IntArray]:
        n = self.n_shareable[sender]
        stop = n if stop is None else min(stop, n)
        for first in range(start - start % BLOCK, stop, BLOCK):
            low, high = max(first, start), min(first + BLOCK, stop)
            mine = (self.recipients(sender, low, high) == recipient).any(axis=1)
            yield low + np.flatnonzero(mine)
