"""A curve: one way to train, averaged over many runs and drawn as one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS
from fedcommons.simulate import models, recordings
from fedcommons.simulate.algorithms import ALGORITHMS, Algorithm
from fedcommons.stragglers import Bernoulli, Markov, StragglerModel

PARTITIONS = ("iid", "single-class", "dirichlet")
STRAGGLERS = ("bernoulli", "markov", "recorded")
AS_IT_IS = -1.0  # the server's idea of p is p


@dataclass(frozen=True, slots=True)
class Curve:
    """One setting of everything that may differ between the lines of a figure.

    Attributes:
        partition: how labels fall on clients: iid, single-class or dirichlet.
        alpha: the concentration of a Dirichlet partition, else 0.
        straggler_prob: p, of all clients or their mean.
        proportion: c.
        copies: d.
        code: equal-split (the paper's), reliability-split or owner-corrected.
        estimator: coded_sum (the paper's), memory, responder_average or wait_for_all.
        warm: whether memory starts from everybody's answer at the initial model.
        learning_rate: eta in the first round.
        decay: its factor from one round to the next.
        stragglers: bernoulli (the paper's), markov, or recorded.
        mean_absence: rounds that an absence lasts on average, of markov, else 0.
        assumed_prob: the p that the server assumes, if it is wrong about it.
        algorithm: one of `ALGORITHMS`; coded_gd is the paper's.
        model: softmax (the paper's), mlp, cnn, or the import path of a torch module.
        local_steps: steps that a client takes in a round.
        batch_size: examples of a client in a step; 0 is all of them.
        server_rate: factor of the server's step.
        mu: how strongly fedprox pulls towards the server's model, else 0.
        prob_spread: how far the p_i of the first and the last client are from p.
        trace: the file of recorded absences, else empty.
        trace_digest: of its content, once it has been read.
    """

    partition: str
    alpha: float = 0.0
    straggler_prob: float = 0.0
    proportion: float = 0.0
    copies: int = 0
    code: str = "equal-split"
    estimator: str = "coded_sum"
    warm: bool = False
    learning_rate: float = 0.1
    decay: float = 0.97
    stragglers: str = "bernoulli"
    mean_absence: float = 0.0
    assumed_prob: float = AS_IT_IS
    algorithm: str = "coded_gd"
    model: str = "softmax"
    local_steps: int = 1
    batch_size: int = 0
    server_rate: float = 1.0
    mu: float = 0.0
    prob_spread: float = 0.0
    trace: str = ""
    trace_digest: str = ""

    def __post_init__(self) -> None:
        for name in VALUES:
            if getattr(self, name) != WITHOUT.get(name):
                check_value(name, getattr(self, name))
        if self.partition == "dirichlet":
            if not self.alpha:
                raise ArgumentError("alpha must be > 0: the dirichlet partition needs it, got 0")
        elif self.alpha != 0:
            raise ArgumentError(f"alpha must go with the dirichlet partition, got {self.alpha}")
        if self.warm and not ESTIMATORS[self.estimator].remembers:
            raise ArgumentError(f"warm must go with the memory estimator, got {self.estimator}")

        if self.mu and self.algorithm != "fedprox":
            raise ArgumentError(f"mu must go with fedprox, got {self.algorithm}")
        self._check_stragglers()
        self._check_algorithm()

    def _check_stragglers(self) -> None:
        if (self.stragglers == "recorded") != bool(self.trace):
            raise ArgumentError(
                "trace must be given with the recorded stragglers, and only there, got "
                f"{self.trace!r} with {self.stragglers}"
            )
        if self.stragglers != "markov" and self.mean_absence != 0:
            raise ArgumentError(
                f"mean_absence must go with the markov stragglers, got {self.mean_absence}"
            )
        if self.stragglers == "recorded":
            if self.prob_spread:
                raise ArgumentError(
                    f"p_spread must be 0 with the recorded stragglers, got {self.prob_spread:g}"
                )
        else:
            self._check_probs()

    def _check_probs(self) -> None:
        lowest, highest = self.client_probs(2)
        if lowest < 0 or highest >= 1:
            raise ArgumentError(
                f"p_spread must keep p - p_spread and p + p_spread in [0, 1), got p = "
                f"{self.straggler_prob:g} and p_spread = {self.prob_spread:g}"
            )
        self.straggler_model(2)

    def _check_algorithm(self) -> None:
        method, name = self.method, self.algorithm
        if not method.several_steps and self.local_steps > 1:
            other = "; coded_fedavg takes several" if name == "coded_gd" else ""
            raise ArgumentError(f"local_steps must be 1 for {name}, got {self.local_steps}{other}")
        if self.code == "owner-corrected" and self.local_steps > 1:
            raise ArgumentError(
                "local_steps must be 1 for the owner-corrected code: its negative weights are "
                f"unsafe with several steps, got {self.local_steps}"
            )
        if not method.batches and self.batch_size:
            raise ArgumentError(
                f"batch_size must be 0 (all examples) for {name}, got {self.batch_size}"
            )
        if method.sharing == "everything" and self.proportion != 1:
            raise ArgumentError(
                f"c must be 1 for {name}, which replicates all data, got {self.proportion:g}"
            )
        if method.sharing == "none" and (self.proportion or self.copies):
            raise ArgumentError(
                f"c and d must be 0 for {name}, which shares nothing, got {self.proportion:g} and "
                f"{self.copies}"
            )
        if method.sharing == "proportion" and self.copies:
            raise ArgumentError(
                f"d must be 0 for {name}: what is shared goes to all that use it, got {self.copies}"
            )
        if not method.estimators and (self.code, self.estimator) != ("equal-split", "coded_sum"):
            raise ArgumentError(
                f"code and estimator are not a choice for {name}, "
                f"got {self.code} and {self.estimator}"
            )

    @property
    def method(self) -> Algorithm:
        return ALGORITHMS[self.algorithm]

    def client_probs(self, n_clients: int) -> FloatArray:
        """p_i, evenly spread around p in the order of the clients, or as recorded: (N,)."""
        if self.trace_digest:
            return recordings.load(self.trace, self.trace_digest).straggler_prob(n_clients)
        p, spread = self.straggler_prob, self.prob_spread if n_clients > 1 else 0.0
        return np.linspace(p - spread, p + spread, n_clients)

    def straggler_model(self, n_clients: int) -> StragglerModel:
        if self.stragglers == "recorded":
            return recordings.load(self.trace, self.trace_digest)
        probs = self.client_probs(n_clients)
        if self.stragglers == "markov":
            return Markov(probs, self.mean_absence)
        return Bernoulli(probs)

    @property
    def server_prob(self) -> float:
        """The p, of all clients or their mean, that the server scales answers by."""
        return self.straggler_prob if self.assumed_prob == AS_IT_IS else self.assumed_prob

    def server_probs(self, n_clients: int) -> FloatArray:
        """The p_i that the server scales answers by: (N,)."""
        if self.assumed_prob == AS_IT_IS:
            return self.client_probs(n_clients)
        return np.full(n_clients, self.assumed_prob)

    @property
    def in_example_space(self) -> bool:
        """Whether the example-space engine can train it: the paper's model and algorithm."""
        papers = ("softmax", "coded_gd", 0, 1.0)
        if (self.model, self.algorithm, self.batch_size, self.server_rate) != papers:
            return False
        same_p = not self.prob_spread and self.stragglers != "recorded"
        return self.assumed_prob == AS_IT_IS and same_p

    @property
    def key(self) -> str:
        """What the curve is, in one line; equal curves have equal keys.

        A recording is what is in it, wherever the file is.
        """
        left_out = "trace" if self.trace_digest else ""
        return " ".join(
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name in PAPER_FIELDS
            or (getattr(self, field.name) != field.default and field.name != left_out)
        )

    def as_row(self) -> dict[str, Any]:
        """The columns that describe the curve in a table."""
        row = asdict(self)
        row["p"], row["c"], row["d"] = (
            row.pop("straggler_prob"),
            row.pop("proportion"),
            row.pop("copies"),
        )
        row["assumed_p"], row["p_spread"] = row.pop("assumed_prob"), row.pop("prob_spread")
        row["trace"] = Path(row["trace"]).name
        del row["trace_digest"]
        return row


def check_value(name: str, value: object) -> None:
    """Refuse what a field can never have, whatever the others are."""
    rule = VALUES[name]
    if callable(rule):
        rule(name, value)
    elif value not in rule:
        raise ArgumentError(f"{name} must be one of {', '.join(rule)}, got {value!r}")


def _probability(name: str, value: object) -> None:
    if checks.real(name, value, low=0) >= 1:
        raise ArgumentError(f"{name} must be in [0, 1), got {value}")


VALUES: dict[str, tuple[str, ...] | Callable[[str, Any], object]] = {  # options, or a check
    "partition": PARTITIONS,
    "alpha": checks.positive,
    "straggler_prob": _probability,
    "prob_spread": partial(checks.real, low=0),
    "proportion": partial(checks.real, low=0, high=1),
    "copies": partial(checks.integer, low=0),
    "code": tuple(CODES),
    "estimator": tuple(ESTIMATORS),
    "learning_rate": partial(checks.real, low=0),
    "decay": partial(checks.real, low=0),
    "stragglers": STRAGGLERS,
    "mean_absence": partial(checks.real, low=1),
    "assumed_prob": _probability,
    "algorithm": tuple(ALGORITHMS),
    "model": lambda _name, value: models.check_name(value),
    "local_steps": partial(checks.integer, low=1),
    "batch_size": partial(checks.integer, low=0),
    "server_rate": checks.positive,
    "mu": partial(checks.real, low=0),
}
WITHOUT = {"alpha": 0.0, "mean_absence": 0.0, "assumed_prob": AS_IT_IS}  # fields of no use

PAPER_FIELDS = (  # always part of a curve's key; the others where they are not as in the paper
    "partition",
    "alpha",
    "straggler_prob",
    "proportion",
    "copies",
    "code",
    "estimator",
    "warm",
    "learning_rate",
    "decay",
)
