"""Estimators: what the server infers of the full gradient from the answers that arrived.

Each is one file, a record `Estimator` that carries everything about itself. `estimate` applies its
weights; the fast engines of the simulator apply them where they like. `ESTIMATORS` finds one by its
name, yours too (docs/extend.md).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.errors import ArgumentError
from fedcommons.estimators.blended import blended
from fedcommons.estimators.coded_sum import coded_sum
from fedcommons.estimators.comparison import Comparison
from fedcommons.estimators.estimator import Arrivals, Estimator, SecondMoment, Weights
from fedcommons.estimators.fedasync import fedasync
from fedcommons.estimators.fedbuff import fedbuff
from fedcommons.estimators.filled import filled
from fedcommons.estimators.latest import latest
from fedcommons.estimators.memory import memory
from fedcommons.estimators.responder_average import responder_average
from fedcommons.estimators.trimmed_mean import trimmed_mean
from fedcommons.estimators.wait_for_all import wait_for_all
from fedcommons.registry import Registry

__all__ = [
    "ESTIMATORS",
    "Arrivals",
    "Comparison",
    "Estimator",
    "SecondMoment",
    "Weights",
    "blended",
    "coded_sum",
    "combined",
    "compared",
    "estimate",
    "fedasync",
    "fedbuff",
    "filled",
    "latest",
    "memory",
    "remember",
    "responder_average",
    "start",
    "trimmed_mean",
    "wait_for_all",
]

ESTIMATORS = Registry(
    "estimator",
    Estimator,
    (
        coded_sum,
        memory,
        latest,
        filled,
        blended,
        responder_average,
        wait_for_all,
        trimmed_mean,
        fedbuff,
        fedasync,
    ),
)


def start(
    estimator: Estimator, n_clients: int, n_params: int, *, warm: npt.ArrayLike | None = None
) -> FloatArray | None:
    """The state before the first round: the remembered answers, (N, P), or None.

    They are 0 (cold), or `warm`, each client's answer at the initial model, shape (N, P).
    """
    _check_estimator(estimator)
    shape = (checks.n_clients(n_clients), checks.integer("n_params", n_params, low=0))
    if warm is None:
        return np.zeros(shape) if estimator.remembers else None
    if not estimator.remembers:
        raise ArgumentError(f"warm needs an estimator that remembers, got {estimator.name}")
    return checks.finite("warm", warm, shape=shape).copy()


def estimate(
    estimator: Estimator,
    state: FloatArray | None,
    answers: npt.ArrayLike,
    answered: npt.ArrayLike | Arrivals,
    straggler_prob: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray | None]:
    """One round: the estimate of the full gradient, and the state for the next round.

    Args:
        state: what `start` or the last round returned.
        answers: (N, P) the clients' answers; the rows of clients that are not used may hold
            anything, NaN too.
        answered: (N,) who answered, where nothing is ever late; or what arrived, (N,) each. A row
            of `answers` is then the one answer of that client that came, in time or late.
        straggler_prob: p for all clients or p_i for each, known or estimated from past rounds.
        weights: (N,) W_i, the sum of each client's shares, which an estimator with `combine` needs.

    Returns:
        The estimate, shape (P,), and the new state.
    """
    _check_estimator(estimator)
    answers = np.asarray(answers)
    if answers.ndim != 2 or not np.issubdtype(answers.dtype, np.floating):
        raise ArgumentError(
            f"answers must be floats of shape (clients, params), "
            f"got dtype {answers.dtype}, shape {answers.shape}"
        )
    arrivals = _checked(answered, len(answers))
    if estimator.compares:
        _check_answers(answers, arrivals.on_time)
        arrivals = compared(arrivals, answers, _checked_state(state, answers))
    used_as = estimator.weigh(arrivals, checks.straggler_prob(straggler_prob, len(answers)))
    fresh = used_as.fresh if used_as.late is None else used_as.fresh + used_as.late
    used = fresh != 0
    _check_answers(answers, used)
    if estimator.combine is not None:
        return combined(estimator, answers, used, weights), None
    total = fresh[used] @ answers[used]
    if not estimator.remembers:
        return total, None
    state = _checked_state(state, answers)
    return total + used_as.remembered @ state, remember(estimator, state, answers, arrivals)


def _checked_state(state: FloatArray | None, answers: npt.NDArray[np.floating]) -> FloatArray:
    if state is None:
        raise ArgumentError(f"state must have the answers' shape {answers.shape}, got None")
    return checks.finite("state", state, shape=answers.shape)


def compared(
    arrivals: Arrivals,
    answers: npt.NDArray[np.floating],
    state: npt.NDArray[np.floating],
) -> Arrivals:
    """These arrivals with the `Comparison` of answers and what is remembered: (N, P) each.

    Rows of clients that do not answer in time, or that were never heard, may hold anything.
    """
    there = np.flatnonzero(arrivals.on_time)
    heard = np.ones(len(there), np.bool_) if arrivals.heard is None else arrivals.heard[there]
    shares = np.ones(len(there)) if arrivals.shares is None else arrivals.shares[there]
    f, h = (np.asarray(rows, np.float64)[there] for rows in (answers, state))
    return replace(arrivals, comparison=Comparison.of([(f, h)], heard, shares))


def remember(
    estimator: Estimator, state: FloatArray, answers: npt.NDArray[np.floating], arrivals: Arrivals
) -> FloatArray:
    """What is remembered from now on, (N, P): whatever came, in time or late, enters here.

    It does so after the estimate: a late answer that were remembered before it would take away the
    mean that the weights give.
    """
    came = arrivals.on_time | arrivals.late
    _check_answers(answers, came)
    if estimator.moves is None:
        return np.where(came[:, None], answers, state)
    rate = estimator.moves(arrivals)
    step = np.where(rate[:, None] != 0, answers - state, 0)
    return state + rate[:, None] * step


def _checked(answered: npt.ArrayLike | Arrivals, n: int) -> Arrivals:
    if not isinstance(answered, Arrivals):
        return Arrivals.now_or_never(checks.mask("answered", answered, n))
    on_time = checks.mask("on_time", answered.on_time, n)
    asked, late = checks.mask("asked", answered.asked, n), checks.mask("late", answered.late, n)
    if (wrong := (on_time & ~asked) | (late & asked)).any():
        raise ArgumentError(
            "on_time must be of clients that are asked, late of others, got both or neither of "
            f"client {int(np.argmax(wrong))}"
        )
    return answered


def combined(
    estimator: Estimator,
    answers: npt.NDArray[np.floating],
    used: BoolArray,
    weights: npt.ArrayLike | None,
) -> FloatArray:
    """What an estimator with `combine` makes of these answers: (P,), 0 if there are none.

    Clients whose shares sum to 0 know nothing of the full gradient.
    """
    if estimator.combine is None or weights is None:
        raise ArgumentError(f"weights must be given for the estimator {estimator.name}, got None")
    W = checks.finite("weights", weights, shape=(len(answers),))
    used = used & (W > 0)
    if not used.any():
        return np.zeros(answers.shape[1])
    return estimator.combine((W.sum() / W[used])[:, None] * answers[used])


def _check_estimator(estimator: object) -> None:
    if not isinstance(estimator, Estimator):
        raise ArgumentError(
            f"estimator must be an Estimator such as estimators.coded_sum, got {estimator!r}"
        )


def _check_answers(answers: npt.NDArray[np.floating], used: BoolArray) -> None:
    bad = used & ~np.isfinite(answers).all(axis=1)
    if bad.any():
        raise ArgumentError(
            f"answers must be finite where they are used, got NaN or infinity "
            f"from client {int(np.argmax(bad))}"
        )


def __dir__() -> list[str]:
    return __all__
