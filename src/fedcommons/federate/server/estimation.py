"""The estimate of a round from answers on the disk, block by block: never all of them at once.

Rows go in the order of the roster, and blocks depend on N and P alone: who answered first does not
matter. The formula is that of `fedcommons.estimators`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedcommons import estimators
from fedcommons.checks import FloatArray
from fedcommons.estimators import Arrivals, Estimator
from fedcommons.federate.server.answer_files import AnswerFiles, Row, Values

BLOCK = 1 << 21  # numbers of all sites together


def estimate(
    estimator: Estimator,
    files: AnswerFiles,
    answers: Sequence[Row | None],
    memory: Sequence[Row | None] | None,
    arrivals: Arrivals,
    straggler_prob: FloatArray,
    weights: FloatArray | None = None,
    rates: FloatArray | None = None,
) -> tuple[FloatArray, list[Row | None] | None]:
    """The estimate, (P,), and what is remembered of each site from now on.

    Args:
        answers, memory: of each site in the order of the roster; None for a site of which no answer
            came, in time or late, or of which nothing is remembered (its part is 0). No memory at
            all, None, if the estimator remembers nothing.
        arrivals: (N,) each.
        weights: the sum of each site's shares, if the estimator is not linear.
        rates: (N,) how far what is remembered moves towards an answer, beside what the estimator
            says; None for all the way.
    """
    fresh = list(answers)
    total = np.empty(files.n_params)
    for start, stop in _blocks(files, len(answers)):
        state = _state(files, memory, start, stop)
        block = _block(files, answers, start, stop)
        before = state
        total[start:stop], state = estimators.estimate(
            estimator, state, block, arrivals, straggler_prob, weights=weights
        )
        state = _moved(before, state, rates)
        _keep(estimator, files, fresh, state, start, rates)
    if memory is None:
        return total, None
    return total, [row or old for row, old in zip(fresh, memory, strict=True)]


def remember(
    estimator: Estimator,
    files: AnswerFiles,
    answers: Sequence[Row | None],
    memory: Sequence[Row | None],
    arrivals: Arrivals,
    rates: FloatArray | None = None,
) -> list[Row | None]:
    """What is remembered of each site from now on, where answers come after the estimate."""
    fresh = list(answers)
    if estimator.moves is not None or rates is not None:
        for start, stop in _blocks(files, len(answers)):
            state = _state(files, memory, start, stop)
            if state is not None:
                block = _block(files, answers, start, stop)
                state = _moved(state, estimators.remember(estimator, state, block, arrivals), rates)
            _keep(estimator, files, fresh, state, start, rates)
    return [row or old for row, old in zip(fresh, memory, strict=True)]


def _blocks(files: AnswerFiles, n_sites: int) -> Iterator[tuple[int, int]]:
    step = max(BLOCK // n_sites, 1)
    for start in range(0, files.n_params, step):
        yield start, min(start + step, files.n_params)


def _state(
    files: AnswerFiles, memory: Sequence[Row | None] | None, start: int, stop: int
) -> FloatArray | None:
    return None if memory is None else np.asarray(_block(files, memory, start, stop), np.float64)


def _moved(
    before: FloatArray | None, state: FloatArray | None, rates: FloatArray | None
) -> FloatArray | None:
    if rates is None or before is None or state is None:
        return state
    return np.asarray(before + rates[:, None] * (state - before))


def _keep(
    estimator: Estimator,
    files: AnswerFiles,
    fresh: list[Row | None],
    state: FloatArray | None,
    start: int,
    rates: FloatArray | None,
) -> None:
    """Have the new rows say what is remembered, where that is not the answer itself."""
    if (estimator.moves is not None or rates is not None) and state is not None:
        fresh[:] = [
            row and files.change(row, start, values)
            for row, values in zip(fresh, state, strict=True)
        ]


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
