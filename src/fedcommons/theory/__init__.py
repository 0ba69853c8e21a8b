"""The paper's theorems as functions, each with the exact form that they bound or approximate."""

from fedcommons.theory import (
    durations,
    expected_variance,
    heterogeneity,
    lambdas,
    own_part,
    scalar_products,
    second_moment,
    ticks,
    variance_reduction,
)

__all__ = [
    "durations",
    "expected_variance",
    "heterogeneity",
    "lambdas",
    "own_part",
    "scalar_products",
    "second_moment",
    "ticks",
    "variance_reduction",
]


def __dir__() -> list[str]:
    return __all__
