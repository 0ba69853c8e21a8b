"""What a claim is, and the evidence that it is judged by: summaries per run and curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow

from fedcommons.checks import FloatArray
from fedcommons.claims import verdicts
from fedcommons.claims.verdicts import Component
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Study

SETTINGS = {"Dirichlet 0.1": ("dirichlet", 0.1), "single-class": ("single-class", 0.0)}
PROBS = (0.3, 0.5, 0.7)
SHARED = (0.0, 0.1, 0.2, 0.5)
COPIES = 3
WHOLE = 50  # rounds of the paper's training: what is said of its end is judged there and only there
SET_AFTER_A_RESULT = frozenset(  # these, or what decides them, were not fixed beforehand
    {
        "final-slight-half",
        "final-slight-quarter",
        "mirrors-iid",
        "moment-exact",
        "moment-plotted",
        "remark-bound",
        "remark-tends",
        "single-class-needs-more",
        "speed-d",
    }
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, its evidence and its verdict."""

    id: str
    claim: str
    where: str
    statistic: str
    verdict: str
    evidence: str
    components: tuple[Component, ...]

    @property
    def fixed_beforehand(self) -> bool:
        """Whether claim, statistic and tolerance stood before any result (docs/reproduction.md)."""
        return self.id not in SET_AFTER_A_RESULT

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "claim": self.claim,
            "where": self.where,
            "statistic": self.statistic,
            "fixed_beforehand": self.fixed_beforehand,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "components": [
                {
                    "name": c.name,
                    "difference": c.difference,
                    "sem": _or_null(c.sem),
                    "half": _or_null(c.half),
                    "z": _or_null(c.z),
                }
                for c in self.components
            ],
        }


def _or_null(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None


class MissingCurveError(Exception):
    """A claim needs a curve that was not run, or rounds that it does not have."""


class Evidence:
    """Per-run summaries by curve."""

    def __init__(self, study: Study, runs: pyarrow.Table) -> None:
        self.study = study
        self.place = {curve: k for k, curve in enumerate(study.curves)}
        n_runs = runs.num_rows // len(study.curves)
        shape = (n_runs, len(study.curves))
        late = runs["late_accuracies"].combine_chunks()
        self.late = late.flatten().to_numpy().reshape(*shape, late.type.list_size)
        self.columns = {
            name: runs[name].to_numpy().reshape(shape)
            for name in runs.column_names
            if name not in ("run", "curve", "late_accuracies")
        }
        self.n_runs = n_runs

    def get(self, statistic: str, curve: Curve) -> FloatArray:
        if curve not in self.place:
            raise MissingCurveError(curve.key)
        values = self.columns[statistic][:, self.place[curve]]
        if np.isnan(values).any():  # too few rounds, or outside what the theorem is about
            raise MissingCurveError(f"{statistic} of {curve.key}")
        return values

    def at_the_end(self, statistic: str, curve: Curve) -> FloatArray:
        """A statistic of a whole training."""
        if self.study.rounds != WHOLE:
            raise MissingCurveError(f"{statistic} of {WHOLE} rounds")
        return self.get(statistic, curve)


def shared(setting: str, p: float, c: float, d: int = COPIES, **options: Any) -> Curve:
    """The curve of a setting; c = 0 is no sharing."""
    name, alpha = SETTINGS[setting]
    return Curve(name, alpha, p, c, d if c else 0, **options)


def cells() -> Iterator[tuple[str, str, float]]:
    for setting, p in product(SETTINGS, PROBS):
        yield f"{setting}, p = {p}", setting, p


def direction(
    id_: str, claim: str, where: str, statistic: str, components: list[Component]
) -> Claim:
    verdict = verdicts.direction(components)
    return Claim(id_, claim, where, statistic, verdict, _weakest(components), tuple(components))


def equality(
    id_: str,
    claim: str,
    where: str,
    statistic: str,
    components: list[Component],
    tolerance: float,
) -> Claim:
    verdict = verdicts.equality(components, tolerance)
    worst = max(components, key=lambda c: abs(c.difference))
    evidence = (
        f"{_said(components)}; the largest, {worst.name}: {worst.difference:+.2g} ± "
        f"{worst.half:.2g} (z = {worst.z:.1f}); up to {tolerance:g} counts as equal"
    )
    return Claim(id_, claim, where, statistic, verdict, evidence, tuple(components))


def every_round(
    id_: str,
    claim: str,
    where: str,
    statistic: str,
    column: str,
    curves: Sequence[tuple[str, Curve]],
) -> Callable[[Evidence], Claim]:
    def check(e: Evidence) -> Claim:
        counts = {name: e.get(column, curve) for name, curve in curves}
        violating = np.any([values > 0 for values in counts.values()], axis=0)
        n = int(violating.sum())
        bound = verdicts.clopper_pearson_upper(n, e.n_runs)
        rounds = int(sum(values.sum() for values in counts.values()))
        evidence = (
            f"{n} of {e.n_runs} runs violate it in some round ({rounds} rounds in all); "
            f"the fraction of such runs is at most {bound:.3f} (99 %)"
        )
        components = tuple(Component.of(name, values) for name, values in counts.items())
        verdict = verdicts.every_round(n, e.n_runs)
        return Claim(id_, claim, where, statistic, verdict, evidence, components)

    return check


def _said(components: Sequence[Component]) -> str:
    return f"{len(components)} component{'' if len(components) == 1 else 's'}"


def _weakest(components: Sequence[Component]) -> str:
    worst = min(components, key=lambda c: c.z)
    return (
        f"{_said(components)}; the weakest, {worst.name}: "
        f"{worst.difference:+.4g} ± {worst.half:.2g} (z = {worst.z:.1f})"
    )
