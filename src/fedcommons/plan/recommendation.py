"""Which option to take, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedcommons import checks
from fedcommons.plan.options import Option

SLACK = 1.05  # rounds that count as the fewest


@dataclass(frozen=True, slots=True)
class Targets:
    """What an option must reach, where given: at most this heterogeneity, and this variance."""

    heterogeneity: float | None = None
    variance: float | None = None

    def __post_init__(self) -> None:
        for name, value in self.asked.items():
            checks.real(f"the target of {name}", value, low=0)

    @property
    def asked(self) -> dict[str, float]:
        both = {"heterogeneity": self.heterogeneity, "variance": self.variance}
        return {name: value for name, value in both.items() if value is not None}

    def __str__(self) -> str:
        return " and ".join(f"{name} at most {value:g}" for name, value in self.asked.items())

    def reached(self, found: Sequence[Option]) -> list[Option]:
        """The options that reach them all."""
        return [
            option
            for option in found
            if all(getattr(option, name) <= most for name, most in self.asked.items())
        ]

    def nearest(self, found: Sequence[Option]) -> Option:
        """The one that misses them least, each relative to the worst of the options."""

        def missed_by(option: Option) -> float:
            total = 0.0
            for name, most in self.asked.items():
                worst = max(getattr(other, name) for other in found)
                total += max(0.0, getattr(option, name) - most) / (worst or 1.0)
            return total

        return min(found, key=lambda option: (missed_by(option), option.cost))


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The option to take, and why; None if no option reaches the target."""

    option: Option | None
    reason: str


def recommend(found: Sequence[Option], targets: Targets | None = None) -> Recommendation:
    """The cheapest option that reaches the targets; without one, where more stops paying."""
    targets = targets or Targets()
    if not targets.asked:
        return _where_more_stops_paying(found)
    fit = targets.reached(found)
    if not fit:
        return _out_of_reach(found, targets)
    chosen = min(fit, key=lambda option: (option.cost, option.variance))
    return Recommendation(chosen, f"the cheapest of {len(fit)} options with {targets}")


def recommend_by_rounds(
    rounds: Mapping[Option, float], accuracy: float, max_rounds: int, targets: Targets
) -> Recommendation:
    """The cheapest of those that need the fewest rounds to an accuracy.

    `rounds` is what each option that reaches the targets needs, infinite if more than `max_rounds`.
    """
    besides = f" with {targets}" if targets.asked else ""
    fewest = min(rounds.values())
    if math.isinf(fewest):
        return Recommendation(
            None, f"no option{besides} reaches accuracy {accuracy:g} in {max_rounds} rounds"
        )
    fit = [option for option, n in rounds.items() if n <= SLACK * fewest]
    chosen = min(fit, key=lambda option: (option.cost, option.variance))
    return Recommendation(
        chosen,
        f"the cheapest{besides} that reaches accuracy {accuracy:g} within 5 % of {fewest:g} rounds",
    )


def recommend_by_hours(hours: Mapping[Option, float], targets: Targets) -> Recommendation:
    """The cheapest of those that take the fewest hours; infinite where a site is never heard."""
    besides = f" with {targets}" if targets.asked else ""
    fewest = min(hours.values())
    if math.isinf(fewest):
        return Recommendation(None, f"with no option{besides} every site can answer in time")
    fit = [option for option, n in hours.items() if n <= SLACK * fewest]
    chosen = min(fit, key=lambda option: (option.cost, option.variance))
    if not chosen.copies and all(hours[option] > fewest for option in hours if option.copies):
        return Recommendation(
            chosen, "copies make rounds longer by more than they save in rounds, whatever is shared"
        )
    return Recommendation(
        chosen, f"the cheapest{besides} that takes at most 5 % more than the fewest hours"
    )


def _out_of_reach(found: Sequence[Option], targets: Targets) -> Recommendation:
    nearest = targets.nearest(found)
    return Recommendation(
        None,
        f"no option has {targets}; the nearest is c = {nearest.proportion:.3g}, "
        f"d = {nearest.copies:g}",
    )


def _where_more_stops_paying(found: Sequence[Option]) -> Recommendation:
    front = sorted((o for o in found if o.best), key=lambda o: o.cost)
    most = front[-1]
    span_cost, span_gain = most.cost - front[0].cost, front[0].variance - most.variance
    if span_cost <= 0 or span_gain <= 0:  # the cheapest has the least variance as well
        if all(option.cost == most.cost for option in found):
            return Recommendation(front[0], "all options cost the same, and none has less variance")
        return Recommendation(front[0], "sharing more costs more and does not lower the variance")

    def above_the_line(option: Option) -> float:
        """How much more of the whole gain than of the whole cost."""
        gain = (front[0].variance - option.variance) / span_gain
        return gain - (option.cost - front[0].cost) / span_cost

    chosen = max(front, key=above_the_line)
    gain = (front[0].variance - chosen.variance) / span_gain
    cost = (chosen.cost - front[0].cost) / span_cost
    if chosen == most:
        return Recommendation(chosen, "no option has less noise, and each step up to it pays")
    return Recommendation(
        chosen,
        f"it has {gain:.0%} of what the most that was compared would gain, "
        + (f"which costs {1 / cost:.1f} times as much" if cost > 0 else "and costs nothing"),
    )
