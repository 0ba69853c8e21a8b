"""What runs.parquet says of a curve in a run: one number for each of `SUMMARIES`."""

from __future__ import annotations

import numpy as np

from fedcommons.checks import BoolArray, FloatArray
from fedcommons.simulate.result import THEORY, RunResult

EARLY = slice(1, 21)  # rounds 1-20: how fast a curve converges
SUMMARIES = (
    "early_accuracy",  # mean accuracy over rounds 1-20
    "accuracy_10",
    "accuracy_20",
    "final_accuracy",
    "initial_moment_exact",  # E|g^|^2 at the initial model
    "early_moment",  # mean |g^|^2 over rounds 0-19
    "initial_norm2",
    "heterogeneity_before",
    "heterogeneity_after",
    "heterogeneity_expected",
    "projection",  # mean over rounds of <g^, g> / |g|^2
    "moment_ratio",  # mean over rounds of |g^|^2 / E|g^|^2
    "theorem2_violations",  # rounds in which the reduction is below the bound
    "assumption1_violations",
    "remark_violations",  # rounds in which the Remark's premise fails
    "remark_bound_violations",  # rounds in which it holds and the bound does not
    "type1_not_positive",
    "type2_not_negative",
    "type2_first",
    "type2_last",
    "initial_reduction",
    "initial_bound",
)


def summaries(accuracy: FloatArray, result: RunResult) -> dict[str, FloatArray]:
    """The `SUMMARIES` of one run: (C,) each."""
    C, T = accuracy.shape[0], accuracy.shape[1] - 1
    unknown = np.full(C, np.nan)  # a study may have too few rounds
    theory = dict(zip(THEORY, np.moveaxis(result.theory, 2, 0), strict=True))

    def count(violated: BoolArray, *columns: str) -> FloatArray:
        """Violating rounds; NaN where a column that they rest on was not computed."""
        absent = np.any([np.isnan(theory[name]).any(axis=1) for name in columns], axis=0)
        return np.where(absent, np.nan, violated.sum(axis=1))

    def below(bound: str) -> BoolArray:
        # Float32 products leave relative errors near 1e-6: equality counts as no violation.
        return theory["reduction"] < theory[bound] - 1e-5 * np.abs(theory[bound])

    premise = theory["remark_margin"] >= 0
    margin = np.minimum(theory["mixed_margin"], theory["shared_margin"])
    return {
        "early_accuracy": accuracy[:, EARLY].mean(axis=1) if T >= 20 else unknown,
        "accuracy_10": accuracy[:, 10] if T >= 10 else unknown,
        "accuracy_20": accuracy[:, 20] if T >= 20 else unknown,
        "final_accuracy": accuracy[:, -1],
        "initial_moment_exact": result.second_moment_exact[:, 0],
        "early_moment": result.second_moment[:, :20].mean(axis=1) if T >= 20 else unknown,
        "initial_norm2": result.gradient_norm2[:, 0],
        "heterogeneity_before": result.heterogeneity[:, 0],
        "heterogeneity_after": result.heterogeneity[:, 1],
        "heterogeneity_expected": result.heterogeneity[:, 2],
        "projection": result.projection.mean(axis=1),
        "moment_ratio": (result.second_moment / result.second_moment_exact).mean(axis=1),
        "theorem2_violations": count(below("theorem2_bound"), "theorem2_bound"),
        "assumption1_violations": count(margin < 0, "mixed_margin", "shared_margin"),
        "remark_violations": count(~premise, "remark_margin"),
        "remark_bound_violations": count(
            premise & below("remark_bound"), "remark_margin", "remark_bound"
        ),
        "type1_not_positive": count(theory["type1"] <= 0, "type1"),
        "type2_not_negative": count(theory["type2"] >= 0, "type2"),
        "type2_first": theory["type2"][:, 0],
        "type2_last": theory["type2"][:, -1],
        "initial_reduction": theory["reduction_expected"][:, 0],
        "initial_bound": theory["theorem2_bound"][:, 0],
    }
