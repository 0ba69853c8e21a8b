"""What sharing buys: heterogeneity, variance, records moved and compute, for every c and d.

Nothing is trained for that: label counts, reliability and how alike gradients are give the exact
expectation of the first round's variance under randomised sharing (`theory.expected_variance`).
How many rounds an accuracy takes is for a pilot to find out.
"""

from fedcommons.plan.geometry import assumed_geometry, pilot_geometry
from fedcommons.plan.options import Option, Prices, Recommendation, options, recommend
from fedcommons.plan.pilot import rounds_to_accuracy
from fedcommons.plan.sites import Sites, read_sites, sites_of

__all__ = [
    "Option",
    "Prices",
    "Recommendation",
    "Sites",
    "assumed_geometry",
    "options",
    "pilot_geometry",
    "read_sites",
    "recommend",
    "rounds_to_accuracy",
    "sites_of",
]
