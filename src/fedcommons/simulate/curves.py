"""A curve: one way to train, averaged over many runs and drawn as one line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons.asking import Ask
from fedcommons.checks import FloatArray
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS
from fedcommons.methods import Method
from fedcommons.optimizers import Constants
from fedcommons.partition import PARTITIONS
from fedcommons.simulate import recordings, settings
from fedcommons.simulate.algorithms import ALGORITHMS, Algorithm
from fedcommons.simulate.curve_fields import FIELDS, OF_WORK
from fedcommons.stragglers import Bernoulli, Markov, StragglerModel


@dataclass(frozen=True, slots=True)
class Curve:
    """One setting of everything that may differ between the lines of a figure.

    What each field is, what a study file calls it, what it may be, when it has a use and how it is
    worded stands in the table `FIELDS`.
    """

    partition: str = FIELDS["partition"].field()
    alpha: float = FIELDS["alpha"].field(0.0)
    straggler_prob: float = FIELDS["straggler_prob"].field(0.0)
    proportion: float = FIELDS["proportion"].field(0.0)
    copies: int = FIELDS["copies"].field(0)
    code: str = FIELDS["code"].field("equal-split")
    estimator: str = FIELDS["estimator"].field("coded_sum")
    warm: bool = FIELDS["warm"].field(False)
    learning_rate: float = FIELDS["learning_rate"].field(0.1)
    decay: float = FIELDS["decay"].field(0.97)
    stragglers: str = FIELDS["stragglers"].field("bernoulli")
    mean_absence: float = FIELDS["mean_absence"].field(0.0)
    assumed_prob: float | None = FIELDS["assumed_prob"].field(None)
    algorithm: str = FIELDS["algorithm"].field("coded_gd")
    model: str = FIELDS["model"].field("softmax")
    local_steps: int = FIELDS["local_steps"].field(1)
    batch_size: int | None = FIELDS["batch_size"].field(None)
    server_rate: float = FIELDS["server_rate"].field(1.0)
    mu: float = FIELDS["mu"].field(0.0)
    prob_spread: float = FIELDS["prob_spread"].field(0.0)
    trace: str = FIELDS["trace"].field("")
    trace_digest: str = FIELDS["trace_digest"].field("")
    scheme: str = FIELDS["scheme"].field("randomised")
    server_optimizer: str = FIELDS["server_optimizer"].field("sgd")
    server_momentum: float = FIELDS["server_momentum"].field(0.9)
    second_momentum: float = FIELDS["second_momentum"].field(0.99)
    adaptivity: float = FIELDS["adaptivity"].field(1e-3)
    policy: str = FIELDS["policy"].field("")
    deadline: float | None = FIELDS["deadline"].field(None)
    late: str = FIELDS["late"].field("discard")
    work: str = FIELDS["work"].field("full")
    prob_from_law: bool = FIELDS["prob_from_law"].field(False)
    corrected: bool = FIELDS["corrected"].field(False)
    away: bool = FIELDS["away"].field(True)

    step_control: bool = FIELDS["step_control"].field(False)
    ask: float | None = FIELDS["ask"].field(None)
    ask_by: str = FIELDS["ask_by"].field("uniform")

    def __post_init__(self) -> None:
        settings.check(Curve, self.values())
        _ = self.method  # has rules of its own
        self._check_algorithm()
        if self.policy:
            self._check_clock()
        if self.ask_some is not None:
            self._check_ask(self.ask_some)
        if self.stragglers != "recorded":
            self._check_probs()

    def values(self) -> dict[str, Any]:
        """The fields by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def _check_probs(self) -> None:
        lowest, highest = self.client_probs(2)
        if lowest < 0 or highest >= 1:
            raise ArgumentError(
                f"p_spread must keep p - p_spread and p + p_spread in [0, 1), got p = "
                f"{self.straggler_prob:g} and p_spread = {self.prob_spread:g}"
            )
        self.straggler_model(2)

    def _check_algorithm(self) -> None:
        procedure, name = self.procedure, self.algorithm
        if not procedure.several_steps and self.local_steps > 1:
            other = "; coded_fedavg takes several" if name == "coded_gd" else ""
            raise ArgumentError(f"local_steps must be 1 for {name}, got {self.local_steps}{other}")
        if not procedure.batches and self.batch_size:
            raise ArgumentError(f"batch_size must be all for {name}, got {self.batch_size}")
        if procedure.sharing == "everything" and self.proportion != 1:
            raise ArgumentError(
                f"c must be 1 for {name}, which replicates all data, got {self.proportion:g}"
            )

    def _check_ask(self, ask: Ask) -> None:
        """Whom it asks, if not all."""
        if self.procedure.estimators:
            ask.check_goes_with(ESTIMATORS[self.estimator])
        elif ask.by == "norms":
            raise ArgumentError(
                f'ask_by must be "uniform" or "independent" for {self.algorithm}, which counts '
                'clients as often as they are asked, got "norms"'
            )
        if self.corrected:
            raise ArgumentError(
                "ask must be all where holders correct the chunks of who is absent, got "
                f"{self.ask:g}"
            )
        if self.policy and ask.by != "uniform":
            raise ArgumentError(f'ask_by must be "uniform" under a clock, got {ask.by!r}')

    def _check_clock(self) -> None:
        """What a line under a clock can be."""
        procedure, estimator = self.procedure, ESTIMATORS[self.estimator]
        own = OF_WORK.get(self.work, self.estimator)
        if self.work in OF_WORK and not procedure.estimators:
            raise ArgumentError(
                f"work must be full, mini or sized for {self.algorithm}, which has no estimators, "
                f"got {self.work!r}"
            )
        if self.estimator != own:
            raise ArgumentError(
                f"estimator must be {own} for work = {self.work!r}, got {self.estimator}"
            )
        if estimator.needs_everybody and self.policy != "all":
            raise ArgumentError(
                f"policy must be all for the estimator {self.estimator}, got {self.policy}"
            )
        if self.late == "remember" and not (procedure.estimators and estimator.hears_late):
            raise ArgumentError(
                "late must be discard for an estimator that has no use for late answers, got "
                f"{self.late!r} with {self.estimator}"
            )
        if self.batch_size is not None:
            raise ArgumentError(
                f'batch_size must be all under a clock: work = "mini:{self.batch_size}" asks for '
                "such batches"
            )
        if self.work != "full" and (self.local_steps > 1 or not procedure.batches):
            raise ArgumentError(
                f"work must be full for {self.algorithm} with {self.local_steps} local steps, got "
                f"{self.work!r}"
            )
        if self.corrected and (self.code != "equal-split" or self.algorithm != "coded_gd"):
            raise ArgumentError(
                "correct must be false for a code or an algorithm of its own: everybody works on "
                f"its own examples, got {self.code} and {self.algorithm}"
            )
        if CODES[self.code].needs_p or procedure.examples or self.algorithm == "optimal_decoding":
            raise ArgumentError(
                f"code and algorithm must not need p before training under a clock, got "
                f"{self.code} and {self.algorithm}"
            )

    @property
    def method(self) -> Method:
        """What a federation would have to be told to train so."""
        return Method(
            self.code,
            self.estimator,
            self.warm,
            self.local_steps,
            self.batch_size,
            self.server_optimizer,
        )

    @property
    def ask_some(self) -> Ask | None:
        """Whom a round asks; None for all. From 1 on it is a number of clients."""
        if self.ask is None:
            return None
        return Ask(int(self.ask) if self.ask >= 1 else self.ask, self.ask_by)

    @property
    def procedure(self) -> Algorithm:
        """The algorithm itself."""
        return ALGORITHMS[self.algorithm]

    @property
    def is_natural(self) -> bool:
        """Whether its clients are the sites that the data come from."""
        return PARTITIONS[self.partition].natural

    @property
    def constants(self) -> Constants:
        """Of the server's optimizer."""
        return Constants(self.server_momentum, self.second_momentum, self.adaptivity)

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

    def server_probs(self, n_clients: int) -> FloatArray:
        """The p_i that the server scales answers by: (N,)."""
        if self.assumed_prob is None:
            return self.client_probs(n_clients)
        return np.full(n_clients, self.assumed_prob)

    @property
    def in_example_space(self) -> bool:
        """Whether the example-space engine can train it: the paper's model and algorithm."""
        papers = ("softmax", "coded_gd", None, 1.0, "sgd")
        if self.policy or self.ask is not None:
            return False
        if papers != (
            self.model,
            self.algorithm,
            self.batch_size,
            self.server_rate,
            self.server_optimizer,
        ):
            return False
        same_p = not self.prob_spread and self.stragglers != "recorded"
        estimator = ESTIMATORS[self.estimator]
        by_arrivals = estimator.combine is None and not estimator.compares
        return self.assumed_prob is None and same_p and by_arrivals

    @property
    def key(self) -> str:
        """What the curve is, in one line; equal curves have equal keys.

        A recording is what is in it, wherever the file is.
        """
        left_out = "trace" if self.trace_digest else ""
        return " ".join(
            f"{one.name}={getattr(self, one.name)}"
            for one in fields(self)
            if settings.setting_of(one).of_paper
            or (getattr(self, one.name) != one.default and one.name != left_out)
        )

    def as_row(self) -> dict[str, Any]:
        """The columns that describe the curve in a table."""
        row = {key: getattr(self, name) for key, name in settings.keys(Curve).items()}
        return {**row, "trace": Path(self.trace).name}
