"""How large answers are, and what becomes of those that are too large."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import bounds
from fedcommons.checks import FloatArray
from fedcommons.errors import FederationError
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.refusals import AnswerRefused
from fedcommons.federate.server.answer_files import AnswerFiles
from fedcommons.federate.server.round_answers import RoundAnswers

LARGEST_NUMBER = 1e100  # an answer's size: what is beyond is no gradient
ABSURD = 1e-3  # an answer that would be clipped to less is not used at all
SOME = 1 << 15  # numbers that stay in a processor's cache


def norm(parts: Sequence[npt.NDArray[Any]]) -> float:
    """The size of an answer; refused if it is of no numbers, or no number can say it.

    One pass: the sum of squares says whether there is anything to find.
    """
    squares = sum((np.vdot(some, some) for part in parts for some in _in_float64(part)), start=0.0)
    if not squares <= LARGEST_NUMBER**2:
        if not all(np.isfinite(part).all() for part in parts):
            raise AnswerRefused("NaN or infinity")
        raise AnswerRefused("absurd values")
    return math.sqrt(squares)


def _in_float64(part: npt.NDArray[Any]) -> Iterator[FloatArray]:
    """A part, some at a time, each until the next: a copy of it all is as large as the model."""
    flat, buffer = part.reshape(-1), np.empty(SOME)
    for start in range(0, len(flat), SOME):
        some = flat[start : start + SOME]
        found = buffer[: len(some)]
        with np.errstate(over="ignore", invalid="ignore"):
            found[:] = some
            yield found


def bound(
    commit: Commit,
    found: RoundAnswers,
    files: AnswerFiles,
    last: dict[str, list[float]],
    factor: float,
    weights: FloatArray,
) -> None:
    """Clip answers that are too large for what their sites have; refuse the absurd.

    An answer is durable only with the next checkpoint, so it may be changed. `last` has the sizes
    of each site's last answers, by its identity; these are added. `weights` are the sums of sites'
    shares.
    """
    if not factor or not found.norms:
        return
    members, places, rows = commit.members, sorted(found.norms), found.all_rows
    norms = np.array([found.norms.get(place, 0.0) for place in range(len(members))])
    sizes = bounds.per_unit(norms, weights)
    known = [last.get(member.identity, []) for member in members]
    before = np.array([x + [np.nan] * (bounds.LAST - len(x)) for x in known])
    after = bounds.Sizes(before).observe(sizes, np.isin(np.arange(len(members)), places))
    factors = after.factors(sizes, factor)
    for place in places:
        by, row = float(factors[place]), rows[place]
        if row is not None and by < ABSURD:
            found.bad[place] = "absurd values"
            found.refuse(place, members[place].site, "absurd values")
            found.replace_row(place, None, "absurd values")
        elif row is not None and by < 1:
            found.clipped[place] = by
            found.replace_row(place, files.scaled(row, by))
        now = after.last[place]
        last[members[place].identity] = now[np.isfinite(now)].tolist()


def not_finite(
    commit: Commit, found: RoundAnswers, files: AnswerFiles, t: int, rate: float
) -> FederationError:
    """What is wrong where the step after round t leads to no numbers."""
    rows = found.all_rows
    sizes = np.array([0.0 if row is None else files.largest(row) for row in rows])
    largest, usual = int(sizes.argmax()), np.median(sizes[[row is not None for row in rows]])
    return FederationError(
        f"the model is not finite any more after round {t + 1}, with learning_rate {rate:g} and "
        f"answers of up to {sizes[largest]:.3g}, by {commit.members[largest].site} (the median "
        f"site's: {usual:.3g}); the model of round {t} is kept"
    )
