"""The implementations that the contract suites run over, and small federations to run them on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from fedcommons import coding, partition, privacy, sharing
from fedcommons.placement import Placement

PARTITIONS: dict[str, Callable[..., np.ndarray]] = {
    "iid": lambda labels, n, rng: partition.iid(labels, n, rng=rng),
    "single_class": lambda labels, n, rng: partition.single_class(labels, n, rng=rng),
    "dirichlet": lambda labels, n, rng: partition.dirichlet(labels, n, 0.3, rng=rng),
}

SCHEMES: dict[str, Callable[..., Placement]] = {
    "none": lambda labels, owner, shareable, d, n, rng: sharing.none(owner, n_clients=n),
    "randomised": lambda labels, owner, shareable, d, n, rng: sharing.randomised(
        owner, shareable, d, n_clients=n, rng=rng
    ),
    "per_client": lambda labels, owner, shareable, d, n, rng: sharing.per_client(
        owner, shareable, d, n_clients=n, rng=rng
    ),
    "optimal": lambda labels, owner, shareable, d, n, rng: sharing.optimal(
        labels, owner, shareable, copies=d, n_clients=n, rng=rng
    ),
    "optimal_early": lambda labels, owner, shareable, d, n, rng: sharing.optimal(
        labels, owner, shareable, copies=d, n_clients=n, rng=rng, stop_early=True
    ),
}

CODES: dict[str, Callable[..., coding.csr_array]] = {
    "equal_split": lambda placement, p, w: coding.equal_split(placement),
    "reliability_split": lambda placement, p, w: coding.reliability_split(placement, p),
    "owner_corrected": lambda placement, p, w: coding.owner_corrected(placement, w),
}


def federation(
    *, n_clients: int, n_examples: int, n_classes: int, c: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random labels, owners and mask; classes and clients may be empty."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n_examples)
    owner = rng.integers(0, n_clients, n_examples)
    shareable = privacy.proportion(labels, owner, c, n_clients=n_clients, rng=rng)
    return labels, owner, shareable


@st.composite
def federations(draw: st.DrawFn) -> dict[str, object]:
    """Arguments of `federation` and d, awkward places included."""
    n_clients = draw(st.integers(1, 7))
    return {
        "n_clients": n_clients,
        "n_examples": draw(st.integers(0, 30)),
        "n_classes": draw(st.integers(1, 4)),
        "c": draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        "copies": draw(st.integers(0, n_clients - 1)),
        "seed": draw(st.integers(0, 2**20)),
    }
