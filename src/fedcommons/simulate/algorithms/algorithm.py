"""What an algorithm is: who holds what, what a local step adds, what the server makes of answers.

In every round each client that takes part starts from the server's model and takes `local_steps`
steps of size eta on a mean over its batch of weighted loss. Its answer is W_i times the sum of its
steps' gradients, f_i = W_i sum_k (g_ik + correction_ik), with W_i the sum of its weights, by which
the mean is normalised (`coding.loss_weights`): with one full step that is the sum of weight times
gradient over the examples that it holds. The server moves the model by -(eta/M) sum_i u_i f_i (plus
what it remembers, where an estimator does). An algorithm is what it puts in: the weights of the
loss, the weights u of the answers, and the correction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from fedcommons.checks import BoolArray, FloatArray, IntArray
from fedcommons.estimators import Arrivals, Estimator, Weights

Float32 = npt.NDArray[np.float32]
SHARING = ("none", "proportion", "proportion-and-copies", "everything")


@dataclass(frozen=True, slots=True)
class Setup:
    """One run of one curve before training, as algorithms see it.

    Attributes:
        owner: (M,).
        shareable: (M,).
        n_clients: N.
        copies: d.
        shares: the code of the curve, (N, M), computed when it is asked for.
        rng: for an algorithm's own draws.
    """

    owner: IntArray
    shareable: BoolArray
    n_clients: int
    copies: int
    shares: Callable[[], csr_array]
    rng: np.random.Generator


@dataclass(frozen=True, slots=True)
class Local:
    """Clients in the middle of their local steps: arrays (B, P), `mu` (B, 1)."""

    params: Float32
    start: Float32
    own: Float32  # each client's state
    common: Float32  # the server's state
    mu: Float32


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to train.

    Attributes:
        name: how studies call it.
        source: where it comes from.
        sharing: what of c and d it has a use for, one of `SHARING`; "everything" is c = 1.
        several_steps: whether clients may take more than one local step.
        batches: whether a step may be on a part of a client's examples.
        estimators: whether the estimator and the code are the study's choice.
        uses: the fields of a curve that it alone has a use for, such as "mu".
        hold: setup -> loss weights, sparse, (N', M); a row past the N clients is the server.
        weigh: (estimator, hold's weights, what arrived (T, N), p (N,) or (T, N)) -> weights of
            answers, (T, N').
        examples: (hold's weights, answered (T, N), p (N,)) -> what each example's gradient counts
            in each round, (T, M), where what a client computes depends on who else is there; None
            if it follows from the weights of answers.
        correction: what is added to every local gradient; None for nothing.
        next_state: (a client's state as the round ends, sum of its steps' gradients with their
            corrections, number of steps) -> its next state; None for no state. The server's state
            is the mean of the clients' by their number of examples.
    """

    name: str
    source: str
    sharing: str
    several_steps: bool
    batches: bool
    estimators: bool
    hold: Callable[[Setup], csr_array]
    weigh: Callable[[Estimator, csr_array, Arrivals, FloatArray], Weights]
    uses: tuple[str, ...] = ()
    examples: Callable[[csr_array, BoolArray, FloatArray], FloatArray] | None = None
    correction: Callable[[Local], Float32] | None = None
    next_state: Callable[[Local, Float32, int], Float32] | None = None


def own_examples(setup: Setup) -> csr_array:
    """Every client holds what it owns, each example with weight 1."""
    return _ones(setup.owner, np.arange(len(setup.owner)), setup)


def own_and_shared(setup: Setup) -> csr_array:
    """Every client holds what it owns and all that anybody shares, each with weight 1."""
    shared = np.flatnonzero(setup.shareable)
    everywhere = np.repeat(np.arange(setup.n_clients), len(shared))
    again = setup.owner[np.tile(shared, setup.n_clients)] == everywhere
    rows = np.concatenate([setup.owner, everywhere[~again]])
    columns = np.tile(shared, setup.n_clients)[~again]
    return _ones(rows, np.concatenate([np.arange(len(setup.owner)), columns]), setup)


def _ones(rows: IntArray, columns: IntArray, setup: Setup) -> csr_array:
    shape = (setup.n_clients, len(setup.owner))
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


def estimated(estimator: Estimator, _held: csr_array, arrivals: Arrivals, p: FloatArray) -> Weights:
    """The weights of the study's estimator."""
    return estimator.weigh(arrivals, p)


def averaged(_estimator: Estimator, held: csr_array, arrivals: Arrivals, _p: FloatArray) -> Weights:
    """The mean of those who answered by their number of examples; without any the model stays.

    The model moves by -eta sum_S n_i G_i / sum_S n_i, with G_i the sum of a client's steps.
    """
    answered, sizes = arrivals.on_time, np.diff(held.indptr)
    present = (answered @ sizes)[..., None]
    fresh = answered * (held.shape[1] / np.maximum(present, 1))
    return Weights(fresh, np.zeros(answered.shape))
