"""How much of its data a client works on when it is asked, and which examples these are.

`full`: all that it holds. `mini`: a random batch, of one size for everybody. `sized`: a random
batch of as many as it manages in a given time; `anytime` is the same in a tick that everybody is
given. `chunk` and `sagachunk`: its examples are cut into chunks of as many as it manages, and it
works on one of them, in turn or at random; what each gave last is remembered. Whatever it works on,
its answer stands for all that it holds (`Work.scale`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from fedcommons import checks
from fedcommons.checks import FloatArray, IntArray
from fedcommons.delays import Delays
from fedcommons.errors import ArgumentError

WORKS = ("full", "mini", "sized", "anytime", "chunk", "sagachunk")
TO_MEASURE = ("sized", "anytime", "chunk", "sagachunk")  # whose size follows from the speed
IN_CHUNKS = ("chunk", "sagachunk")
FITS = "fits"  # one of these two, by the model: `kind_that_fits`
HALF, NOT_TO_SPARE = 0.5, 0.8
MINI = re.compile(r"mini:([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Work:
    """What is asked of a client.

    Attributes:
        kind: one of `WORKS`.
        size: the examples of a batch, for "mini".
    """

    kind: str = "full"
    size: int = 0

    def __post_init__(self) -> None:
        if self.kind not in WORKS:
            raise ArgumentError(f"work must be one of {', '.join(WORKS)}, got {self.kind!r}")
        if self.kind == "mini":
            checks.integer("size", self.size, low=1)
        elif self.size:
            raise ArgumentError(f"size must go with work = 'mini', got {self.size}")

    @property
    def in_chunks(self) -> bool:
        return self.kind in IN_CHUNKS

    @property
    def follows_speed(self) -> bool:
        return self.kind in TO_MEASURE

    def sizes(self, held: IntArray, fitting: FloatArray | None = None) -> IntArray:
        """How many of the examples that each client holds it works on when asked: (N,).

        Args:
            held: (N,) how many each holds.
            fitting: (N,) how many it manages in the time it has, for work that follows speed.
        """
        if self.kind == "full":
            return held
        if self.kind == "mini":
            return np.minimum(held, self.size)
        if fitting is None:
            raise ArgumentError(f"fitting must be given for work = {self.kind!r}, got None")
        return np.minimum(held, np.maximum(1, np.minimum(fitting, held).astype(np.int64)))

    def scale(self, held: int, worked_on: int, n_chunks: int) -> float:
        """What the gradient of its part counts in a client's answer.

        With the remembered gradient r of a chunk, of which h is the sum, the answer is
        h + scale (g - r).
        """
        if self.kind == "chunk":
            return 1.0
        return float(n_chunks) if self.kind == "sagachunk" else held / worked_on


def parse(word: str) -> Work:
    """The work that a word names: "full", "mini:32", "sized", "anytime", "chunk", "sagachunk"."""
    if found := MINI.fullmatch(word):
        return Work("mini", int(found[1]))
    if word in WORKS and word != "mini":
        return Work(word)
    known = ", ".join(f'"{kind}"' for kind in WORKS).replace("mini", "mini:B")
    raise ArgumentError(f"work must be one of {known}, got {word!r}")


def kind_that_fits(*, linear: bool) -> str:
    """Which work is cut to a client's speed unless somebody chooses: "chunk" for a linear model,
    else "sagachunk".

    The latest gradient of every chunk makes the steadiest steps. But it lags behind the model,
    which costs little where gradients change slowly and much where they do not; a random chunk
    without bias does not lag.
    """
    return "chunk" if linear else "sagachunk"


def time_to_work(deadline: float, link: float | None = None) -> float:
    """How many seconds of a deadline work is to take, by the ways there and back; >= 0.

    Where these are not known they may take half of it. The next answer may take longer than those
    before, so a fifth of what they leave is to spare.
    """
    if link is None:
        return HALF * deadline
    return NOT_TO_SPARE * max(deadline - link, 0.0)


def fitting(delays: Delays, seconds: float, per_example: float, n_clients: int) -> FloatArray:
    """How many examples each client works through in so many seconds on average, fractions too.

    Stalls do not count: whoever stalls is late whatever its work. (N,); infinity for clients whose
    jobs take the same time whatever the work.

    Args:
        seconds: from being asked to the answer's arrival.
        per_example: multiply-adds.
    """
    one = delays.mean(np.full(n_clients, per_example)) - delays.mean(np.zeros(n_clients))
    with np.errstate(divide="ignore"):
        return np.where(one > 0, np.maximum(seconds - delays.links(), 0) / one, np.inf)


def chunks(places: IntArray, size: int, *, least: int = 1) -> list[IntArray]:
    """These places cut into chunks alike in size: at most `size` each, but never below `least`.

    A remainder joins its neighbours.
    """
    checks.integer("size", size, low=1)
    wanted = -(-len(places) // size)
    most = max(1, len(places) // max(1, least))
    return np.array_split(places, min(max(1, wanted), most))


__all__ = ["FITS", "WORKS", "Work", "chunks", "fitting", "kind_that_fits", "parse", "time_to_work"]


def __dir__() -> list[str]:
    return __all__
