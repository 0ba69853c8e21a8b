"""The estimate of a round from answers on the disk, some parameters at a time.

The answers of large models are never all in memory. They are added up in the order of the roster,
so that who answered first does not matter. The formula is that of `fedcommons.estimators`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedcommons import estimators
from fedcommons.checks import FloatArray
from fedcommons.estimators import Arrivals, Comparison, Estimator
from fedcommons.federate.server.answer_files import AnswerFiles, Row, Values

BLOCK = 1 << 21  # numbers of all sites together, where they are needed at once
SOME = 1 << 17  # numbers of one answer: they stay in a processor's cache


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
    if estimator.combine is not None:
        return _combined(estimator, files, answers, arrivals, straggler_prob, weights), None
    if estimator.compares and memory is not None:
        arrivals = replace(arrivals, comparison=_comparison(files, answers, memory, arrivals))
    used_as = estimator.weigh(arrivals, straggler_prob)
    fresh = used_as.fresh if used_as.late is None else used_as.fresh + used_as.late
    parts = list(zip(answers, fresh, strict=True))
    if memory is not None:
        of_memory = zip(memory, used_as.remembered, strict=True)
        parts = [part for both in zip(parts, of_memory, strict=True) for part in both]
    used = [(row, weight) for row, weight in parts if row is not None and weight]
    total = np.zeros(files.n_params)
    buffer, scaled = np.empty(SOME, files.dtype), np.empty(SOME)
    for start in range(0, files.n_params, SOME):
        block = total[start : start + SOME]
        for row, weight in used:
            values = files.read(row, start, start + len(block), buffer)
            block += np.multiply(values, weight, out=scaled[: len(block)])
    if memory is None:
        return total, None
    return total, remember(estimator, files, answers, memory, arrivals, rates)


def _comparison(
    files: AnswerFiles,
    answers: Sequence[Row | None],
    memory: Sequence[Row | None],
    arrivals: Arrivals,
) -> Comparison:
    """Of the answers in time with what is remembered of their sites, `SOME` numbers at a time."""
    there = np.flatnonzero(arrivals.on_time).tolist()
    shares = np.ones(len(answers)) if arrivals.shares is None else arrivals.shares

    def parts() -> Iterator[tuple[FloatArray, FloatArray]]:
        step = max(SOME // max(len(there), 1), 1)
        for start in range(0, files.n_params, step):
            stop = min(start + step, files.n_params)
            both = np.zeros((2, len(there), stop - start))
            for rows, values in zip((answers, memory), both, strict=True):
                for place, i in enumerate(there):
                    if (row := rows[i]) is not None:
                        values[place] = files.read(row, start, stop)
            yield both[0], both[1]

    heard = np.array([memory[i] is not None for i in there], np.bool_)
    return Comparison.of(parts(), heard, shares[there])


def remember(
    estimator: Estimator,
    files: AnswerFiles,
    answers: Sequence[Row | None],
    memory: Sequence[Row | None],
    arrivals: Arrivals,
    rates: FloatArray | None = None,
) -> list[Row | None]:
    """What is remembered of each site from now on, also where answers come after the estimate.

    h + rate (f - h) is written over the answer f, where it is not the answer itself.
    """
    fresh = list(answers)
    if estimator.moves is not None or rates is not None:
        rate = np.ones(len(answers)) if rates is None else rates
        if estimator.moves is not None:
            rate = rate * estimator.moves(arrivals)
        for start, stop in files.steps():
            for i, (row, old) in enumerate(zip(fresh, memory, strict=True)):
                if row is not None:
                    f = files.read(row, start, stop).astype(np.float64)
                    h = np.zeros(1) if old is None else files.read(old, start, stop)
                    fresh[i] = files.change(row, start, h + rate[i] * (f - h))
    return [row or old for row, old in zip(fresh, memory, strict=True)]


def _combined(
    estimator: Estimator,
    files: AnswerFiles,
    answers: Sequence[Row | None],
    arrivals: Arrivals,
    straggler_prob: FloatArray,
    weights: FloatArray | None,
) -> FloatArray:
    """What an estimator that is not linear makes of all answers together, (P,)."""
    total = np.empty(files.n_params)
    step = max(BLOCK // len(answers), 1)
    for start in range(0, files.n_params, step):
        stop = min(start + step, files.n_params)
        block: Values = np.zeros((len(answers), stop - start), files.dtype)
        for values, row in zip(block, answers, strict=True):
            if row is not None:
                files.read(row, start, stop, values)
        total[start:stop], _ = estimators.estimate(
            estimator, None, block, arrivals, straggler_prob, weights=weights
        )
    return total


def changes(
    files: AnswerFiles, answers: Sequence[Row | None], memory: Sequence[Row | None] | None
) -> FloatArray:
    """How far each answer is from what is remembered of its site, or from 0: (N,).

    NaN for a site that did not answer.
    """
    found = np.full(len(answers), np.nan)
    for i, row in enumerate(answers):
        if row is None:
            continue
        before, squares = None if memory is None else memory[i], 0.0
        for start, stop in files.steps():
            part = np.asarray(files.read(row, start, stop), np.float64)
            if before is not None:
                part = part - files.read(before, start, stop)
            squares += float(part @ part)
        found[i] = np.sqrt(squares)
    return found
