"""What each c and d buys, and which to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedcommons import checks
from fedcommons.checks import FloatArray
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError
from fedcommons.plan.sites import Sites
from fedcommons.theory import expected_variance, heterogeneity
from fedcommons.theory.expected_variance import Geometry


@dataclass(frozen=True, slots=True)
class Prices:
    """What moving a record costs, and computing on one once; and for how many rounds."""

    record: float = 1.0
    compute: float = 0.0
    rounds: int = 50

    def __post_init__(self) -> None:
        checks.real("price of a record", self.record, low=0)
        checks.real("price of computing on a record", self.compute, low=0)
        checks.integer("rounds", self.rounds, low=0)


@dataclass(frozen=True, slots=True)
class Option:
    """One way to share, and what it buys.

    Attributes:
        proportion, copies: c, as a part of what may be shared, and d.
        heterogeneity: |Y - Theta*|^2 after sharing, averaged over classes (Theorem 1).
        variance: of the first round's estimate, relative to no sharing.
        variance_iid: the same, relative to even data without sharing.
        second_moment: E|g^|^2 of the first round, in the geometry's units.
        moved: records copied. extra_compute: held copies over owned examples.
        cost: of both, at the given prices.
        best: whether no other option is both cheaper and less noisy.
    """

    proportion: float
    copies: int
    heterogeneity: float
    variance: float
    variance_iid: float
    second_moment: float
    moved: float
    extra_compute: float
    cost: float
    best: bool = field(default=False)


def options(
    sites: Sites,
    geometry: Geometry,
    *,
    copies: Sequence[int],
    proportions: Sequence[float] = (1.0,),
    code: str = "equal-split",
    prices: Prices | None = None,
) -> list[Option]:
    """What every combination buys; `proportions` are parts of what the sites may share.

    Not to share at all (c = 0 or d = 0) is one option, the first.
    """
    if code not in CODES:
        raise ArgumentError(f"code must be one of {', '.join(CODES)}, got {code!r}")
    if len(geometry.norm2) != sites.counts.shape[2]:
        raise ArgumentError(
            f"geometry must be of the sites' {sites.counts.shape[2]} classes, "
            f"got {len(geometry.norm2)}"
        )
    prices = prices or Prices()
    parts = [checks.real("proportion", part, low=0, high=1) for part in proportions]
    wanted = [checks.copies(d, sites.n_sites) for d in copies]
    alone = np.mean([_variance(sites, geometry, k, 0, 0.0, code) for k in _draws(sites)])
    even = _even_variance(sites, geometry)
    shares_something = [(part, d) for part in parts for d in wanted if part and d]
    shares_nothing = [(0.0, 0)] if len(shares_something) < len(parts) * len(wanted) else []
    found = [
        _option(sites, geometry, part, d, code, prices, float(alone), even)
        for part, d in shares_nothing + shares_something
    ]
    return _mark_best(found)


def _draws(sites: Sites) -> range:
    return range(len(sites.counts))


def _offered(sites: Sites, draw: int, part: float) -> FloatArray:
    return part * sites.shareable[:, None] * sites.counts[draw]


def _variance(
    sites: Sites, geometry: Geometry, draw: int, copies: int, part: float, code: str
) -> float:
    return expected_variance.expected_variance(
        sites.counts[draw],
        _offered(sites, draw, part),
        copies,
        geometry,
        straggler_prob=sites.straggler_prob,
        code=code,
    )


def _even_variance(sites: Sites, geometry: Geometry) -> float:
    """The variance without sharing if every class were spread evenly over the sites."""
    N = sites.n_sites
    even = np.tile(sites.counts[0].sum(axis=0) / N, (N, 1))
    return expected_variance.expected_variance(
        even, np.zeros_like(even), 0, geometry, straggler_prob=sites.straggler_prob
    )


def _option(
    sites: Sites,
    geometry: Geometry,
    part: float,
    d: int,
    code: str,
    prices: Prices,
    alone: float,
    even: float,
) -> Option:
    variances, distances, moved = [], [], []
    for k in _draws(sites):
        offered = _offered(sites, k, part)
        variances.append(_variance(sites, geometry, k, d, part, code))
        distances.append(np.nanmean(heterogeneity.expected_real(sites.counts[k], offered, d)))
        moved.append(d * offered.sum())
    full = expected_variance.gradient_norm2(sites.counts[0].sum(axis=0), geometry)
    variance, copied = float(np.mean(variances)), float(np.mean(moved))
    return Option(
        proportion=part,
        copies=d,
        heterogeneity=float(np.mean(distances)),
        variance=variance / alone if alone else 1.0,
        variance_iid=variance / even if even else 1.0,
        second_moment=full + variance,
        moved=copied,
        extra_compute=copied / sites.n_examples,
        cost=copied * (prices.record + prices.compute * prices.rounds),
    )


def _mark_best(found: list[Option]) -> list[Option]:
    """Mark those that no other beats in both cost and variance."""

    def beaten(option: Option) -> bool:
        return any(
            other.cost <= option.cost
            and other.variance <= option.variance
            and (other.cost, other.variance) != (option.cost, option.variance)
            for other in found
        )

    return [replace(option, best=not beaten(option)) for option in found]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The option to take, and why; None if no option reaches the target."""

    option: Option | None
    reason: str


def recommend(
    found: Sequence[Option],
    *,
    heterogeneity: float | None = None,
    variance: float | None = None,
) -> Recommendation:
    """The cheapest option that reaches the targets; without one, where more stops paying."""
    targets = {"heterogeneity": heterogeneity, "variance": variance}
    asked = {name: value for name, value in targets.items() if value is not None}
    if asked:
        fit = [o for o in found if all(getattr(o, name) <= v for name, v in asked.items())]
        said = " and ".join(f"{name} at most {value:g}" for name, value in asked.items())
        if not fit:
            nearest = min(
                found, key=lambda o: sum(getattr(o, name) / v for name, v in asked.items())
            )
            return Recommendation(
                None,
                f"no option has {said}; the nearest is c = {nearest.proportion:g} of what may be "
                f"shared, d = {nearest.copies}",
            )
        chosen = min(fit, key=lambda o: (o.cost, o.variance))
        return Recommendation(chosen, f"the cheapest of {len(fit)} options with {said}")
    front = sorted((o for o in found if o.best), key=lambda o: o.cost)
    most = front[-1]
    span_cost, span_gain = most.cost - front[0].cost, front[0].variance - most.variance
    if span_cost <= 0 or span_gain <= 0:
        return Recommendation(front[0], "sharing more costs more and does not lower the variance")

    def above_the_line(option: Option) -> float:
        """How much more of the whole gain than of the whole cost."""
        gain = (front[0].variance - option.variance) / span_gain
        return gain - (option.cost - front[0].cost) / span_cost

    chosen = max(front, key=above_the_line)
    gain = (front[0].variance - chosen.variance) / span_gain
    cost = (chosen.cost - front[0].cost) / span_cost
    return Recommendation(
        chosen, f"{gain:.0%} of what all options could gain for {cost:.0%} of the cost of most"
    )
