"""What each c and d buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fedcommons import checks, partition
from fedcommons.checks import FloatArray
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError
from fedcommons.placement import Placement
from fedcommons.plan.sites import Sites, even_counts
from fedcommons.theory import expected_variance, heterogeneity
from fedcommons.theory.expected_variance import Geometry

ROUNDINGS_UP_TO = 100  # sites: for more, some roundings are drawn


@dataclass(frozen=True, slots=True)
class Prices:
    """What moving a record costs, and computing on one once; and for how many rounds."""

    record: float = 1.0
    compute: float = 0.0
    rounds: int = 50

    def __post_init__(self) -> None:
        checks.real("price of a record", self.record, low=0)
        checks.real("price of computing on a record", self.compute, low=0)
        checks.integer("rounds", self.rounds, low=0, high=checks.LARGEST)


@dataclass(frozen=True, slots=True)
class Option:
    """One way to share, and what it buys.

    Attributes:
        part: how much of what may be shared is shared.
        proportion: c, how much of all examples that is.
        copies: d; of a placement that is there, the mean over the examples that it shares.
        heterogeneity: |Y - Theta*|^2 after sharing, averaged over classes (Theorem 1).
        variance: of the first round's estimate, relative to no sharing.
        variance_iid: the same, relative to even data without sharing.
        second_moment: E|g^|^2 of the first round, in the geometry's units.
        moved: records copied.
        extra_compute: held copies over owned examples.
        cost: of both, at the given prices.
        best: whether no other option is both cheaper and less noisy.
    """

    part: float
    proportion: float
    copies: float
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
    _check(sites, geometry, code)
    parts = [checks.real("proportion", part, low=0, high=1) for part in proportions]
    wanted = [checks.copies(d, sites.n_sites) for d in copies]
    if not parts or not wanted:
        raise ArgumentError("copies and proportions must have a value each, got none")
    scale = _Scale(sites, geometry, prices or Prices())
    some = [part for part in parts if part]
    found = {
        (part, d): option
        for d in set(wanted) - {0}
        for part, option in zip(some, _for_copies(scale, some, d, code), strict=True)
    }
    pairs = [(part, d) for part in parts for d in wanted]
    chosen = [found[pair] for pair in pairs if pair in found]
    if len(chosen) < len(pairs):
        chosen = [*_for_copies(scale, [0.0], 0, code), *chosen]
    return _mark_best(chosen)


def as_placed(
    placement: Placement,
    labels: npt.ArrayLike,
    sites: Sites,
    geometry: Geometry,
    *,
    code: str = "equal-split",
    prices: Prices | None = None,
) -> Option:
    """What a placement that is there has bought: its own numbers, not an expectation over sharing.

    `sites` are those of the placement, `labels` its examples' classes, shape (M,).
    """
    _check(sites, geometry, code)
    scale = _Scale(sites, geometry, prices or Prices())
    shared = placement.copies > 0
    return scale.option(
        part=1.0,
        proportion=float(shared.mean()),
        copies=float(placement.copies[shared].mean()) if shared.any() else 0.0,
        heterogeneity=partition.mean_heterogeneity(
            placement.label_counts(labels, n_classes=len(geometry.norm2))
        ),
        variance=expected_variance.placement_variance(
            placement, labels, geometry, straggler_prob=sites.straggler_prob, code=code
        ),
        moved=placement.n_copies,
    )


def _check(sites: Sites, geometry: Geometry, code: str) -> None:
    if code not in CODES:  # what it buys is known of these alone
        raise ArgumentError(f"code must be one of {', '.join(CODES)}, got {code!r}")
    if len(geometry.norm2) != sites.n_classes:
        raise ArgumentError(
            f"geometry must be of the sites' {sites.n_classes} classes, got {len(geometry.norm2)}"
        )


class _Scale:
    """What the numbers of an option are relative to."""

    def __init__(self, sites: Sites, geometry: Geometry, prices: Prices) -> None:
        self.sites, self.geometry, self.prices = sites, geometry, prices
        class_sizes = sites.counts[0].sum(axis=0)
        even = even_counts(class_sizes, sites.n_sites)[None].astype(np.float64)
        self.full = expected_variance.gradient_norm2(class_sizes, geometry)
        self.alone = float(self.variances([0.0], 0, "equal-split").mean())
        self.even = float(self.variances([0.0], 0, "equal-split", counts=even).mean())

    def variances(
        self, parts: Sequence[float], d: int, code: str, counts: FloatArray | None = None
    ) -> FloatArray:
        """(parts, draws)."""
        counts = self.sites.counts if counts is None else counts
        return expected_variance.variance_of_parts(
            counts,
            self.sites.shareable * counts,
            parts,
            d,
            self.geometry,
            straggler_prob=self.sites.straggler_prob,
            code=code,
        )

    def option(
        self,
        *,
        part: float,
        proportion: float,
        copies: float,
        heterogeneity: float,
        variance: float,
        moved: float,
    ) -> Option:
        cost = moved * (self.prices.record + self.prices.compute * self.prices.rounds)
        if not np.isfinite(cost):
            raise ArgumentError(
                f"prices must give a finite cost, got {self.prices.record:g} for each of {moved:g} "
                f"records and {self.prices.compute:g} for computing on one, in "
                f"{self.prices.rounds} rounds"
            )
        return Option(
            part=part,
            proportion=proportion,
            copies=copies,
            heterogeneity=heterogeneity,
            variance=variance / self.alone if self.alone else 1.0,
            variance_iid=variance / self.even if self.even else 1.0,
            second_moment=self.full + variance,
            moved=moved,
            extra_compute=moved / self.sites.n_examples,
            cost=cost,
        )


def _for_copies(scale: _Scale, parts: Sequence[float], d: int, code: str) -> list[Option]:
    """One option for each part, with d copies."""
    sites = scale.sites
    found = []
    for part, variances in zip(parts, scale.variances(parts, d, code), strict=True):
        offered = part * sites.shareable * sites.counts
        shared = float(offered.sum(axis=(1, 2)).mean())
        found.append(
            scale.option(
                part=part,
                proportion=shared / sites.n_examples,
                copies=d,
                heterogeneity=distance_after(sites, offered, d),
                variance=float(variances.mean()),
                moved=d * shared,
            )
        )
    return found


def distance_after(sites: Sites, offered: FloatArray, d: int) -> float:
    """|Y - Theta*|^2 after sharing (Theorem 1).

    The mean over classes, possible partitions and how a mask may be rounded.
    """
    if sites.n_sites <= ROUNDINGS_UP_TO:
        # The formula takes each column by itself.
        counts, offers = (np.concatenate(list(a), axis=1) for a in (sites.counts, offered))
        return float(np.nanmean(heterogeneity.expected_rounded(counts, offers, d)))
    found = []
    for counts, offer in zip(sites.counts, offered, strict=True):
        masks = expected_variance.rounded(offer)
        side_by_side = np.concatenate(masks, axis=1)
        repeated = np.tile(counts, (1, len(masks)))
        found.append(np.nanmean(heterogeneity.expected_real(repeated, side_by_side, d)))
    return float(np.mean(found))


def _mark_best(found: list[Option]) -> list[Option]:
    best = not_beaten(found)
    return [replace(option, best=option in best) for option in found]


def not_beaten(found: Sequence[Option]) -> list[Option]:
    """Those that no other beats in both cost and variance."""

    def beaten(option: Option) -> bool:
        return any(
            other.cost <= option.cost
            and other.variance <= option.variance
            and (other.cost, other.variance) != (option.cost, option.variance)
            for other in found
        )

    return [option for option in found if not beaten(option)]
