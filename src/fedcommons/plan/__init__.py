"""What sharing buys: heterogeneity, variance, records moved and compute, for every c and d.

Nothing is trained for that: label counts, reliability and how alike gradients are give the exact
expectation of the first round's variance under randomised sharing (`theory.expected_variance`).
How many rounds an accuracy takes is for a pilot to find out. Where it is known how long sites take
(`Timing`), every option has its deadline, and its hours to the target.
"""

from fedcommons.plan.advice import assumptions, duration, for_other_data, sentence
from fedcommons.plan.course import Course
from fedcommons.plan.course import assumed as assumed_course
from fedcommons.plan.deadline import at as at_deadline
from fedcommons.plan.deadline import at_many as at_many_deadlines
from fedcommons.plan.deadline import if_remembered
from fedcommons.plan.files import read_labels, read_sites
from fedcommons.plan.geometry import assumed_geometry, pilot_geometry
from fedcommons.plan.late_pilot import seconds_if_remembered
from fedcommons.plan.options import Option, Prices, as_placed, not_beaten, options
from fedcommons.plan.outcome import Outcome, Question, Shared, if_it_kept, outcome, shared
from fedcommons.plan.pilot import course as measured_course
from fedcommons.plan.pilot import rounds_to_accuracy
from fedcommons.plan.recommendation import (
    Recommendation,
    Targets,
    recommend,
    recommend_by_hours,
    recommend_by_rounds,
)
from fedcommons.plan.sites import Sites, sites_of, sites_of_dataset, sites_of_placement
from fedcommons.plan.timing import Timing
from fedcommons.plan.timing import read as read_timing

__all__ = [
    "Course",
    "Option",
    "Outcome",
    "Prices",
    "Question",
    "Recommendation",
    "Shared",
    "Sites",
    "Targets",
    "Timing",
    "as_placed",
    "assumed_course",
    "assumed_geometry",
    "assumptions",
    "at_deadline",
    "at_many_deadlines",
    "duration",
    "for_other_data",
    "if_it_kept",
    "if_remembered",
    "measured_course",
    "not_beaten",
    "options",
    "outcome",
    "pilot_geometry",
    "read_labels",
    "read_sites",
    "read_timing",
    "recommend",
    "recommend_by_hours",
    "recommend_by_rounds",
    "rounds_to_accuracy",
    "seconds_if_remembered",
    "sentence",
    "shared",
    "sites_of",
    "sites_of_dataset",
    "sites_of_placement",
]


def __dir__() -> list[str]:
    return __all__
