"""What sharing buys: heterogeneity, variance, records moved and compute, for every c and d.

Nothing is trained for that: label counts, reliability and how alike gradients are give the exact
expectation of the first round's variance under randomised sharing (`theory.expected_variance`).
How many rounds an accuracy takes is for a pilot to find out.
"""

from fedcommons.plan.files import read_labels, read_sites
from fedcommons.plan.geometry import assumed_geometry, pilot_geometry
from fedcommons.plan.options import Option, Prices, as_placed, not_beaten, options
from fedcommons.plan.pilot import rounds_to_accuracy
from fedcommons.plan.recommendation import (
    Recommendation,
    Targets,
    recommend,
    recommend_by_rounds,
)
from fedcommons.plan.sites import Sites, sites_of, sites_of_dataset, sites_of_placement

__all__ = [
    "Option",
    "Prices",
    "Recommendation",
    "Sites",
    "Targets",
    "as_placed",
    "assumed_geometry",
    "not_beaten",
    "options",
    "pilot_geometry",
    "read_labels",
    "read_sites",
    "recommend",
    "recommend_by_rounds",
    "rounds_to_accuracy",
    "sites_of",
    "sites_of_dataset",
    "sites_of_placement",
]


def __dir__() -> list[str]:
    return __all__
