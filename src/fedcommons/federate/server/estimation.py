"""The estimate of a round from answers on the disk, block by block: never all of them at once.

Rows go in the order of the roster, and blocks depend on N and P alone: who answered first does not
matter. The formula is that of `fedcommons.estimators`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcommons import estimators
from fedcommons.checks import FloatArray
from fedcommons.estimators import Estimator
from fedcommons.federate.server.answer_files import AnswerFiles, Row, Values

BLOCK = 1 << 21  # numbers of all sites together


def estimate(
    estimator: Estimator,
    files: AnswerFiles,
    answers: Sequence[Row | None],
    memory: Sequence[Row | None] | None,
    straggler_prob: FloatArray,
    weights: FloatArray | None = None,
    rates: FloatArray | None = None,
) -> tuple[FloatArray, list[Row | None] | None]:
    """The estimate, (P,), and what is remembered of each site from now on.

    Args:
        answers, memory: of each site in the order of the roster; None for a site that did not
            answer, or of which nothing is remembered (its part is 0). No memory at all, None, if
            the estimator remembers nothing.
        weights: the sum of each site's shares, if the estimator is not linear.
        rates: (N,) how far what is remembered moves towards an answer, beside what the estimator
            says; None for all the way.
    """
    answered = np.array([row is not None for row in answers])
    fresh = list(answers)
    total = np.empty(files.n_params)
    step = max(BLOCK // len(answers), 1)
    for start in range(0, files.n_params, step):
        stop = min(start + step, files.n_params)
        state: FloatArray | None = None
        if memory is not None:
            state = np.asarray(_block(files, memory, start, stop), np.float64)
        block = _block(files, answers, start, stop)
        before = state
        total[start:stop], state = estimators.estimate(
            estimator, state, block, answered, straggler_prob, weights=weights
        )
        if rates is not None and before is not None and state is not None:
            state = before + rates[:, None] * (state - before)
        if (estimator.moves is not None or rates is not None) and state is not None:
            fresh = [
                row and files.change(row, start, values)
                for row, values in zip(fresh, state, strict=True)
            ]
    if memory is None:
        return total, None
    return total, [row or old for row, old in zip(fresh, memory, strict=True)]


def changes(
    files: AnswerFiles, answers: Sequence[Row | None], memory: Sequence[Row | None] | None
) -> FloatArray:
    """How far each answer is from what is remembered of its site, or from 0: (N,).

    NaN for a site that did not answer.
    """
    found, step = np.full(len(answers), np.nan), BLOCK
    for i, row in enumerate(answers):
        if row is None:
            continue
        before, squares = None if memory is None else memory[i], 0.0
        for start in range(0, files.n_params, step):
            stop = min(start + step, files.n_params)
            part = np.asarray(files.read(row, start, stop), np.float64)
            if before is not None:
                part = part - files.read(before, start, stop)
            squares += float(part @ part)
        found[i] = np.sqrt(squares)
    return found


def _block(files: AnswerFiles, rows: Sequence[Row | None], start: int, stop: int) -> Values:
    """The numbers [start, stop) of all these rows, (N, stop - start)."""
    found = np.zeros((len(rows), stop - start), files.dtype)
    for values, row in zip(found, rows, strict=True):
        if row is not None:
            values[:] = files.read(row, start, stop)
    return found
