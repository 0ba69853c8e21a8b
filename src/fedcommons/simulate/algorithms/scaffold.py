"""SCAFFOLD: control variates take the drift out of the local steps."""

from __future__ import annotations

import numpy as np

from fedcommons.simulate.algorithms.algorithm import (
    Algorithm,
    Float32,
    Local,
    averaged,
    own_examples,
)


def _against_drift(local: Local) -> Float32:
    """c - c_i, added to every local gradient."""
    return local.common - local.own


def _next_control(local: Local, total: Float32, n_steps: int) -> Float32:
    """Option II: c_i - c + (start - end) / (K eta); the way gone is eta times `total`."""
    return local.own - local.common + total / np.float32(n_steps)


scaffold = Algorithm(
    name="scaffold",
    source="Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, ICML 2020, Algorithm 1, option II",
    sharing="none",
    several_steps=True,
    batches=True,
    estimators=False,
    hold=own_examples,
    weigh=averaged,
    correction=_against_drift,
    next_state=_next_control,
)
"""The server's c is the mean of the clients' c_i. The paper weighs clients alike; here they count
by their number of examples, so that the objective is the same as everybody else's. A client that
straggles takes no part: its c_i stays."""
