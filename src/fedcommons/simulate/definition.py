"""A study: what to run, and which figures to make of it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata
from typing import Any

import numpy as np

from fedcommons import checks, metrics, policies
from fedcommons.coding import CODES
from fedcommons.datasets import Reading
from fedcommons.errors import ArgumentError, StudyError
from fedcommons.metrics import Metric
from fedcommons.simulate import batched, models, timing
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.timing import Timing
from fedcommons.tasks.cross_entropy import CrossEntropy
from fedcommons.tasks.losses import loss_class

PAPER, PAPER_CLOCK = "paper", "paper-clock"  # the studies of `fedcommons reproduce`
ENGINES = ("example-space", "batched", "plain")
POOLS = ("all", "tuning", "tuned")
KINDS = ("curves", "scalar-products", "grid", "heterogeneity", "second-moment")
EXAMPLE_SPACE_UP_TO = 500  # examples of a class: above that the products of all pairs are too many
ENGINE_VERSION = 8  # raised when the numbers that a study gives change
FIGURE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
AS_IT_IS = Reading()
MAY_BE_ALL = ("class_size", "test_size")  # examples of a class, and to test on


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure: a curve and how the figure calls it."""

    label: str
    curve: Curve


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its kind says how its lines are drawn."""

    name: str
    kind: str
    title: str
    lines: tuple[Line, ...]

    @property
    def needs_theory(self) -> bool:
        return self.kind in ("scalar-products", "second-moment")


@dataclass(frozen=True)  # without slots: what follows from many lines is computed once
class Study:
    """Everything that decides the results, and the figures to draw of them."""

    name: str
    figures: tuple[Figure, ...]
    dataset: str = "mnist"
    clients: int = 10
    class_size: int | None = 30
    rounds: int = 50
    runs: int = 10
    seed: int = 0
    engine: str = "example-space"
    dataset_digest: str = ""
    test_size: int | None = None
    tune: bool = False
    tune_runs: int = 3
    pool: str = "all"
    parts_digest: str = ""
    data: Reading = AS_IT_IS
    loss: str = CrossEntropy.name
    huber_delta: float = 1.0
    time_intervals: int = 10
    strata_bins: int = 10
    metrics: tuple[str, ...] = ()
    metric_rounds: tuple[int, ...] | None = None
    clock: Timing | None = None

    def __post_init__(self) -> None:
        for name, low in (
            ("clients", 1),
            ("rounds", 1),
            ("runs", 1),
            ("seed", 0),
            ("tune_runs", 1),
            ("time_intervals", 1),
            ("strata_bins", 1),
        ):
            checks.integer(name, getattr(self, name), low=low)
        for name in MAY_BE_ALL:
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name), low=1)
        if self.pool not in POOLS:
            raise ArgumentError(f"pool must be one of {', '.join(POOLS)}, got {self.pool!r}")
        if self.engine not in ENGINES:
            raise ArgumentError(f"engine must be one of {', '.join(ENGINES)}, got {self.engine!r}")
        checks.positive("huber_delta", self.huber_delta)
        for t in self.metric_rounds or ():
            checks.integer("metric_rounds", t, low=0)
        _ = self.measured  # has rules of its own
        self._check_loss()
        self._check_engine()
        self._check_clock()
        if self.class_size is not None and any(c.is_natural for c in self._lines_curves()):
            raise ArgumentError(
                'class_size must be "all" with partition site, which takes the data as they lie, '
                f"got {self.class_size}"
            )
        if not self.figures:
            raise ArgumentError("figure or grid must be given at least once, got none")
        for curve in self._lines_curves():
            if curve.copies > self.clients - 1:
                raise ArgumentError(
                    f"d must be in {{0, ..., {self.clients - 1}}} for {self.clients} clients, "
                    f"got {curve.copies}"
                )
            if curve.algorithm == "fractional_repetition" and self.clients % (curve.copies + 1):
                raise ArgumentError(
                    f"d + 1 must divide the {self.clients} clients for fractional_repetition, "
                    f"got d = {curve.copies}"
                )

    def _check_clock(self) -> None:
        """Lines have policies exactly where the study has a clock."""
        for curve in self._lines_curves():
            if bool(curve.policy) != (self.clock is not None):
                has = f"policy {curve.policy}" if curve.policy else "none"
                raise ArgumentError(
                    "policy must be given for every line exactly if the study has a [clock], got "
                    f"{has}"
                )
            if not curve.policy:
                continue
            if policies.parse(curve.policy).fastest > self.clients:
                raise ArgumentError(
                    f"policy must wait for at most the {self.clients} clients, got {curve.policy}"
                )
            if curve.work != "full" and not loss_class(self.loss).decomposable:
                raise ArgumentError(
                    f"work must be full for the loss {self.loss}, which is no sum over examples, "
                    f"got {curve.work!r}"
                )
        if self.clock is None:
            return
        if self.engine == "plain" or self.theory_curves:
            raise ArgumentError(
                "engine must be batched or example-space under a clock, without figures of the "
                f"kinds scalar-products and second-moment, got {self.engine}"
            )
        main, target = self.measured[0].name, self.clock.target
        if target is not None and main == "accuracy" and not 0 < target <= 1:
            raise ArgumentError(f"target must be in (0, 1] for an accuracy, got {target:g}")

    def _check_engine(self) -> None:
        if self.engine != "example-space" and self.theory_curves:
            raise ArgumentError(
                "engine must be example-space for figures of the kinds scalar-products and "
                f"second-moment, got {self.engine}"
            )
        for curve in self._lines_curves() if self.engine == "plain" else self.theory_curves:
            if not curve.in_example_space:
                raise ArgumentError(
                    "the plain engine and figures of the kinds scalar-products and second-moment "
                    "are for softmax, coded_gd, full batches and a known p, the "
                    f"same for all clients, got {curve.key}"
                )

        for curve in self.theory_curves:
            if (curve.code, curve.estimator) != ("equal-split", "coded_sum"):
                raise ArgumentError(
                    "figures of the kinds scalar-products and second-moment are for the code and "
                    "the estimator of the theory, equal-split and coded_sum, got "
                    f"{curve.code} and {curve.estimator}"
                )

    def _check_loss(self) -> None:
        """Refuse models, codes and algorithms that the loss does not go with."""
        has_classes = self.loss == CrossEntropy.name
        if not has_classes and (self.engine == "plain" or self.theory_curves):
            raise ArgumentError(
                "loss must be cross-entropy for the plain engine and for figures of the kinds "
                f"scalar-products and second-moment, got {self.loss}"
            )
        for curve in self._lines_curves():
            if curve.model in models.LINEAR and curve.model != models.linear_name(self.loss):
                raise ArgumentError(
                    f"model must be {models.linear_name(self.loss)} for a linear model with loss "
                    f"{self.loss}, got {curve.model}"
                )
            if loss_class(self.loss).decomposable:
                continue
            if (
                CODES[curve.code].name == "owner-corrected"
                or curve.procedure.sharing == "everything"
                or curve.procedure.examples is not None
            ):
                raise ArgumentError(
                    f"loss must be a sum over examples for {curve.code} and {curve.algorithm}, "
                    f"got {self.loss}; discrete-time is one, equal-split with coded_gd or "
                    "coded_fedavg does without"
                )

    @cached_property
    def measured(self) -> tuple[Metric, ...]:
        """The metrics of the study; the first is its main one."""
        return metrics.chosen(self.metrics, loss_class(self.loss).kind)

    @property
    def measured_rounds(self) -> tuple[int, ...]:
        """After which rounds they are measured; always after the last."""
        if self.metric_rounds is None:
            return tuple(range(self.rounds + 1))
        return tuple(sorted({t for t in self.metric_rounds if t < self.rounds} | {self.rounds}))

    @property
    def counts_alone(self) -> bool:
        """Whether counts of right classes are all that is asked for."""
        return self.loss == CrossEntropy.name and self.measured == (metrics.METRICS["accuracy"],)

    @property
    def target(self) -> float | None:
        """The value of the main metric whose time is measured, if there is one."""
        return None if self.clock is None else self.clock.target

    @property
    def is_papers(self) -> bool:
        """Whether it is the paper's study, on which the paper's claims are judged."""
        return self.name == PAPER

    @cached_property
    def batched_curves(self) -> tuple[Curve, ...]:
        """The curves for the batched engine: what the paper's setting is too narrow for."""
        if self.engine == "plain":
            return ()
        large = self.class_size is None or self.class_size > EXAMPLE_SPACE_UP_TO
        asked = self.theory_curves
        return tuple(
            curve
            for curve in self.curves
            if self.engine == "batched"
            or self.loss != CrossEntropy.name
            or not curve.in_example_space
            or (large and curve not in asked)
        )

    @cached_property
    def block_size(self) -> int:
        """How many runs are computed together."""
        return batched.block_size(len(self.batched_curves), self.class_size)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Every curve once, in an order that does not depend on the figures'."""
        return tuple(sorted(set(self._lines_curves()), key=lambda curve: curve.key))

    def _lines_curves(self) -> Iterator[Curve]:
        """The curve of every line: some may come several times."""
        return (line.curve for figure in self.figures for line in figure.lines)

    @cached_property
    def theory_curves(self) -> frozenset[Curve]:
        """The curves for which a figure needs the theory at every round."""
        return frozenset(line.curve for f in self.figures if f.needs_theory for line in f.lines)

    @cached_property
    def digest(self) -> str:
        """What the numbers of a run depend on; the number of runs is not part of it."""
        content = {
            "version": ENGINE_VERSION,
            "numpy": np.__version__,  # its products may round differently in another version
            "engine": self.engine,
            "dataset": self.dataset_digest or self.dataset,
            "clients": self.clients,
            "class_size": self.class_size,
            "rounds": self.rounds,
            "seed": self.seed,
            "curves": [curve.key for curve in self.curves],
            "theory": sorted(curve.key for curve in self.theory_curves),
        }
        if self.batched_curves:
            content["block"] = self.block_size
        if self.test_size:
            content["test_size"] = self.test_size
        if self.pool != "all":
            content["pool"] = self.pool
        if any(models.needs_torch(curve.model) for curve in self.curves):
            content["torch"] = _version("torch")
        if given := self.data.given():
            content["data"] = given
        if self.parts_digest:
            content["parts"] = self.parts_digest
        if self.loss != CrossEntropy.name:
            content["loss"] = [self.loss, self.huber_delta, self.time_intervals]
            content["strata_bins"] = self.strata_bins
        if not self.counts_alone:
            content["metrics"] = [metric.name for metric in self.measured]
        if self.clock is not None:
            content["clock"] = self.clock.content()
        if self.metric_rounds is not None:
            content["metric_rounds"] = self.measured_rounds
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """The resolved configuration."""
        return asdict(self)

    def only(self, names: Iterable[str]) -> Study:
        """The study with these figures alone."""
        known = [figure.name for figure in self.figures]
        for name in names:
            if name not in known:
                raise ArgumentError(f"figure must be one of {', '.join(known)}, got {name!r}")
        return replace(self, figures=tuple(f for f in self.figures if f.name in set(names)))

    def only_lines(self, labels: Iterable[str]) -> Study:
        """The study with the lines of these labels alone."""
        labels = list(labels)
        known = sorted({line.label for f in self.figures for line in f.lines})
        for label in labels:
            if label not in known:
                raise ArgumentError(f"curves must be among {', '.join(known)}; got {label!r}")
        return self._where(lambda line: line.label in labels)

    def only_curves(self, curves: Set[Curve]) -> Study:
        """The study with the lines of these curves alone."""
        return self._where(lambda line: line.curve in curves)

    def _where(self, wanted: Callable[[Line], bool]) -> Study:
        kept = (replace(f, lines=tuple(filter(wanted, f.lines))) for f in self.figures)
        return replace(self, figures=tuple(f for f in kept if f.lines))


def from_dict(content: Any) -> Study:
    """The record `Study.as_dict` gave, back as a study."""
    try:
        figures = tuple(
            Figure(
                f["name"],
                f["kind"],
                f["title"],
                tuple(Line(line["label"], Curve(**line["curve"])) for line in f["lines"]),
            )
            for f in content["figures"]
        )
        reading = Reading(**content.get("data", {}))  # older records have none
        lists = {
            name: tuple(content[name])
            for name in ("metrics", "metric_rounds")
            if content.get(name) is not None
        }
        clock = timing.from_dict(content.get("clock"))  # nor those
        known = {**content, **lists, "figures": figures, "data": reading, "clock": clock}
        return Study(**known)
    except (KeyError, TypeError, ArgumentError) as error:
        raise StudyError(f"the recorded study cannot be read: {error}") from None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
