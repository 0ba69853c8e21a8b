"""What sites measure, of training or of a model on data of their own: numbers by name.

Everything here comes from elsewhere: what is no finite number is left out and named, and the rest
is averaged with the sites' numbers of examples as weights, as Flower's strategies do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedcommons import shown

EXAMPLES = "num-examples"  # the name under which a site says how many examples it measured
MOST_METRICS, LONGEST_NAME = 64, 64
MOST_EXAMPLES = 1e15

Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SiteMetrics:
    """Metrics of one kind in one round.

    Attributes:
        pooled: the mean over the sites, by name; weighted by their numbers of examples.
        by_site: what each site measured, `num-examples` among it.
        left_out: what of a site does not count, and why, by the site's name.
    """

    pooled: Numbers = field(default_factory=dict)
    by_site: Mapping[str, Numbers] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.pooled or self.by_site or self.left_out)

    @classmethod
    def of(cls, by_site: Mapping[str, Numbers], left_out: Mapping[str, str]) -> SiteMetrics:
        return cls(pooled(by_site), dict(by_site), dict(left_out))

    def joined(self, later: SiteMetrics) -> SiteMetrics:
        """With what came later, of other sites; means that are not of these sites' stay."""
        if not later:
            return self
        by_site = {**self.by_site, **later.by_site}
        means = {**self.pooled, **pooled(by_site)} if self.pooled == pooled(self.by_site) else {}
        return SiteMetrics(means or self.pooled, by_site, {**self.left_out, **later.left_out})

    def to_json(self) -> dict[str, Any]:
        return {
            "pooled": dict(self.pooled),
            "by_site": {site: dict(numbers) for site, numbers in self.by_site.items()},
            "left_out": dict(self.left_out),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SiteMetrics:
        return cls(
            _floats(content["pooled"]),
            {str(site): _floats(numbers) for site, numbers in content["by_site"].items()},
            {str(site): str(why) for site, why in content["left_out"].items()},
        )


def checked(metrics: Mapping[str, Any], examples: float | None = None) -> tuple[Numbers, list[str]]:
    """The finite numbers among a site's metrics, and what is left out and why.

    A site that does not say how many examples it measured counts as `examples`; without these
    nothing of it counts.
    """
    numbers: dict[str, float] = {}
    left_out = []
    for name, value in list(metrics.items())[:MOST_METRICS]:
        if not _is_name(name):
            left_out.append("a metric whose name cannot be shown")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            left_out.append(f"{name} is not one number")
        elif not math.isfinite(value):
            left_out.append(f"{name} is {float(value)}")
        else:
            numbers[name] = float(value)
    if len(metrics) > MOST_METRICS:
        left_out.append(f"more than {MOST_METRICS} metrics")
    weight = numbers.get(EXAMPLES, examples)
    if weight is None or not 0 < weight <= MOST_EXAMPLES:
        return {}, [*left_out, f"{EXAMPLES} must be a number > 0"]
    return {**numbers, EXAMPLES: weight}, left_out


def of_answer(metrics: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[Numbers, list[str]]:
    """`checked`, of an answer of which it is said how much it covers."""
    if not metrics:
        return {}, []
    coverage = fields.get("coverage")
    is_number = isinstance(coverage, int | float) and coverage > 0
    return checked(metrics, float(coverage) if is_number else None)  # type: ignore[arg-type]


def pooled(by_site: Mapping[str, Numbers]) -> Numbers:
    """The mean of each metric over the sites that have it, weighted by their examples."""
    names = dict.fromkeys(name for numbers in by_site.values() for name in numbers)
    found = {}
    for name in names:
        if name == EXAMPLES:
            continue
        having = [numbers for numbers in by_site.values() if name in numbers]
        total = math.fsum(numbers[EXAMPLES] for numbers in having)
        mean = sum(numbers[EXAMPLES] / total * numbers[name] for numbers in having)
        if math.isfinite(mean):
            found[name] = mean
    return found


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and shown.plain(name) == name


def _floats(content: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in content.items()}
