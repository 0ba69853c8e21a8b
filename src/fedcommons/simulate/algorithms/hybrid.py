"""Hybrid: the server collects what is shared and joins in, as a client that never straggles."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, vstack

from fedcommons.checks import FloatArray
from fedcommons.estimators import Arrivals, Estimator, Weights
from fedcommons.simulate.algorithms.algorithm import Algorithm, Setup, averaged, own_examples


def _with_server(setup: Setup) -> csr_array:
    """The clients' own examples, and in the last row all that is shared."""
    return csr_array(vstack([own_examples(setup), csr_array(setup.shareable[None] * 1.0)]))


def _weigh(estimator: Estimator, held: csr_array, arrivals: Arrivals, p: FloatArray) -> Weights:
    answered = arrivals.on_time
    server = np.ones((*answered.shape[:-1], 1), np.bool_)
    with_server = np.concatenate([answered, server], axis=-1)
    return averaged(estimator, held, Arrivals.now_or_never(with_server), p)


hybrid = Algorithm(
    name="hybrid",
    source="Yoshida, Nishio, Morikura, Yamamoto, Yonetani, ICC 2020 (Hybrid-FL)",
    sharing="proportion",
    several_steps=True,
    batches=True,
    estimators=False,
    hold=_with_server,
    weigh=_weigh,
)
"""Averaged like `fedavg` with one more member. Owners go on training on what they shared, so shared
examples count twice when their owner answers."""
