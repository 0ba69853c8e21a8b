"""The paper's claims, one by one, with the statistic that decides each.

The statistics are paired per-run differences: all curves of a run share the training set, and
curves with the same p share the stragglers. Speed is the mean accuracy over rounds 1-20, final
accuracy that of the last round. Verdicts follow the rules of `fedcommons.simulate.verdicts`; a
claim whose curves were not run is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow

from fedcommons.checks import FloatArray
from fedcommons.simulate import verdicts
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.studies import Study
from fedcommons.simulate.tables import LATE
from fedcommons.simulate.verdicts import Component
from fedcommons.theory import heterogeneity

SETTINGS = {"Dirichlet 0.1": ("dirichlet", 0.1), "single-class": ("single-class", 0.0)}
PROBS = (0.3, 0.5, 0.7)
SHARED = (0.0, 0.1, 0.2, 0.5)
COPIES = 3


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

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "claim": self.claim,
            "where": self.where,
            "statistic": self.statistic,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "components": [
                {
                    "name": c.name,
                    "difference": c.difference,
                    "sem": _or_null(c.sem),
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


def shared(setting: str, p: float, c: float, d: int = COPIES, **options: Any) -> Curve:
    """The curve of a setting; c = 0 is no sharing."""
    name, alpha = SETTINGS[setting]
    return Curve(name, alpha, p, c, d if c else 0, **options)


def check_all(study: Study, runs: pyarrow.Table) -> list[Claim]:
    """Every claim whose curves were run."""
    evidence = Evidence(study, runs)
    claims = []
    for make in CLAIMS:
        try:
            claims.append(make(evidence))
        except MissingCurveError:
            continue
    return claims


def _cells() -> Iterator[tuple[str, str, float]]:
    for setting, p in product(SETTINGS, PROBS):
        yield f"{setting}, p = {p}", setting, p


def _weakest(components: Sequence[Component]) -> str:
    worst = min(components, key=lambda c: c.z)
    return (
        f"{len(components)} components; the weakest, {worst.name}: "
        f"{worst.difference:+.4g} ± {worst.sem:.2g} (z = {worst.z:.1f})"
    )


def _direction(
    id_: str, claim: str, where: str, statistic: str, components: list[Component]
) -> Claim:
    verdict = verdicts.direction(components)
    return Claim(id_, claim, where, statistic, verdict, _weakest(components), tuple(components))


def _equality(
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
        f"{len(components)} components; the largest, {worst.name}: {worst.difference:+.2g} ± "
        f"{worst.sem:.2g} (z = {worst.z:.1f}); what counts as equal: ± {tolerance:g}"
    )
    return Claim(id_, claim, where, statistic, verdict, evidence, tuple(components))


def speed_grows_with_c(e: Evidence) -> Claim:
    components = [
        Component.of(
            f"{name}: c = {low} to {high}",
            e.get("early_accuracy", shared(setting, p, high))
            - e.get("early_accuracy", shared(setting, p, low)),
        )
        for name, setting, p in _cells()
        for low, high in pairwise(SHARED)
    ]
    return _direction(
        "speed-c",
        "The convergence rate increases clearly as c goes from 0 to 0.5.",
        "Section IV-B",
        "mean accuracy over rounds 1-20: each step of c against the one before, d = 3",
        components,
    )


def final_accuracy_differs(e: Evidence) -> Claim:
    return _direction(
        "final-differs",
        "There is a difference in the final accuracy in favour of sharing.",
        "Section IV-B (first half of: a slight difference in the final model accuracy)",
        "accuracy of the last round: (0.5, 3) minus no sharing",
        [
            Component.of(
                name,
                e.get("final_accuracy", shared(setting, p, 0.5))
                - e.get("final_accuracy", shared(setting, p, 0.0)),
            )
            for name, setting, p in _cells()
        ],
    )


def final_difference_is_slight(e: Evidence) -> Claim:
    def gain(statistic: str, setting: str, p: float) -> FloatArray:
        return e.get(statistic, shared(setting, p, 0.5)) - e.get(statistic, shared(setting, p, 0.0))

    return _direction(
        "final-slight",
        "The difference in the final accuracy is slight.",
        "Section IV-B (second half)",
        "half of the gain in mean accuracy over rounds 1-20 minus the gain in the last round, "
        "(0.5, 3) against no sharing: positive if less than half of the clear gain is left",
        [
            Component.of(
                name,
                gain("early_accuracy", setting, p) / 2 - gain("final_accuracy", setting, p),
            )
            for name, setting, p in _cells()
        ],
    )


def moment_falls_with_c(e: Evidence) -> Claim:
    def relative(setting: str, p: float, c: float) -> FloatArray:
        unshared = e.get("initial_moment_exact", shared(setting, p, 0.0))
        return e.get("initial_moment_exact", shared(setting, p, c)) / unshared

    return _direction(
        "moment-c",
        "The second moment of the estimate falls as c grows.",
        "Sections III-B and IV-B",
        "exact second moment at the initial model relative to no sharing: each step of c, d = 3",
        [
            Component.of(
                f"{name}: c = {low} to {high}",
                relative(setting, p, low) - relative(setting, p, high),
            )
            for name, setting, p in _cells()
            for low, high in pairwise(SHARED)
        ],
    )


def speed_goes_with_moment(e: Evidence) -> Claim:
    def correlation(setting: str, p: float) -> FloatArray:
        curves = [shared(setting, p, c) for c in SHARED]
        speed = np.stack([e.get("early_accuracy", c) for c in curves])
        moment = np.stack([e.get("initial_moment_exact", c) for c in curves])
        speed, moment = speed - speed.mean(axis=0), moment - moment.mean(axis=0)
        scale = np.sqrt((speed**2).sum(axis=0) * (moment**2).sum(axis=0))
        return -(speed * moment).sum(axis=0) / scale

    return _direction(
        "speed-moment",
        "The increase in convergence rate is correlated with the decrease in variance.",
        "Section IV-B",
        "minus the correlation, within a run and over c, of mean accuracy over rounds 1-20 with "
        "the exact second moment at the initial model",
        [Component.of(name, correlation(setting, p)) for name, setting, p in _cells()],
    )


def interpolates(e: Evidence) -> Claim:
    components = []
    for name, setting, p in _cells():
        iid = e.get("early_accuracy", Curve("iid", 0.0, p))
        none = e.get("early_accuracy", shared(setting, p, 0.0))
        for c in SHARED[1:]:
            mine = e.get("early_accuracy", shared(setting, p, c))
            components.append(Component.of(f"{name}: (c = {c}) above no sharing", mine - none))
            components.append(Component.of(f"{name}: (c = {c}) below IID", iid - mine))
    return _direction(
        "interpolation",
        "By c and d one interpolates between the non-IID and the IID setting.",
        "Section IV-B",
        "mean accuracy over rounds 1-20: above no sharing and below IID, c = 0.1, 0.2, 0.5, d = 3",
        components,
    )


def _single_class_is_worse(statistic: str, words: str) -> Callable[[Evidence], Claim]:
    def check(e: Evidence) -> Claim:
        return _direction(
            f"single-class-{words}",
            f"The single-class setting is worse than Dirichlet 0.1: {words}.",
            "Section IV-B",
            {"speed": "mean accuracy over rounds 1-20", "final": "accuracy of the last round"}[
                words
            ]
            + ": Dirichlet minus single-class, for each c and p",
            [
                Component.of(
                    f"p = {p}, c = {c}",
                    e.get(statistic, shared("Dirichlet 0.1", p, c))
                    - e.get(statistic, shared("single-class", p, c)),
                )
                for p in PROBS
                for c in SHARED
            ],
        )

    return check


def gain_grows_with_p(e: Evidence) -> Claim:
    def gain(setting: str, p: float) -> FloatArray:
        return e.get("early_accuracy", shared(setting, p, 0.5)) - e.get(
            "early_accuracy", shared(setting, p, 0.0)
        )

    return _direction(
        "gain-p",
        "The benefit of sharing grows with the straggler probability.",
        "Section III-B, after Theorem 2",
        "gain in mean accuracy over rounds 1-20 of (0.5, 3) over no sharing: each step of p",
        [
            Component.of(
                f"{setting}: p = {low} to {high}", gain(setting, high) - gain(setting, low)
            )
            for setting in SETTINGS
            for low, high in pairwise(PROBS)
        ],
    )


def reduction_grows_with_p(e: Evidence) -> Claim:
    def reduction(setting: str, p: float) -> FloatArray:
        norm2 = e.get("initial_norm2", shared(setting, p, 0.0))
        unshared = e.get("initial_moment_exact", shared(setting, p, 0.0))
        return (unshared - e.get("initial_moment_exact", shared(setting, p, 0.5))) / norm2

    return _direction(
        "reduction-p",
        "The reduction in variance is more pronounced for higher p.",
        "Section III-B, after Theorem 2",
        "reduction of the exact second moment at the initial model by (0.5, 3), relative to |g|²: "
        "each step of p",
        [
            Component.of(
                f"{setting}: p = {low} to {high}",
                reduction(setting, high) - reduction(setting, low),
            )
            for setting in SETTINGS
            for low, high in pairwise(PROBS)
        ],
    )


def _heterogeneity_curves() -> Iterator[tuple[str, float, Curve]]:
    for setting, c in product(SETTINGS, SHARED[1:]):
        yield f"{setting}, (c, d) = ({c}, {COPIES})", c, shared(setting, 0.5, c)


def theorem1(e: Evidence) -> Claim:
    def theorem(c: float, curve: Curve) -> FloatArray:
        return heterogeneity.theorem1(
            e.get("heterogeneity_before", curve),
            n_clients=e.study.clients,
            class_size=e.study.class_size,
            proportion=c,
            copies=COPIES,
        )

    return _equality(
        "theorem1",
        "Theorem 1 gives the expected label heterogeneity after sharing.",
        "Theorem 1",
        "heterogeneity after sharing divided by Theorem 1's value, minus 1",
        [
            Component.of(name, e.get("heterogeneity_after", curve) / theorem(c, curve) - 1)
            for name, c, curve in _heterogeneity_curves()
        ],
        tolerance=0.02,
    )


def theorem1_general(e: Evidence) -> Claim:
    return _equality(
        "theorem1-counts",
        "For counts that are not multiples of 1/c, the general formula gives it.",
        "this project's form of Theorem 1",
        "heterogeneity after sharing divided by the formula's value, minus 1",
        [
            Component.of(
                name,
                e.get("heterogeneity_after", curve) / e.get("heterogeneity_expected", curve) - 1,
            )
            for name, _, curve in _heterogeneity_curves()
        ],
        tolerance=0.02,
    )


def reduction_factor(e: Evidence) -> Claim:
    return _direction(
        "theorem1-factor",
        "Sharing reduces heterogeneity by at least a factor (1 + dc)².",
        "Section III-A, after Theorem 1",
        "1 minus (1 + dc)² times heterogeneity after divided by before",
        [
            Component.of(
                name,
                1
                - (1 + COPIES * c) ** 2
                * e.get("heterogeneity_after", curve)
                / e.get("heterogeneity_before", curve),
            )
            for name, c, curve in _heterogeneity_curves()
        ],
    )


def unbiased(e: Evidence) -> Claim:
    return _equality(
        "unbiased",
        "The estimate is unbiased.",
        "Section III-B and Appendix B",
        "<ĝ, g> / |g|² minus 1, averaged over the rounds of a run, without and with sharing",
        [
            Component.of(f"{name}, c = {c}", e.get("projection", shared(setting, p, c)) - 1)
            for name, setting, p in _cells()
            for c in SHARED
        ],
        tolerance=0.05,
    )


def _every_round(
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


THEOREM2_CURVES = [
    (f"p = {p}, (c, d) = ({c}, {COPIES})", shared("single-class", p, c))
    for p in PROBS
    for c in SHARED[1:]
]
FIGURE3: dict[str, Any] = {"learning_rate": 0.01, "decay": 1.0}
FIGURE3_CURVES = [
    ("no sharing, p = 0", shared("single-class", 0.0, 0.0, **FIGURE3)),
    ("(c, d) = (0.2, 3), p = 0.5", shared("single-class", 0.5, 0.2, **FIGURE3)),
]


def type2_shrinks(e: Evidence) -> Claim:
    return _direction(
        "type2-shrinks",
        "The magnitude of the Type II scalar products decreases as training converges.",
        "Appendix B, Remark and Figure 3",
        "|Type II| of the first round minus that of the last, relative to the first",
        [
            Component.of(
                name, 1 - np.abs(e.get("type2_last", curve)) / np.abs(e.get("type2_first", curve))
            )
            for name, curve in FIGURE3_CURVES
        ],
    )


FIXED_DC = [(0.1, 6), (0.2, 3), (0.3, 2)]


def _fixed_dc(id_: str, words: str, statistic: str, column: str) -> Callable[[Evidence], Claim]:
    def check(e: Evidence) -> Claim:
        values = {}
        for c, d in FIXED_DC:
            curve = shared("single-class", 0.7, c, d)
            norm2 = e.get("initial_norm2", curve)
            values[c] = e.get(column, curve) / norm2
        return _direction(
            id_,
            f"For fixed dc and d > 1, a higher c reduces the variance more: {words}.",
            "Section III-B, after Theorem 2",
            statistic + " at the initial model, relative to |g|², dc = 0.6: each step of c",
            [
                Component.of(f"(c, d) = {low} to {high}", values[high[0]] - values[low[0]])
                for low, high in pairwise(FIXED_DC)
            ],
        )

    return check


def reaches_the_ceiling(e: Evidence) -> Claim:
    best = shared("single-class", 0.7, 0.2, code="owner-corrected", estimator="memory", warm=True)
    ceiling = Curve("iid", estimator="wait_for_all")
    e.get("accuracy_10", best)
    e.get("accuracy_10", ceiling)
    differences = e.late[:, e.place[best]] - e.late[:, e.place[ceiling]]
    return _equality(
        "ceiling",
        "With the owner-corrected code and warm memory, training with 70 % stragglers is as good "
        "as with nobody missing from round 10 on.",
        "this project, single-class, p = 0.7, (c, d) = (0.2, 3)",
        "accuracy minus that of gradient descent with nobody missing, every round from 10 on",
        [Component.of(f"round {LATE + t}", values) for t, values in enumerate(differences.T)],
        tolerance=0.002,
    )


def needs_more_sharing(e: Evidence) -> Claim:
    return _direction(
        "single-class-needs-more",
        "The single-class setting needs more sharing to do as well as the Dirichlet setting.",
        "Section IV-B",
        "mean accuracy over rounds 1-20: Dirichlet without sharing minus single-class with c = 0.1 "
        "and 0.2, d = 3",
        [
            Component.of(
                f"p = {p}, c = {c}",
                e.get("early_accuracy", shared("Dirichlet 0.1", p, 0.0))
                - e.get("early_accuracy", shared("single-class", p, c)),
            )
            for p in PROBS
            for c in (0.1, 0.2)
        ],
    )


def mirrors_iid(e: Evidence) -> Claim:
    return _equality(
        "mirrors-iid",
        "With enough sharing the final accuracy closely mirrors the IID case.",
        "Introduction",
        "accuracy of the last round: (0.5, 3) minus IID",
        [
            Component.of(
                name,
                e.get("final_accuracy", shared(setting, p, 0.5))
                - e.get("final_accuracy", Curve("iid", 0.0, p)),
            )
            for name, setting, p in _cells()
        ],
        tolerance=0.02,
    )


def speed_grows_with_d(e: Evidence) -> Claim:
    return _direction(
        "speed-d",
        "More copies of the same examples speed up convergence.",
        "Section IV-B (interpolation by c and d)",
        "mean accuracy over rounds 1-20, single-class, p = 0.7, c = 0.5: each step of d",
        [
            Component.of(
                f"d = {low} to {high}",
                e.get("early_accuracy", shared("single-class", 0.7, 0.5, high))
                - e.get("early_accuracy", shared("single-class", 0.7, 0.5, low)),
            )
            for low, high in pairwise((1, 2, 3, 6, 9))
        ],
    )


def plotted_moment_falls_with_c(e: Evidence) -> Claim:
    return _direction(
        "moment-plotted",
        "The plotted second moment is lower with sharing.",
        "Section IV-B, Figures 1 and 2",
        "mean of |ĝ|² over rounds 0-19, each curve at its own models: no sharing minus (0.5, 3), "
        "relative to the mean without sharing",
        [
            Component.of(
                name,
                (
                    e.get("early_moment", shared(setting, p, 0.0))
                    - e.get("early_moment", shared(setting, p, 0.5))
                )
                / e.get("early_moment", shared(setting, p, 0.0)).mean(),
            )
            for name, setting, p in _cells()
        ],
    )


def moments_are_exact(e: Evidence) -> Claim:
    return _equality(
        "moment-exact",
        "The exact second moment is the mean of the simulated one.",
        "this project's form of the second moment",
        "|ĝ|² divided by its exact mean, averaged over the rounds of a run, minus 1",
        [
            Component.of(f"{name}, c = {c}", e.get("moment_ratio", shared(setting, p, c)) - 1)
            for name, setting, p in _cells()
            for c in SHARED
        ],
        tolerance=0.1,
    )


def remark_tends(e: Evidence) -> Claim:
    return _direction(
        "remark-tends",
        "The sums over pairs of different classes tend to be negative.",
        "Appendix B, the Remark's observation",
        "one half minus the fraction of rounds of a run in which one of the sums is positive",
        [
            Component.of(name, 0.5 - e.get("remark_violations", curve) / e.study.rounds)
            for name, curve in THEOREM2_CURVES
        ],
    )


CLAIMS: tuple[Callable[[Evidence], Claim], ...] = (
    speed_grows_with_c,
    final_accuracy_differs,
    final_difference_is_slight,
    moment_falls_with_c,
    plotted_moment_falls_with_c,
    moments_are_exact,
    speed_goes_with_moment,
    interpolates,
    speed_grows_with_d,
    mirrors_iid,
    _single_class_is_worse("early_accuracy", "speed"),
    _single_class_is_worse("final_accuracy", "final"),
    needs_more_sharing,
    gain_grows_with_p,
    reduction_grows_with_p,
    theorem1,
    theorem1_general,
    reduction_factor,
    unbiased,
    _every_round(
        "theorem2",
        "Theorem 2 bounds the reduction of the second moment, in every round.",
        "Theorem 2",
        "exact reduction over the stragglers, for the run's placement at the round's model, "
        "against the bound",
        "theorem2_violations",
        THEOREM2_CURVES,
    ),
    _every_round(
        "assumption1",
        "Assumption 1 holds in every round.",
        "Appendix B, Assumption 1",
        "both sums over same-class pairs at least 0 and the sum over different classes",
        "assumption1_violations",
        THEOREM2_CURVES,
    ),
    _every_round(
        "remark",
        "The sums over pairs of different classes are negative in every round.",
        "Appendix B, the Remark's premise",
        "both sums over pairs of different classes with a shareable example at most 0",
        "remark_violations",
        THEOREM2_CURVES,
    ),
    remark_tends,
    _every_round(
        "remark-bound",
        "Where its premise holds, the Remark's bound holds, in every round.",
        "Appendix B, Remark",
        "exact reduction over the stragglers, for the run's placement at the round's model, "
        "against the Remark's bound, in the rounds in which its premise holds",
        "remark_bound_violations",
        THEOREM2_CURVES,
    ),
    _every_round(
        "type1-positive",
        "Type I scalar products are positive in every round.",
        "Appendix B and Figure 3",
        "sum over pairs of the same class",
        "type1_not_positive",
        FIGURE3_CURVES,
    ),
    _every_round(
        "type2-negative",
        "Type II scalar products are negative in every round.",
        "Appendix B and Figure 3",
        "sum over pairs of different classes",
        "type2_not_negative",
        FIGURE3_CURVES,
    ),
    type2_shrinks,
    _fixed_dc("fixed-dc-bound", "the bound", "Theorem 2's bound", "initial_bound"),
    _fixed_dc(
        "fixed-dc-exact", "the exact expected reduction", "expected reduction", "initial_reduction"
    ),
    reaches_the_ceiling,
)
