"""The claims of the paper and of this project, one by one, with the statistic that decides each.

The statistics are paired per-run differences: all curves of a run share the training set, and
curves with the same p share the stragglers. Speed is the mean accuracy over rounds 1-20, final
accuracy that of round 50. Verdicts follow the rules of `fedcommons.claims.verdicts`; a claim
whose curves or rounds were not run is left out.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow

from fedcommons.claims import beyond, by_the_clock, experiments, theory
from fedcommons.claims.evidence import Claim, Evidence, MissingCurveError, every_round
from fedcommons.simulate.definition import PAPER, PAPER_CLOCK, Study

CLAIMS: tuple[Callable[[Evidence], Claim], ...] = (
    experiments.speed_grows_with_c,
    experiments.final_accuracy_differs,
    experiments.final_difference_is_slight("half", 1 / 2),
    experiments.final_difference_is_slight("quarter", 1 / 4),
    experiments.moment_falls_with_c,
    experiments.plotted_moment_falls_with_c,
    beyond.moments_are_exact,
    experiments.speed_goes_with_moment,
    experiments.interpolates,
    experiments.speed_grows_with_d,
    experiments.mirrors_iid,
    experiments.single_class_is_worse("speed"),
    experiments.single_class_is_worse("final"),
    experiments.needs_more_sharing,
    experiments.gain_grows_with_p,
    theory.reduction_grows_with_p,
    theory.theorem1,
    beyond.theorem1_general,
    theory.reduction_factor,
    theory.unbiased,
    every_round(
        "theorem2",
        "Theorem 2 bounds the reduction of the second moment, in every round.",
        "Theorem 2",
        "exact reduction over the stragglers, for the run's placement at the round's model, "
        "against the bound",
        "theorem2_violations",
        theory.THEOREM2_CURVES,
    ),
    every_round(
        "assumption1",
        "Assumption 1 holds in every round.",
        "Appendix B, Assumption 1",
        "both sums over same-class pairs at least 0 and the sum over different classes",
        "assumption1_violations",
        theory.THEOREM2_CURVES,
    ),
    every_round(
        "remark",
        "The sums over pairs of different classes are negative in every round.",
        "Appendix B, the Remark's premise",
        "both sums over pairs of different classes with a shareable example at most 0",
        "remark_violations",
        theory.THEOREM2_CURVES,
    ),
    theory.remark_tends,
    every_round(
        "remark-bound",
        "Where its premise holds, the Remark's bound holds, in every round.",
        "Appendix B, Remark",
        "exact reduction over the stragglers, for the run's placement at the round's model, "
        "against the Remark's bound, in the rounds in which its premise holds",
        "remark_bound_violations",
        theory.THEOREM2_CURVES,
    ),
    every_round(
        "type1-positive",
        "Type I scalar products are positive in every round.",
        "Appendix B and Figure 3",
        "sum over pairs of the same class",
        "type1_not_positive",
        theory.FIGURE3_CURVES,
    ),
    every_round(
        "type2-negative",
        "Type II scalar products are negative in every round.",
        "Appendix B and Figure 3",
        "sum over pairs of different classes",
        "type2_not_negative",
        theory.FIGURE3_CURVES,
    ),
    theory.type2_shrinks,
    theory.fixed_dc("fixed-dc-bound", "the bound", "Theorem 2's bound", "initial_bound"),
    theory.fixed_dc(
        "fixed-dc-exact", "the exact expected reduction", "expected reduction", "initial_reduction"
    ),
    beyond.reaches_the_ceiling,
)


OF_STUDIES = {PAPER: CLAIMS, PAPER_CLOCK: by_the_clock.CLAIMS}  # by their names


def check_all(study: Study, runs: pyarrow.Table) -> list[Claim]:
    """Every claim whose curves and rounds were run; none of a study that others wrote."""
    if study.name not in OF_STUDIES:
        return []
    evidence = Evidence(study, runs)
    claims = []
    for make in OF_STUDIES[study.name]:
        try:
            claims.append(make(evidence))
        except MissingCurveError:
            continue
    return claims


__all__ = ["CLAIMS", "Claim", "check_all"]


def __dir__() -> list[str]:
    return __all__
