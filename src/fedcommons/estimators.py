"""Estimators: what the server infers of the full gradient from the answers that arrived.

Every estimator here is linear: the estimate is sum_i u_i f_i + sum_i v_i h_i, where f_i is client
i's answer, h_i the last answer that the server remembers of it, and the weights u, v depend on who
answered and on the straggler probabilities alone. So an estimator is one function that returns the
weights; `estimate` applies them. The simulator uses the weights, the federation `estimate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedcommons import checks
from fedcommons.checks import BoolArray, FloatArray
from fedcommons.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Weights:
    """What each client's answer counts: shapes (..., N).

    Attributes:
        fresh: u, for this round's answers; 0 for an answer that is not used.
        remembered: v, for the remembered answers.
    """

    fresh: FloatArray
    remembered: FloatArray


@dataclass(frozen=True, slots=True)
class Estimator:
    """An estimator of the full gradient.

    Attributes:
        name: how studies and tables call it.
        unbiased: whether its mean is the full gradient for every code and all known p_i, if
            stragglers are independent of the past (docs/deviations.md, 11).
        remembers: whether it needs the last answer of each client.
        needs_everybody: whether it waits for all answers, whoever straggles.
        needs_p: whether its weights depend on p.
        weigh: (answered, p) -> weights, all of shape (..., N).
    """

    name: str
    unbiased: bool
    remembers: bool
    needs_everybody: bool
    needs_p: bool
    weigh: Callable[[BoolArray, FloatArray], Weights]


def _coded_sum(answered: BoolArray, p: FloatArray) -> Weights:
    return Weights(answered / (1 - p), np.zeros(answered.shape))


def _memory(answered: BoolArray, p: FloatArray) -> Weights:
    fresh = answered / (1 - p)
    return Weights(fresh, 1 - fresh)


def _responder_average(answered: BoolArray, _p: FloatArray) -> Weights:
    n_clients = answered.shape[-1]
    n_answers = answered.sum(axis=-1, keepdims=True)
    return Weights(answered * n_clients / np.maximum(n_answers, 1), np.zeros(answered.shape))


def _wait_for_all(answered: BoolArray, _p: FloatArray) -> Weights:
    return Weights(np.ones(answered.shape), np.zeros(answered.shape))


coded_sum = Estimator(
    name="coded_sum",
    unbiased=True,
    remembers=False,
    needs_everybody=False,
    needs_p=True,
    weigh=_coded_sum,
)
"""The paper's (eq. 3): sum what arrives, scaled by 1/(1 - p_i)."""

memory = Estimator(
    name="memory",
    unbiased=True,
    remembers=True,
    needs_everybody=False,
    needs_p=True,
    weigh=_memory,
)
"""sum_i h_i + sum_i I_i/(1-p_i) (f_i - h_i): only the change since the last answer is noisy.

Unbiased given the past if stragglers are independent of it, at no extra communication. Its
variance, sum_i p_i/(1-p_i) |f_i - h_i|^2, vanishes as training settles, if local gradients are
full-batch and steps are small. What is remembered depends on who answered, so with correlated
absences it is biased more than the coded sum (docs/deviations.md, 11)."""

responder_average = Estimator(
    name="responder_average",
    unbiased=False,
    remembers=False,
    needs_everybody=False,
    needs_p=False,
    weigh=_responder_average,
)
"""What frameworks do by default: N times the mean of the answers that arrived. Biased.

For comparison. Its mean is (1 - p^N) g if all p_i are equal; with unequal p_i it favours the
clients that answer more often."""

wait_for_all = Estimator(
    name="wait_for_all",
    unbiased=True,
    remembers=False,
    needs_everybody=True,
    needs_p=False,
    weigh=_wait_for_all,
)
"""The ideal: gradient descent that waits for everybody, however long it takes."""

ESTIMATORS = {e.name: e for e in (coded_sum, memory, responder_average, wait_for_all)}


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
    answered: npt.ArrayLike,
    straggler_prob: npt.ArrayLike,
) -> tuple[FloatArray, FloatArray | None]:
    """One round: the estimate of the full gradient, and the state for the next round.

    Args:
        state: what `start` or the last round returned.
        answers: (N, P) the clients' answers; the rows of clients that are not used may hold
            anything, NaN too.
        answered: (N,) who answered.
        straggler_prob: p for all clients or p_i for each, known or estimated from past rounds.

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
    answered = checks.mask("answered", answered, len(answers))
    weights = estimator.weigh(answered, checks.straggler_prob(straggler_prob, len(answers)))
    used = weights.fresh != 0
    _check_answers(answers, used)
    total = weights.fresh[used] @ answers[used]
    if not estimator.remembers:
        return total, None
    if state is None:
        raise ArgumentError(f"state must have the answers' shape {answers.shape}, got None")
    state = checks.finite("state", state, shape=answers.shape)
    total = total + weights.remembered @ state
    return total, np.where(answered[:, None], answers, state)


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


__all__ = [
    "ESTIMATORS",
    "Estimator",
    "Weights",
    "coded_sum",
    "estimate",
    "memory",
    "responder_average",
    "start",
    "wait_for_all",
]


def __dir__() -> list[str]:
    return __all__
