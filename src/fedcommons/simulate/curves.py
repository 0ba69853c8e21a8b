"""A curve: one way to train, averaged over many runs and drawn as one line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS
from fedcommons.methods import Method
from fedcommons.optimizers import OPTIMIZERS, Constants
from fedcommons.partition import PARTITIONS
from fedcommons.sharing import SCHEMES
from fedcommons.simulate import models, recordings, settings
from fedcommons.simulate.algorithms import ALGORITHMS, Algorithm
from fedcommons.simulate.algorithms.algorithm import estimated
from fedcommons.simulate.settings import Setting, Values
from fedcommons.stragglers import Bernoulli, Markov, StragglerModel

STRAGGLERS = ("bernoulli", "markov", "recorded")


def _probability(name: str, value: object) -> None:
    if checks.real(name, value, low=0) >= 1:
        raise ArgumentError(f"{name} must be in [0, 1), got {value}")


def _one_of(options: tuple[str, ...], name: str, value: object) -> None:
    if value not in options:
        raise ArgumentError(f"{name} must be one of {', '.join(options)}, got {value!r}")


def _size(name: str, value: object) -> None:
    if value is not None:
        checks.integer(name, value, low=1)


def _algorithm(values: Values) -> Algorithm:
    return ALGORITHMS[values["algorithm"]]


def _estimates(values: Values) -> bool:
    """Whether the code and the estimator are the study's choice."""
    return _algorithm(values).estimators


def _copies(values: Values) -> bool:
    return _algorithm(values).sharing not in ("none", "proportion")


def _assumes_p(values: Values) -> bool:
    """Whether it matters which p the server assumes."""
    algorithm = _algorithm(values)
    splits = algorithm.estimators and CODES[values["code"]].needs_p
    scales = algorithm.weigh is estimated and ESTIMATORS[values["estimator"]].needs_p
    return splits or scales


def _optimizer_uses(constant: str, values: Values) -> bool:
    return constant in OPTIMIZERS[values["server_optimizer"]].constants


@dataclass(frozen=True, slots=True)
class Curve:
    """One setting of everything that may differ between the lines of a figure.

    What a study file calls each field, what it may be, when it has a use and how it is worded
    stands beside it (`settings.Setting`).
    """

    # How labels fall on clients: iid, single-class, dirichlet, or somebody else's.
    partition: str = Setting(
        "partition",
        settings.named_in(PARTITIONS),
        of_paper=True,
        rank=1,
        tells=lambda curve: curve.setting_words,
        caption=lambda curve: curve.setting_words,
    ).field()
    # The concentration of a partition that has one, as Dirichlet's.
    alpha: float = Setting(
        "alpha",
        checks.positive,
        lambda values: PARTITIONS[values["partition"]].needs_alpha,
        "a partition with a concentration, such as dirichlet",
        needed=True,
        of_paper=True,
    ).field(0.0)
    # p, of all clients or their mean.
    straggler_prob: float = Setting(
        "p",
        _probability,
        of_paper=True,
        rank=99,
        tells=lambda curve: f"p = {curve.straggler_prob:g}",
    ).field(0.0)
    # c.
    proportion: float = Setting(
        "c",
        partial(checks.real, low=0, high=1),
        lambda values: _algorithm(values).sharing != "none",
        "an algorithm that shares examples",
        of_paper=True,
        rank=3,
        label=lambda curve: curve.sharing_words,
        tells=lambda curve: f"c = {curve.proportion:g}",
        caption=lambda curve: curve.sharing_caption,
    ).field(0.0)
    # d.
    copies: int = Setting(
        "d",
        partial(checks.integer, low=0),
        _copies,
        "an algorithm that copies examples to some others",
        of_paper=True,
        rank=4,
        tells=lambda curve: f"d = {curve.copies}",
    ).field(0)
    code: str = Setting(
        "code",
        settings.named_in(CODES),
        _estimates,
        "an algorithm with codes and estimators, coded_gd or coded_fedavg",
        of_paper=True,
        rank=6,
        label=lambda curve: "" if curve.code == "equal-split" else short_name(curve.code),
        tells=lambda curve: short_name(curve.code),
        caption=lambda curve: CODES[curve.code].caption,
    ).field("equal-split")
    estimator: str = Setting(
        "estimator",
        settings.named_in(ESTIMATORS),
        _estimates,
        "an algorithm with codes and estimators, coded_gd or coded_fedavg",
        of_paper=True,
        rank=7,
        label=lambda curve: "" if curve.estimator == "coded_sum" else spoken(curve.estimator),
        tells=lambda curve: spoken(curve.estimator),
        caption=lambda curve: ESTIMATORS[curve.estimator].caption,
    ).field("coded_sum")
    # Whether memory starts from everybody's answer at the initial model.
    warm: bool = Setting(
        "warm",
        checks.boolean,
        lambda values: _estimates(values) and ESTIMATORS[values["estimator"]].remembers,
        "an estimator that remembers, such as memory",
        of_paper=True,
        rank=8,
        label=lambda curve: "warm" if curve.warm else "",
        tells=lambda curve: "warm" if curve.warm else "cold",
    ).field(False)
    # eta in the first round.
    learning_rate: float = Setting(
        "learning_rate",
        partial(checks.real, low=0),
        of_paper=True,
        rank=31,
        label=lambda curve: f"η {curve.learning_rate:g}",
        tells=lambda curve: f"η = {curve.learning_rate:g}",
    ).field(0.1)
    # The factor of eta from one round to the next.
    decay: float = Setting(
        "decay",
        partial(checks.real, low=0),
        of_paper=True,
        rank=32,
        label=lambda curve: f"decay {curve.decay:g}",
        tells=lambda curve: f"decay = {curve.decay:g}",
    ).field(0.97)
    # Bernoulli, as in the paper; markov; or recorded.
    stragglers: str = Setting(
        "stragglers", partial(_one_of, STRAGGLERS), rank=9, tells=lambda curve: curve.stragglers
    ).field("bernoulli")
    # Rounds that an absence of markov lasts on average.
    mean_absence: float = Setting(
        "mean_absence",
        partial(checks.real, low=1),
        lambda values: values["stragglers"] == "markov",
        "the markov stragglers",
        needed=True,
        rank=25,
        tells=lambda curve: f"absences of {curve.mean_absence:g}",
        caption=lambda curve: (
            f"absences of {curve.mean_absence:g} rounds on average" if curve.mean_absence else ""
        ),
    ).field(0.0)
    # The p that the server assumes, if it is wrong about it; None if it knows the p_i.
    assumed_prob: float | None = Setting(
        "assumed_p",
        _probability,
        _assumes_p,
        "an estimator or a code that needs p",
        rank=36,
        label=lambda curve: curve.assumed_words,
        tells=lambda curve: curve.assumed_words or "known p",
        caption=lambda curve: (
            "" if curve.assumed_prob is None else f"the server takes p for {curve.assumed_prob:g}"
        ),
    ).field(None)
    algorithm: str = Setting(
        "algorithm",
        settings.named_in(ALGORITHMS),
        rank=2,
        label=lambda curve: spoken(curve.algorithm),
        tells=lambda curve: short_name(curve.algorithm),
        caption=lambda curve: (
            ""
            if curve.algorithm == "coded_gd"
            else f"{short_name(curve.algorithm)} ({curve.procedure.source})"
        ),
    ).field("coded_gd")
    # softmax, as in the paper; mlp; cnn; or the import path of a torch module.
    model: str = Setting(
        "model",
        lambda _name, value: models.check_name(value),
        rank=21,
        tells=lambda curve: curve.model,
        caption=lambda curve: "" if curve.model == "softmax" else f"model {curve.model}",
    ).field("softmax")
    # Steps that a client takes in a round.
    local_steps: int = Setting(
        "local_steps",
        partial(checks.integer, low=1),
        rank=22,
        label=lambda curve: f"steps {curve.local_steps}" if curve.procedure.several_steps else "",
        tells=lambda curve: f"{curve.local_steps} local steps",
        caption=lambda curve: f"{curve.local_steps} local steps" if curve.local_steps > 1 else "",
    ).field(1)
    # Examples of a client in a step; None for all of them.
    batch_size: int | None = Setting(
        "batch_size",
        _size,
        may_be_all=True,
        rank=23,
        label=lambda curve: f"batch {curve.batch_size}" if curve.batch_size else "full batch",
        tells=lambda curve: (
            f"batches of {curve.batch_size}" if curve.batch_size else "full batches"
        ),
        caption=lambda curve: f"batches of {curve.batch_size}" if curve.batch_size else "",
    ).field(None)
    # The factor of the server's step.
    server_rate: float = Setting(
        "server_rate",
        checks.positive,
        rank=33,
        label=lambda curve: f"server rate {curve.server_rate:g}",
        tells=lambda curve: f"server’s rate {curve.server_rate:g}",
    ).field(1.0)
    # How strongly fedprox pulls towards the server's model.
    mu: float = Setting(
        "mu",
        partial(checks.real, low=0),
        lambda values: "mu" in _algorithm(values).uses,
        "an algorithm that has it, such as fedprox",
        to_be_written="0 makes it fedavg",
        rank=34,
        label=lambda curve: f"μ {curve.mu:g}" if "mu" in curve.procedure.uses else "",
        tells=lambda curve: f"μ = {curve.mu:g}",
        caption=lambda curve: f"μ = {curve.mu:g}" if curve.mu else "",
    ).field(0.0)
    # How far the p_i of the first and the last client are from p.
    prob_spread: float = Setting(
        "p_spread",
        partial(checks.real, low=0),
        lambda values: values["stragglers"] != "recorded",
        "stragglers that are drawn",
        rank=35,
        label=lambda curve: f"p ± {curve.prob_spread:g}" if curve.prob_spread else "",
        tells=lambda curve: f"p ± {curve.prob_spread:g}" if curve.prob_spread else "the same p",
        caption=lambda curve: (
            f"clients’ p spread over ± {curve.prob_spread:g}" if curve.prob_spread else ""
        ),
    ).field(0.0)
    # The file of recorded absences.
    trace: str = Setting(
        "trace",
        applies=lambda values: values["stragglers"] == "recorded",
        belongs_to="the recorded stragglers",
        needed=True,
        rank=26,
        tells=lambda curve: f"absences of {Path(curve.trace).name}" if curve.trace else "drawn",
        caption=lambda curve: (
            f"absences as recorded in {Path(curve.trace).name}" if curve.trace else ""
        ),
    ).field("")
    # The digest of its content, once it has been read.
    trace_digest: str = Setting(None).field("")
    # Who gets the copies: randomised, as in the paper; per-client; or optimal.
    scheme: str = Setting(
        "scheme",
        settings.named_in(SCHEMES),
        lambda values: _algorithm(values).sharing == "proportion-and-copies",
        "an algorithm that copies a proportion of the examples, coded_gd or coded_fedavg",
        rank=5,
        label=lambda curve: "" if curve.scheme == "randomised" else short_name(curve.scheme),
        tells=lambda curve: f"{short_name(curve.scheme)} sharing",
        caption=lambda curve: SCHEMES[curve.scheme].caption,
    ).field("randomised")
    # How the server steps: sgd, as in the paper; momentum; adam; or yogi.
    server_optimizer: str = Setting(
        "server_optimizer",
        settings.named_in(OPTIMIZERS),
        rank=10,
        label=lambda curve: (
            "" if curve.server_optimizer == "sgd" else spoken(curve.server_optimizer)
        ),
        tells=lambda curve: spoken(curve.server_optimizer),
        caption=lambda curve: OPTIMIZERS[curve.server_optimizer].caption,
    ).field("sgd")
    # Its constants: beta_1, beta_2 and tau.
    server_momentum: float = Setting(
        "server_momentum",
        _probability,
        partial(_optimizer_uses, "momentum"),
        "a server optimizer with momentum",
        rank=37,
        label=lambda curve: f"β₁ {curve.server_momentum:g}",
        tells=lambda curve: f"β₁ = {curve.server_momentum:g}",
    ).field(0.9)
    second_momentum: float = Setting(
        "second_momentum",
        _probability,
        partial(_optimizer_uses, "second_momentum"),
        "an adaptive server optimizer, adam or yogi",
        rank=38,
        label=lambda curve: f"β₂ {curve.second_momentum:g}",
        tells=lambda curve: f"β₂ = {curve.second_momentum:g}",
    ).field(0.99)
    adaptivity: float = Setting(
        "adaptivity",
        checks.positive,
        partial(_optimizer_uses, "adaptivity"),
        "an adaptive server optimizer, adam or yogi",
        rank=39,
        label=lambda curve: f"τ {curve.adaptivity:g}",
        tells=lambda curve: f"τ = {curve.adaptivity:g}",
    ).field(1e-3)

    def __post_init__(self) -> None:
        settings.check(Curve, self.values())
        _ = self.method  # has rules of its own
        self._check_algorithm()
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
    def procedure(self) -> Algorithm:
        """The algorithm itself."""
        return ALGORITHMS[self.algorithm]

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
        if papers != (
            self.model,
            self.algorithm,
            self.batch_size,
            self.server_rate,
            self.server_optimizer,
        ):
            return False
        same_p = not self.prob_spread and self.stragglers != "recorded"
        return self.assumed_prob is None and same_p

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

    # Words

    @property
    def setting_words(self) -> str:
        return PARTITIONS[self.partition].caption.format(alpha=self.alpha)

    @property
    def sharing_words(self) -> str:
        """What is shared, for a label."""
        if self.procedure.sharing == "none":
            return ""
        if self.procedure.sharing == "proportion":
            return f"c = {self.proportion:g}"
        if not (self.proportion and self.copies):
            return "no sharing"
        return f"({self.proportion:g}, {self.copies})"

    @property
    def sharing_caption(self) -> str:
        """What is shared, in full."""
        if self.copies and self.proportion:
            return f"c = {self.proportion:g}, d = {self.copies}"
        if self.proportion and self.procedure.sharing == "proportion":
            return f"c = {self.proportion:g}"
        return "" if ESTIMATORS[self.estimator].needs_everybody else "no sharing"

    @property
    def assumed_words(self) -> str:
        return "" if self.assumed_prob is None else f"p taken for {self.assumed_prob:g}"


def short_name(name: str) -> str:
    """A part's name without the module that somebody else's comes from."""
    return name.rpartition(":")[2]


def spoken(name: str) -> str:
    return short_name(name).replace("_", " ")
