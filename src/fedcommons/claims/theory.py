"""What Section III and the appendices prove, assume or observe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np

from fedcommons.checks import FloatArray
from fedcommons.claims.evidence import (
    COPIES,
    PROBS,
    SETTINGS,
    SHARED,
    WHOLE,
    Claim,
    Evidence,
    cells,
    direction,
    equality,
    shared,
)
from fedcommons.claims.verdicts import Component
from fedcommons.simulate.curves import Curve
from fedcommons.theory import heterogeneity


def reduction_grows_with_p(e: Evidence) -> Claim:
    def reduction(setting: str, p: float) -> FloatArray:
        norm2 = e.get("initial_norm2", shared(setting, p, 0.0))
        unshared = e.get("initial_moment_exact", shared(setting, p, 0.0))
        return (unshared - e.get("initial_moment_exact", shared(setting, p, 0.5))) / norm2

    return direction(
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


def heterogeneity_curves() -> Iterator[tuple[str, float, Curve]]:
    for setting, c in product(SETTINGS, SHARED[1:]):
        yield f"{setting}, (c, d) = ({c}, {COPIES})", c, shared(setting, 0.5, c)


def theorem1(e: Evidence) -> Claim:
    def theorem(c: float, curve: Curve) -> FloatArray:
        return heterogeneity.theorem1(
            e.get("heterogeneity_before", curve),
            n_clients=e.study.clients,
            class_size=e.study.class_size or 0,
            proportion=c,
            copies=COPIES,
        )

    return equality(
        "theorem1",
        "Theorem 1 gives the expected label heterogeneity after sharing.",
        "Theorem 1",
        "heterogeneity after sharing divided by Theorem 1's value, minus 1",
        [
            Component.of(name, e.get("heterogeneity_after", curve) / theorem(c, curve) - 1)
            for name, c, curve in heterogeneity_curves()
        ],
        tolerance=0.02,
    )


def reduction_factor(e: Evidence) -> Claim:
    return direction(
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
            for name, c, curve in heterogeneity_curves()
        ],
    )


def unbiased(e: Evidence) -> Claim:
    return equality(
        "unbiased",
        "The estimate is unbiased.",
        "Section III-B and Appendix B",
        "<ĝ, g> / |g|² minus 1, averaged over the rounds of a run, without and with sharing",
        [
            Component.of(f"{name}, c = {c}", e.get("projection", shared(setting, p, c)) - 1)
            for name, setting, p in cells()
            for c in SHARED
        ],
        tolerance=0.05,
    )


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


def remark_tends(e: Evidence) -> Claim:
    return direction(
        "remark-tends",
        "The sums over pairs of different classes tend to be negative.",
        "Appendix B, the Remark's observation",
        "one half minus the fraction of a run's 50 rounds in which one of the sums is positive",
        [
            Component.of(name, 0.5 - e.at_the_end("remark_violations", curve) / WHOLE)
            for name, curve in THEOREM2_CURVES
        ],
    )


def type2_shrinks(e: Evidence) -> Claim:
    return direction(
        "type2-shrinks",
        "The magnitude of the Type II scalar products decreases as training converges.",
        "Appendix B, Remark and Figure 3",
        "|Type II| of the first round minus that of the last of 50, relative to the first",
        [
            Component.of(
                name,
                1 - np.abs(e.at_the_end("type2_last", curve) / e.get("type2_first", curve)),
            )
            for name, curve in FIGURE3_CURVES
        ],
    )


FIXED_DC = [(0.1, 6), (0.2, 3), (0.3, 2)]


def fixed_dc(id_: str, words: str, statistic: str, column: str) -> Callable[[Evidence], Claim]:
    def check(e: Evidence) -> Claim:
        values = {}
        for c, d in FIXED_DC:
            curve = shared("single-class", 0.7, c, d)
            norm2 = e.get("initial_norm2", curve)
            values[c] = e.get(column, curve) / norm2
        return direction(
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
