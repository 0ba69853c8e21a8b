"""What makes one training another."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from fedcommons import bounds, checks
from fedcommons.asking import Ask
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError
from fedcommons.estimators import ESTIMATORS
from fedcommons.methods import Method
from fedcommons.step_control import PLAIN
from fedcommons.stragglers import StragglerModel

DEFAULT_ESTIMATOR = "blended"  # suits apps with local steps, alike or lopsided, and needs no p
FITS_ESTIMATOR = "filled"  # with work that fits: an answer is what is remembered, in part renewed
LATE = ("remember", "discard")  # what becomes of an answer that comes after its round
WORKS = ("full", "fits")
SCALES = ("none", "standard")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train.

    Attributes:
        method: code, estimator, local steps and server optimizer; the estimator may be any but one
            that waits for everybody, the code one that the sites have too.
        straggler_prob: p, or p_i by site in the order of names; None estimates it from past rounds.
        learning_rate, decay: the step on the mean gradient, and its factor from round to round.
            Where sites answer with trained models, it scales how far the model follows them.
        stragglers: rehearse absences: sites that this model has missing are not asked.
        seed: of the rehearsed absences.
        answer_bound: how many times the median site's size per unit of share an answer may have
            (`fedcommons.bounds`); 0 for no bound.
        scale: "standard" brings the inputs of all sites to mean 0 and standard deviation 1, by
            what the sites tell of theirs before round 1; "none" leaves them as they are.
        sites_per_round: how many sites a round asks, or which part of them; 0 for all.
        ask_by: how they are chosen, as in `asking.Ask`.
        least_sites: never fewer than so many, where not all are asked.
        work: "full": sites answer from all that they hold, or from the batches that are asked for.
            "fits": from the part that they get through before the deadline.
        correct: whether present holders of absent owners' shared examples correct what is
            remembered of these (`fedcommons.corrections`).
        step_control: whether steps are at most 1/L, by client secants (`fedcommons.step_control`).
    """

    method: Method = field(default_factory=Method)
    straggler_prob: float | tuple[float, ...] | None = None
    learning_rate: float = 1.0
    decay: float = 1.0
    stragglers: StragglerModel | None = None
    seed: int = 0
    answer_bound: float = bounds.FACTOR
    scale: str = "none"
    sites_per_round: int | float = 0
    ask_by: str = "uniform"
    least_sites: int = 1
    work: str = "full"
    correct: bool = False
    step_control: bool = False

    @classmethod
    def of(cls, **settings: Any) -> Settings:
        """Settings from the fields of `Method` and their own, side by side.

        `batch_size` = 0 is a full batch, as in a run config, which has no None. The estimator is
        `DEFAULT_ESTIMATOR`, or `FITS_ESTIMATOR` with work = "fits", unless it is given.
        """
        default = FITS_ESTIMATOR if settings.get("work") == "fits" else DEFAULT_ESTIMATOR
        settings.setdefault("estimator", default)
        if type(size := settings.get("batch_size")) is int and size == 0:
            settings["batch_size"] = None
        of_method = {f.name: settings.pop(f.name) for f in fields(Method) if f.name in settings}
        return cls(method=Method(**of_method), **settings)

    def __post_init__(self) -> None:
        code, estimator = self.method.code, self.method.estimator
        if ESTIMATORS[estimator].needs_everybody:
            known = ", ".join(e.name for e in ESTIMATORS.values() if not e.needs_everybody)
            raise ArgumentError(
                f"estimator must be one of {known}, or an import path such as "
                f"'package.module:name', and not wait for everybody, got {estimator!r}"
            )
        if ESTIMATORS[estimator].anchors:
            raise ArgumentError(
                f"estimator must not need the models that late answers were computed at, which a "
                f"server does not keep, got {estimator!r}"
            )
        if code not in CODES:
            raise ArgumentError(
                f"code must be one of {', '.join(CODES)}, which sites have too, got {code!r}"
            )
        if self.scale not in SCALES:
            raise ArgumentError(f"scale must be one of {', '.join(SCALES)}, got {self.scale!r}")
        if self.work not in WORKS:
            raise ArgumentError(f"work must be one of {', '.join(WORKS)}, got {self.work!r}")
        if self.work == "fits":
            self._check_fits()
        if checks.boolean("correct", self.correct):
            self._check_correct()
        if checks.boolean("step_control", self.step_control):
            self._check_step_control()
        known_as: dict[str, Any] = {  # in one form each: the name of a training goes by them
            "learning_rate": checks.positive("learning_rate", self.learning_rate),
            "decay": checks.positive("decay", self.decay),
            "seed": checks.integer("seed", self.seed, low=0),
        }
        if ask := self.ask:
            ask.check_goes_with(ESTIMATORS[estimator])
            known_as |= {"sites_per_round": ask.size, "least_sites": ask.least}
        if self.answer_bound:
            bound = checks.real("answer_bound", self.answer_bound, low=0)
            if not bound > 1:
                raise ArgumentError(f"answer_bound must be 0 or above 1, got {self.answer_bound}")
            known_as["answer_bound"] = bound
        for name, value in known_as.items():
            object.__setattr__(self, name, value)
        if self.straggler_prob is not None:
            p = checks.straggler_prob(self.straggler_prob, np.size(self.straggler_prob))
            one = np.ndim(self.straggler_prob) == 0
            object.__setattr__(self, "straggler_prob", float(p[0]) if one else tuple(p.tolist()))

    def _check_fits(self) -> None:
        method = self.method
        if CODES[method.code].one_step:
            raise ArgumentError(
                f"work must be full with the code {method.code}, whose shares may be negative, "
                'got "fits"'
            )
        if method.local_steps > 1 or method.batch_size:
            raise ArgumentError(
                'work must be full with local_steps above 1 or a batch_size, got "fits": it is one '
                "step on what fits"
            )

    def _check_correct(self) -> None:
        method = self.method
        if self.work != "fits":
            raise ArgumentError(
                f'correct must be false with work = "{self.work}", got true: holders correct the '
                'chunks of absent owners, which there are with work = "fits"'
            )
        if method.code != "equal-split":
            raise ArgumentError(
                f"correct must be false with the code {method.code}, got true: every site answers "
                "for its own examples alone, in full"
            )
        estimator = ESTIMATORS[method.estimator]
        fits = estimator.remembers and not estimator.needs_p and estimator.moves is None
        fits = fits and not estimator.compares
        if not fits or estimator.unbiased:
            raise ArgumentError(
                "correct must be false unless the estimator counts a missing site by its last "
                f"answer alone (latest, filled), got true with {method.estimator}"
            )
        if self.ask is not None:
            raise ArgumentError(
                "correct must be false with sites_per_round, got true: who is not asked by design "
                "is not absent"
            )

    def _check_step_control(self) -> None:
        method = self.method
        if not ESTIMATORS[method.estimator].remembers or method.server_optimizer not in PLAIN:
            raise ArgumentError(
                "step_control must go with an estimator that remembers and one of the server "
                f"optimizers {', '.join(PLAIN)}, got {method.estimator} and "
                f"{method.server_optimizer}"
            )
        if method.local_steps > 1 or method.batch_size or self.work != "full":
            raise ArgumentError(
                "step_control must go with one step on all examples: between batches, or several "
                "steps, differences of answers say little of the gradient's change"
            )

    @property
    def work_asked(self) -> str:
        """The kind of `fedcommons.work` that sites are asked for; empty for all that they hold.

        An estimator that is unbiased stays so if chunks are drawn and count in full. One that adds
        up what is remembered has it renewed, a chunk at a time.
        """
        if self.work == "full":
            return ""
        return "sagachunk" if ESTIMATORS[self.method.estimator].unbiased else "chunk"

    @property
    def ask(self) -> Ask | None:
        """Whom a round asks; None for all."""
        size = self.sites_per_round
        if size == 0 and not isinstance(size, bool):
            return None
        return Ask(size, self.ask_by, self.least_sites, named="sites_per_round")

    @property
    def listed(self) -> dict[str, Any]:
        """All settings by name, as results have them; batch_size is 0 for a full batch."""
        method = self.method
        return {
            "estimator": method.estimator,
            "warm": bool(method.warm),
            "code": method.code,
            "straggler_prob": self.straggler_prob,
            "learning_rate": self.learning_rate,
            "decay": self.decay,
            "local_steps": int(method.local_steps),
            "batch_size": int(method.batch_size or 0),
            "stragglers": self.stragglers,
            "seed": self.seed,
            "server_optimizer": method.server_optimizer,
            "answer_bound": float(self.answer_bound),
            "scale": self.scale,
            "sites_per_round": self.sites_per_round,
            "ask_by": self.ask_by,
            "least_sites": self.least_sites,
            "work": self.work,
            "correct": self.correct,
            "step_control": self.step_control,
        }

    def name(self, config: Mapping[str, Any]) -> str:
        """A folder's name: readable, and another one for other settings or another `config`.

        `config` is what the server tells the sites' training functions. Who takes part, and under
        which exchange, is no part of it: sites come and go while a training goes on.
        """
        digest = hashlib.sha256(self._identity(config).encode()).hexdigest()[:8]
        estimator = re.sub(r"[^A-Za-z0-9]+", "-", self.method.estimator)
        warm = "-warm" if self.method.warm else ""
        return f"training-{self.method.code}-{estimator}{warm}-{digest}"

    def _identity(self, config: Mapping[str, Any]) -> str:
        """What folders on disk are found by: the same settings always give the same text.

        A setting that is added is left out at its default, so that older trainings are found.
        """
        listed = self.listed
        if listed["server_optimizer"] == "sgd":
            del listed["server_optimizer"]
        if listed["answer_bound"] == bounds.FACTOR:
            del listed["answer_bound"]
        if listed["scale"] == "none":
            del listed["scale"]
        if self.work == "full":
            del listed["work"]
        if not self.correct:
            del listed["correct"]
        if not self.step_control:
            del listed["step_control"]
        if self.ask is None:
            for name in ("sites_per_round", "ask_by", "least_sites"):
                del listed[name]
        with np.printoptions(threshold=sys.maxsize):  # a recorded trace is spelt out
            settings = ", ".join(f"{name}={value!r}" for name, value in listed.items())
        return f"(Settings({settings}), {sorted(config.items())!r})"


def remembers_late(settings: Settings, late: str | None) -> bool:
    """Whether late answers count: as it is said, or by default where the estimator remembers."""
    estimator = ESTIMATORS[settings.method.estimator]
    if late is None:
        return estimator.remembers
    if late not in LATE:
        raise ArgumentError(f"late must be one of {', '.join(LATE)}, got {late!r}")
    if late == "remember" and not estimator.hears_late:
        known = ", ".join(e.name for e in ESTIMATORS.values() if e.hears_late and not e.anchors)
        raise ArgumentError(
            f"late = 'remember' needs an estimator with a use for late answers, such as {known}, "
            f"got {estimator.name!r}"
        )
    return late == "remember"
