"""What this project says beyond the paper."""

from __future__ import annotations

from fedcommons.claims.evidence import (
    SHARED,
    Claim,
    Evidence,
    cells,
    equality,
    shared,
)
from fedcommons.claims.theory import heterogeneity_curves
from fedcommons.claims.verdicts import Component
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.tables import LATE


def theorem1_general(e: Evidence) -> Claim:
    return equality(
        "theorem1-counts",
        "For counts that are not multiples of 1/c, the general formula gives it.",
        "this project's form of Theorem 1",
        "heterogeneity after sharing divided by the formula's value, minus 1",
        [
            Component.of(
                name,
                e.get("heterogeneity_after", curve) / e.get("heterogeneity_expected", curve) - 1,
            )
            for name, _, curve in heterogeneity_curves()
        ],
        tolerance=0.02,
    )


def moments_are_exact(e: Evidence) -> Claim:
    return equality(
        "moment-exact",
        "The exact second moment is the mean of the simulated one.",
        "this project's form of the second moment",
        "|ĝ|² divided by its exact mean, averaged over the rounds of a run, minus 1",
        [
            Component.of(f"{name}, c = {c}", e.get("moment_ratio", shared(setting, p, c)) - 1)
            for name, setting, p in cells()
            for c in SHARED
        ],
        tolerance=0.1,
    )


def reaches_the_ceiling(e: Evidence) -> Claim:
    best = shared("single-class", 0.7, 0.2, code="owner-corrected", estimator="memory", warm=True)
    ceiling = Curve("iid", estimator="wait_for_all")
    e.get("accuracy_10", best)
    e.get("accuracy_10", ceiling)
    differences = e.late[:, e.place[best]] - e.late[:, e.place[ceiling]]
    return equality(
        "ceiling",
        "With the owner-corrected code and warm memory, training with 70 % stragglers is as good "
        "as with nobody missing from round 10 on.",
        "this project, single-class, p = 0.7, (c, d) = (0.2, 3)",
        "accuracy minus that of gradient descent with nobody missing, every round from 10 on",
        [Component.of(f"round {LATE + t}", values) for t, values in enumerate(differences.T)],
        tolerance=0.002,
    )
