"""The paper's theorems as functions, each with the exact form that they bound or approximate."""

from fedcommons.theory import (
    expected_variance,
    heterogeneity,
    lambdas,
    scalar_products,
    second_moment,
    variance_reduction,
)

__all__ = [
    "expected_variance",
    "heterogeneity",
    "lambdas",
    "scalar_products",
    "second_moment",
    "variance_reduction",
]


def __dir__() -> list[str]:
    return __all__
