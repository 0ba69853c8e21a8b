"""What estimators that need all answers of a round make of those of a curve run, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedcommons import estimators
from fedcommons.checks import FloatArray
from fedcommons.estimators import Comparison, Estimator
from fedcommons.simulate.curve_runs import CurveRun

Float32 = npt.NDArray[np.float32]


def combined(
    estimator: Estimator, run: CurveRun, found: Mapping[int, Float32], n_params: int
) -> FloatArray:
    """What an estimator that is not linear makes of these clients' answers: (P,)."""
    W = np.asarray(run.held.sum(axis=1), np.float64).ravel()
    answers = np.zeros((len(W), n_params), np.float32)
    for client, answer in found.items():
        answers[client] = answer
    return estimators.combined(estimator, answers, np.isin(np.arange(len(W)), list(found)), W)


def compared(
    estimator: Estimator,
    run: CurveRun,
    t: int,
    found: Mapping[int, Float32],
    memory: Any,
    at: int,
) -> FloatArray | float:
    """sum_i u_i f_i, (P,), under weights that follow from a comparison; these are filled in.

    `memory`, (E, N, P), is what was remembered before the round, in row `at` of this curve run.
    """
    assert run.comparing is not None
    arrivals = run.comparing.arrivals[t]
    assert arrivals.heard is not None
    assert arrivals.shares is not None
    there = np.flatnonzero(arrivals.on_time)
    f, parts = np.zeros((0, 0)), []
    if len(there):
        f = np.stack([found[i] for i in there.tolist()]).astype(np.float64)
        h = np.asarray(memory[np.full(len(there), at), there], np.float64)
        parts = [(f, h)]
    comparison = Comparison.of(parts, arrivals.heard[there], arrivals.shares[there])
    weights = estimator.weigh(replace(arrivals, comparison=comparison), run.comparing.probs[t])
    run.fresh[t], run.remembered[t] = weights.fresh, weights.remembered
    if run.late is not None and weights.late is not None:
        run.late[t] = weights.late
    return weights.fresh[there] @ f if len(there) else 0.0
