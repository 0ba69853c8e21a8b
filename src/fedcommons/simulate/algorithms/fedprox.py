"""FedProx: federated averaging whose clients are held back towards the server's model."""

from __future__ import annotations

from fedcommons.simulate.algorithms.algorithm import (
    Algorithm,
    Float32,
    Local,
    averaged,
    own_examples,
)


def _pull(local: Local) -> Float32:
    """The gradient of (mu/2) |w - start|^2."""
    return local.mu * (local.params - local.start)


fedprox = Algorithm(
    name="fedprox",
    source="Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, MLSys 2020, Algorithm 2",
    sharing="none",
    several_steps=True,
    batches=True,
    estimators=False,
    hold=own_examples,
    weigh=averaged,
    uses=("mu",),
    correction=_pull,
)
"""The local loss gains (mu/2) |w - start|^2; averaged like `fedavg`. Clients that straggle answer
nothing: the paper's partial work is not modelled."""
