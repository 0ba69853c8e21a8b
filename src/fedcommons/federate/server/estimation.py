"""The estimate of a round from answers on the disk, some parameters at a time.

The answers of large models are never all in memory. They are added up in the order of the roster,
so that who answered first does not matter. The formula is that of `fedcommons.estimators`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcommons import estimators
from fedcommons.checks import FloatArray
from fedcommons.estimators import Arrivals, Estimator
from fedcommons.federate.server.answer_files import AnswerFiles, Row, Values

BLOCK = 1 << 21  # numbers of all sites together, where they are needed at once
SOME = 1 << 17  # numbers of one answer: they stay in a processor's cache


def estimate(
    estimator: Estimator,
    files: AnswerFiles,
    answers: Sequence[Row | None],
    memory: Sequence[Row | None] | None,
    straggler_prob: FloatArray,
    weights: FloatArray | None = None,
) -> tuple[FloatArray, list[Row | None] | None]:
    """The estimate, (P,), and what is remembered of each site from now on.

    Args:
        answers, memory: of each site in the order of the roster; None for a site that did not
            answer, or of which nothing is remembered (its part is 0). No memory at all, None, if
            the estimator remembers nothing.
        weights: the sum of each site's shares, if the estimator is not linear.
    """
    if estimator.combine is not None:
        return _combined(estimator, files, answers, straggler_prob, weights), None
    arrivals = Arrivals.now_or_never(np.array([row is not None for row in answers]))
    used_as = estimator.weigh(arrivals, straggler_prob)
    old = [None] * len(answers) if memory is None else list(memory)
    sites = list(zip(answers, old, used_as.fresh, used_as.remembered, strict=True))
    total = np.zeros(files.n_params)
    buffer, scaled = np.empty(SOME, files.dtype), np.empty(SOME)
    for start in range(0, files.n_params, SOME):
        block = total[start : start + SOME]
        stop = start + len(block)
        for new, before, u, v in sites:
            for row, weight in ((new, u), (before, v)):
                if row is not None and weight:
                    part = files.read(row, start, stop, buffer)
                    block += np.multiply(part, weight, out=scaled[: len(part)])
    if memory is None:
        return total, None
    fresh = list(answers)
    if estimator.moves is not None:
        fresh = _moved(files, answers, old, estimator.moves(arrivals))
    return total, [row or before for row, before in zip(fresh, old, strict=True)]


def _moved(
    files: AnswerFiles,
    answers: Sequence[Row | None],
    memory: Sequence[Row | None],
    rates: FloatArray,
) -> list[Row | None]:
    """h + rate (f - h), (P,) of each site, written over the answer f."""
    moved = list(answers)
    for start, stop in files.steps():
        for i, (row, old, rate) in enumerate(zip(moved, memory, rates, strict=True)):
            if row is None:
                continue
            f = files.read(row, start, stop).astype(np.float64)
            h = np.zeros_like(f) if old is None else files.read(old, start, stop)
            moved[i] = files.change(row, start, h + rate * (f - h))
    return moved


def _combined(
    estimator: Estimator,
    files: AnswerFiles,
    answers: Sequence[Row | None],
    straggler_prob: FloatArray,
    weights: FloatArray | None,
) -> FloatArray:
    """What an estimator that is not linear makes of all answers together, (P,)."""
    answered = np.array([row is not None for row in answers])
    total = np.empty(files.n_params)
    step = max(BLOCK // len(answers), 1)
    for start in range(0, files.n_params, step):
        stop = min(start + step, files.n_params)
        block: Values = np.zeros((len(answers), stop - start), files.dtype)
        for values, row in zip(block, answers, strict=True):
            if row is not None:
                files.read(row, start, stop, values)
        total[start:stop], _ = estimators.estimate(
            estimator, None, block, answered, straggler_prob, weights=weights
        )
    return total
